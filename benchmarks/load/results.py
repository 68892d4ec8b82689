"""Results as files: one JSON document a row and database, so that a later run replaces only what it measured."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from load.machine import ROOT
from load.pairs import Ratio, Seen, Side, ratio
from load.rows import Row

FOLDER = ROOT / "benchmarks" / "results"
#: of its core; a load that needs more may be what is measured
BUSY = 0.9
SHARES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0)

Result: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Pace:
    """Number and length of the slices of a row.

    Attributes:
        pairs: Slices of each side.
        seconds: How long a slice was.
    """

    pairs: int
    seconds: float


def of_pairs(
    row: Row, database: str, pace: Pace, sides: tuple[Side, Side], seen: tuple[Seen, Seen]
) -> Result:
    """Return the result of a row, as it is stored.

    Args:
        row: Which.
        database: The database of the gateway.
        pace: How it was measured.
        sides: What was compared.
        seen: What the two showed.
    """
    found: Ratio = ratio(seen[0].figures, seen[1].figures)
    bar = row.bars[database]
    judged = bar.judged(found.median, found.low, found.high)
    return {
        "row": row.name,
        "database": database,
        "title": row.title,
        "bar": str(bar),
        "bar_ratio": bar.ratio,
        "at_least": bar.at_least,
        "median": found.median,
        "low": found.low,
        "high": found.high,
        "confidence": found.confidence,
        "judged": judged,
        "judged_at": "median" if bar.at_median else "lenient end",
        "reached": bar.reached(judged),
        "unit": row.unit,
        "pairs": pace.pairs,
        "slice_seconds": pace.seconds,
        "open_loop": row.minutes,
        "sides": [_side(side, one) for side, one in zip(sides, seen, strict=True)],
    }


def _side(side: Side, seen: Seen) -> Result:
    late = seen.late
    return {
        "label": side.label,
        "figure": statistics.median(seen.figures),
        "figures": seen.figures,
        "rate": seen.rate,
        "answers": [one.total for one in seen.latencies],
        "latency_us": [{str(share): one.quantile(share) / 1e3 for share in SHARES} for one in seen.latencies],
        "load_share": statistics.mean(seen.busy),
        "load_share_most": max(seen.busy),
        "generator_late_p99_us": late.quantile(0.99) / 1e3 if late.total else None,
    }


def busy(result: Result) -> float:
    """The greatest share of its core that the load took in any slice; 0 where that is not known.

    Args:
        result: Of a row.
    """
    return max((float(side["load_share_most"]) for side in result.get("sides", [])), default=0.0)


def write(result: Result, folder: Path) -> None:
    """Write a row's result in place of its former one.

    Args:
        result: The result.
        folder: Where.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['database']}-{result['row']}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def read(folder: Path) -> dict[tuple[str, str], Result]:
    """All results there are, by database and row.

    Args:
        folder: Where they were written.
    """
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {(one["database"], one["row"]): one for one in found}
