"""The page of results, made of files that parts of a run replace."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from load import report, results
from load.generator import Slice
from load.histogram import Histogram
from load.machine import circumstances
from load.pairs import Seen, Side
from load.results import Pace
from load.rows import ROWS, SQLITE


async def _no_load(_: float) -> Slice:
    raise AssertionError("nothing is loaded here")


def result(name: str, ours: float, other: float = 100.0) -> dict[str, Any]:
    """What a row wrote whose two sides showed these figures in six pairs."""
    [row] = [row for row in ROWS if row.name == name]
    seen = []
    for figure in (ours, other):
        histogram = Histogram()
        histogram.add(1_000_000)
        seen.append(Seen([figure] * 6, [histogram], histogram, [0.2] * 6, 6.0))
    sides = [Side(label, _no_load, lambda one: one.rate) for label in ("ours", "theirs & co")]
    found = results.of_pairs(row, SQLITE, Pace(6, 1.0), (sides[0], sides[1]), (seen[0], seen[1]))
    return found | {"circumstances": circumstances() | {"others": 0.012, "stolen": None}}


def soak() -> dict[str, Any]:
    """What a soak wrote."""
    samples = [[float(at), 100 * 2**20] for at in range(700)]
    return {
        **{key: result("check-latency", 1)[key] for key in ("circumstances", "database")},
        "row": "soak",
        "title": "memory",
        "bar": "< 5 %",
        "growth": 0.0,
        "reached": True,
        "minutes": 10,
        "warm_seconds": 60,
        "samples": samples,
    }


def test_a_part_run_replaces_its_rows_alone(tmp_path: Path) -> None:
    """The others stay as they were measured, and what nobody measured is named."""
    folder = tmp_path / "results"
    for one in (result("check-throughput", 50), result("check-latency", 120), soak()):
        results.write(one, folder)
    before = report.write(folder).read_text()
    assert "| 0.50 × (0.50 to 0.50) | **missed** |" in before
    assert "| 1.20 × (1.20 to 1.20) | reached |" in before
    results.write(result("check-throughput", 80), folder)
    after = report.write(folder).read_text()
    assert "| 0.80 × (0.80 to 0.80) | reached |" in after
    assert "| 1.20 × (1.20 to 1.20) | reached |" in after
    assert "+0.0% in 10 minutes" in after
    assert "Not measured yet: `check-cerbos` on SQLite" in after


def test_pictures_are_well_formed(tmp_path: Path) -> None:
    """Each picture that the page shows is there, and an SVG document."""
    folder = tmp_path / "results"
    for one in (result("check-beside-logs", 400), result("log-batching", 900), soak()):
        results.write(one, folder)
    page = report.write(folder).read_text()
    pictures = sorted(folder.glob("*.svg"))
    assert [one.name for one in pictures] == ["ratios.svg", "sqlite-check-beside-logs.svg", "sqlite-soak.svg"]
    for picture in pictures:
        assert f"(results/{picture.name})" in page
        assert ET.fromstring(picture.read_text()).tag == "{http://www.w3.org/2000/svg}svg"


def test_a_load_that_was_the_bottleneck_is_told(tmp_path: Path) -> None:
    """A figure behind which the load itself stood is marked."""
    one = result("log-batching", 900)
    one["sides"][1]["load_share_most"] = 0.97
    results.write(one, tmp_path / "results")
    assert "**(too much)**" in report.write(tmp_path / "results").read_text()
