"""Everything fails, again and again, while twenty clients work; then the ledger is compared with what is there.

PYTHONPATH=tests python -m support.faults.run --minutes 10
"""

import argparse
import platform
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from support.admin import done
from support.faults.clients import Crowd
from support.faults.kinds import KINDS, Faults, recovered
from support.faults.ledger import Ledger
from support.faults.verdict import Line, verdict
from support.faults.world import REPLICAS, begun
from support.gateway import Owner

FRUGAL = 2
PAGE = Path(__file__).parents[3] / "docs" / "internals" / "faults.md"
BEGIN, END = "<!-- the last run -->", "<!-- end of the last run -->"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run.

    Attributes:
        seconds: how long everything failed.
        faults: how often each kind happened.
        ledger: what the clients were told.
        recovery: seconds from the end of the last fault until all replicas were ready.
        lines: the promises.
    """

    seconds: float
    faults: Sequence[tuple[str, int]]
    ledger: Ledger
    recovery: float
    lines: Sequence[Line]

    @property
    def is_good(self) -> bool:
        """Whether every promise was put to the test and none was broken."""
        return all(line.looked_at and not line.broken for line in self.lines)


def run(seconds: float, seed: int, pause: float) -> Result:
    """Let everything fail for so long.

    Args:
        seconds: how long.
        seed: decides what fails and when.
        pause: the longest time between two faults, and that a fault lasts, in seconds.
    """
    with begun() as world, ExitStack() as stack:
        acme, *frugal = [
            stack.enter_context(Owner(world.url, organization=name))
            for name in ("Acme", *["Frugal"] * FRUGAL)
        ]
        for owner in frugal:
            done(world.direct, "set-plan", owner.user["organization_id"], "free")
        crowd, faults = Crowd(acme, frugal, Ledger()), Faults(world, seed, pause)
        enough = threading.Event()
        with ThreadPoolExecutor(64) as pool:
            working = [pool.submit(work) for work in crowd.works()]
            try:
                # On this thread: the servers end with the one that started them.
                with _over_after(seconds, enough):
                    faults.go_on(enough)
                recovery = recovered(world)
            finally:
                crowd.enough.set()
            for one in working:
                one.result()
        lines = verdict(crowd.ledger, world.direct, acme, frugal)
        return Result(
            seconds, [(kind, faults.counted[kind]) for kind in KINDS], crowd.ledger, recovery, lines
        )


@contextmanager
def _over_after(seconds: float, enough: threading.Event) -> Iterator[None]:
    timer = threading.Timer(seconds, enough.set)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def told(result: Result, seed: int) -> str:
    """Return a run's result as the documentation has it."""
    answers = result.ledger.answers
    asked = sum(answers.values())
    refused, unanswered = answers[503], answers[0]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    began = (
        f"{datetime.now(UTC):%Y-%m-%d}, commit `{commit}`, Python {platform.python_version()}, seed {seed}"
    )
    head = (
        f"{began}: {result.seconds / 60:.1f} minutes, {REPLICAS} replicas, 20 clients, {sum(n for _, n in result.faults)} "
        f"faults. Of {asked:,} requests, {asked - refused - unanswered:,} were answered, {refused:,} got 503, and "
        f"{unanswered:,} ended without a response. After the last fault all replicas were ready within "
        f"{result.recovery:.1f} s.\n"
    )
    faults = [
        "| fault | times |",
        "| --- | --- |",
        *[f"| {kind} | {times} |" for kind, times in result.faults],
    ]
    ledger = ["| promise | verified | broken |", "| --- | --- | --- |"]
    ledger += [f"| {line.promise} | {line.looked_at:,} times | {len(line.broken)} |" for line in result.lines]
    return "\n".join([head, *faults, "", *ledger])


def main() -> int:
    """Run, print, and write the result into the documentation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--pause", type=float, default=2.5, help="the longest a fault lasts, in seconds")
    parser.add_argument("--write", action="store_true", help="write the result into docs/internals/faults.md")
    asked = parser.parse_args()
    result = run(asked.minutes * 60, asked.seed, asked.pause)
    text = told(result, asked.seed)
    sys.stdout.write(f"{text}\n")
    for line in result.lines:
        for broken in line.broken[:20]:
            sys.stdout.write(f"BROKEN: {line.promise}: {broken}\n")
    if asked.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
