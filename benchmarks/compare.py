"""The gateway beside its floor and its peers, in one run: `python benchmarks/compare.py --help`."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from load import report, results, soak
from load.connection import UnexpectedAnswer
from load.generator import punctual_loop, quick_loop
from load.machine import LOAD, Others, circumstances, on_core, pinnable
from load.pairs import in_turn
from load.peers import NotInstalled
from load.results import BUSY, Pace, Result
from load.rows import POSTGRESQL, ROWS, SQLITE, Row
from load.servers import NotStarted
from load.stage import Stage, staged
from support.postgres_versions import NoPostgres

NAMES = (*(row.name for row in ROWS), soak.NAME)
MINUTE = 60.0
#: seconds of load on either side before anything counts
WARM = 3.0
#: seconds that a row's servers take to start and to end
AROUND = 6.0
FAILURES = (NotInstalled, NotStarted, NoPostgres, UnexpectedAnswer, OSError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for, write it down, and render the table.

    Args:
        arguments: The command line's; None is this process's.

    Returns:
        0, or 1 if something could not be measured.
    """
    options = _options(arguments)
    jobs = _jobs(options)
    if options.render:
        jobs = []
    elif not pinnable():
        print("! servers and load share cores here: ratios say little")
    failures: list[str] = []
    print(f"{len(jobs)} rows, about {sum(_expected(*job, options) for job in jobs) / 60:.0f} minutes")
    for name, database in jobs:
        _say(f"{database} {name}, about {_expected(name, database, options) / 60:.1f} minutes")
        try:
            before = circumstances()
            with Others() as others, on_core(LOAD):
                result = _measure(name, database, options)
        except FAILURES as error:
            failures.append(f"{database} {name}: {error}")
            print(f"  not measured: {error}", flush=True)
            continue
        result["circumstances"] = before | {"others": others.share, "stolen": others.stolen}
        results.write(result, options.results)
        print(f"  {report.sentence(result)}", flush=True)
    _say("done")
    written = report.write(options.results)
    print(f"\n{written}")
    for failure in failures:
        print(f"not measured: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help=f"rows: {', '.join(NAMES)}")
    parser.add_argument("--database", choices=(SQLITE, POSTGRESQL), help="the gateway's database")
    parser.add_argument("--pairs", type=int, default=25, help="slices of each side (default: %(default)s)")
    parser.add_argument("--slice", type=float, default=1.0, help="seconds a slice (default: %(default)s)")
    parser.add_argument("--minutes", type=float, help="of check-beside-logs, each side (5), and of soak (10)")
    parser.add_argument(
        "--results", type=Path, default=results.FOLDER, help="folder of results; RESULTS.md is written beside"
    )
    parser.add_argument("--render", action="store_true", help="only write RESULTS.md again")
    options = parser.parse_args(arguments)
    if options.pairs < 1 or options.slice <= 0 or (options.minutes is not None and options.minutes <= 0):
        parser.error("--pairs, --slice and --minutes must be above 0")
    return options


def _jobs(options: argparse.Namespace) -> list[tuple[str, str]]:
    names = options.only or NAMES
    databases = {soak.NAME: (SQLITE, POSTGRESQL)} | {row.name: tuple(row.bars) for row in ROWS}
    if options.database:
        return [(name, options.database) for name in names if options.database in databases[name]]
    if options.only:
        return [(name, databases[name][0]) for name in names]
    # What takes minutes is measured on PostgreSQL only when asked for.
    long = {soak.NAME, *(row.name for row in ROWS if row.minutes)}
    on_sqlite = [(name, SQLITE) for name in names if SQLITE in databases[name]]
    return on_sqlite + [(name, POSTGRESQL) for name in names if name not in long]


def _pace(row: Row, options: argparse.Namespace) -> Pace:
    if not row.minutes:
        return Pace(options.pairs, options.slice)
    minutes = options.minutes or 5.0
    whole = max(1, round(minutes))
    return Pace(whole, MINUTE * minutes / whole)


def _soak_seconds(options: argparse.Namespace) -> float:
    return MINUTE * float(options.minutes or 10.0)


def _expected(name: str, _database: str, options: argparse.Namespace) -> float:
    if name == soak.NAME:
        return AROUND + soak.WARM + _soak_seconds(options)
    [row] = [row for row in ROWS if row.name == name]
    pace = _pace(row, options)
    return AROUND + 2 * (WARM + pace.pairs * pace.seconds)


def _measure(name: str, database: str, options: argparse.Namespace) -> Result:
    with staged(postgresql=database == POSTGRESQL) as stage:
        if name == soak.NAME:
            with asyncio.Runner(loop_factory=punctual_loop) as runner:
                return runner.run(soak.soak(stage, database, _soak_seconds(options), _tell_memory))
        [row] = [row for row in ROWS if row.name == name]
        factory = punctual_loop if row.minutes else quick_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(_compare(row, database, _pace(row, options), stage))


async def _compare(row: Row, database: str, pace: Pace, stage: Stage) -> Result:
    def told(pair: int) -> None:
        if pace.seconds > 10 or pair % 5 == 0 or pair == pace.pairs:
            _say(f"  {pair} of {pace.pairs} pairs")

    async with row.sides(stage) as sides:
        for side in sides:
            await side.slice(WARM)
        seen = await in_turn(*sides, pace.pairs, pace.seconds, told)
    result = results.of_pairs(row, database, pace, sides, seen)
    if results.busy(result) > BUSY:
        print(f"  ! the load took {results.busy(result):.0%} of its core: it may be what was measured")
    return result


def _tell_memory(seconds: float, size: int) -> None:
    if round(seconds) % 60 == 0:
        _say(f"  {seconds:.0f} s: {size / 2**20:.1f} MiB")


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


if __name__ == "__main__":
    # Exit normally on SIGTERM, so that the servers stop with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
