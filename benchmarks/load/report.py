"""`RESULTS.md` and its pictures, made of all results there are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from load import plot
from load.results import BUSY, Result, read
from load.rows import POSTGRESQL, ROWS, SQLITE

SOAK = "soak"
ORDER = [*(row.name for row in ROWS), SOAK]
DATABASES = {SQLITE: "SQLite", POSTGRESQL: "PostgreSQL"}

HEAD = """\
# How fast the gateway is

Written by `make bench`; not by hand. What each row is, and how to repeat one: [benchmarks](README.md).

Ours and what it is compared with run at the same time on one core, and the load on another; they are loaded in turn, in
slices of a second, and which of the two goes first changes from pair to pair. A ratio is the median of the pairs' ratios,
with its 95 % interval by order statistics, and the bar is judged at the interval's lenient end. Every answer is looked at:
one that is not the expected one ends the run. The no-op is six lines of Starlette without middleware on the same uvicorn,
asked the same bytes; with PostgreSQL it selects one number through the same driver.
"""


def write(folder: Path) -> Path:
    """Render all results of a folder beside it.

    Args:
        folder: Where results were written.

    Returns:
        The page.
    """
    found = read(folder)
    page = folder.parent / "RESULTS.md"
    parts = [HEAD]
    for database, name in DATABASES.items():
        rows = [found[database, row] for row in ORDER if (database, row) in found]
        if rows:
            parts.append(f"## {name}\n\n{_table(rows)}")
    pairs = [found[key] for key in _ordered(found) if "median" in found[key]]
    if pairs:
        _picture(folder / "ratios.svg", plot.ratios(pairs))
        parts.append("![every ratio beside its bar](results/ratios.svg)")
        parts.append(f"## The figures behind the ratios\n\n{_details(pairs)}")
    for (database, row), one in found.items():
        if row == SOAK:
            _picture(folder / f"{database}-soak.svg", plot.memory(one))
            parts.append(f"![memory over time, {DATABASES[database]}](results/{database}-soak.svg)")
        elif one["open_loop"]:
            _picture(folder / f"{database}-{row}.svg", plot.latencies(one))
            parts.append(f"![latencies of {row}, {DATABASES[database]}](results/{database}-{row}.svg)")
    parts.append(f"## On what\n\n{_circumstances(found[key] for key in _ordered(found))}")
    missing = [
        f"`{row.name}` on {name}"
        for key, name in DATABASES.items()
        for row in ROWS
        if key in row.bars and (key, row.name) not in found
    ]
    if missing:
        parts.append(f"Not measured yet: {', '.join(missing)}.")
    page.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")
    return page


def sentence(result: Result) -> str:
    """A result in a line.

    Args:
        result: Of any row.
    """
    verdict = "reached" if result["reached"] else "MISSED"
    if result["row"] == SOAK:
        return f"{result['growth']:+.1%} in {result['minutes']:g} minutes, bar {result['bar']}: {verdict}"
    ours, other = result["sides"]
    others = result["circumstances"]["others"] or 0
    return (
        f"{_ratio(result)}, bar {result['bar']}: {verdict}; "
        f"{ours['label']} {_figure(ours['figure'], result)}, {other['label']} {_figure(other['figure'], result)}; "
        f"load's core {ours['load_share']:.0%} and {other['load_share']:.0%}, others {others:.0%}"
    )


def _ordered(found: dict[tuple[str, str], Result]) -> list[tuple[str, str]]:
    return [(database, row) for database in DATABASES for row in ORDER if (database, row) in found]


def _table(rows: list[Result]) -> str:
    lines = ["| what | bar | measured | | ours | beside |", "| --- | --- | --- | --- | --- | --- |"]
    for one in rows:
        verdict = "reached" if one["reached"] else "**missed**"
        if one["row"] == SOAK:
            start, end = (_mebibytes(one["samples"], at) for at in (one["warm_seconds"], float("inf")))
            measured = f"{one['growth']:+.1%} in {one['minutes']:g} minutes"
            lines.append(f"| {one['title']} | {one['bar']} | {measured} | {verdict} | {end} | {start} |")
            continue
        ours, other = one["sides"]
        lines.append(
            f"| {one['title']} | {one['bar']} | {_ratio(one)} | {verdict} | "
            f"{_figure(ours['figure'], one)} | {other['label']} {_figure(other['figure'], one)} |"
        )
    return "\n".join(lines)


def _details(rows: list[Result]) -> str:
    lines = [
        "| row | database | side | answers/s | p50 | p99 | p99.9 | pairs | load's core |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in rows:
        for side in one["sides"]:
            quantiles = [
                " + ".join(f"{kind[share]:,.0f}" for kind in side["latency_us"]) + " µs"
                for share in ("0.5", "0.99", "0.999")
            ]
            load = f"{side['load_share']:.0%}" + (" **(too much)**" if side["load_share_most"] > BUSY else "")
            lines.append(
                f"| `{one['row']}` | {DATABASES[one['database']]} | {side['label']} | {side['rate']:,.0f} | "
                + " | ".join(quantiles)
                + f" | {one['pairs']} of {one['slice_seconds']:g} s | {load} |"
            )
    return "\n".join(lines) + _lateness(rows)


def _lateness(rows: list[Result]) -> str:
    late = [side["generator_late_p99_us"] for one in rows for side in one["sides"] if one["open_loop"]]
    if not late:
        return ""
    return (
        "\n\nLatencies of `check-beside-logs` count from when a request was due; "
        f"the generator itself was at most {max(late):,.0f} µs late in 99 of 100. "
        "The second figure beside logs is the logs' own; fewer than 2,000 answers a second there would mean that the "
        "gateway fell behind."
    )


def _circumstances(rows: Iterable[Result]) -> str:
    lines = [
        "| row | database | when | commit | others' share of the cores | the host's |",
        "| --- | --- | --- | --- | ---: | ---: |",
    ]
    machines: dict[str, None] = {}
    for one in rows:
        about = one["circumstances"]
        machines[f"{about['machine']}; {about['versions']}."] = None
        shares = (about["others"], about["stolen"])
        known = " | ".join("" if share is None else f"{share:.1%}" for share in shares)
        name = DATABASES[one["database"]]
        lines.append(f"| `{one['row']}` | {name} | {about['date']} | {about['commit']} | {known} |")
    return "\n".join(machines) + "\n\n" + "\n".join(lines)


def _ratio(one: Result) -> str:
    sure = "" if one["confidence"] >= 0.95 else f" at {one['confidence']:.0%}"
    return f"{one['median']:.2f} × ({one['low']:.2f} to {one['high']:.2f}{sure})"


def _figure(figure: float, one: Result) -> str:
    return f"{figure:,.0f}{'' if one['unit'] == '/s' else ' '}{one['unit']}"


def _mebibytes(samples: list[tuple[float, int]], at: float) -> str:
    size = next((size for when, size in samples if when >= at), samples[-1][1])
    return f"{size / 2**20:.1f} MiB"


def _picture(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
