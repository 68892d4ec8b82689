"""SECURITY.md: every threat that it says is defended is held by tests that exist."""

import re

import pytest
from support.collected import collected
from support.readme import ROOT

PAGE = ROOT / "SECURITY.md"
NAMED = re.compile(r"`([\w/]+\.py::\w+)`")
#: of a row; more are no longer read by anybody
MOST = 3
LINES = 200


def rows() -> dict[str, list[str]]:
    """Return the rows of the tables of threats, and the tests that each names in its last cell."""
    found: dict[str, list[str]] = {}
    within = False
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            within = False
        elif cells[-1].rstrip(" |") == "held by":
            within = True
        elif within and not line.startswith("| ---"):
            assert line not in found
            found[line] = NAMED.findall(cells[-1])
    return found


def test_every_threat_is_held() -> None:
    """Each row says who, what stands in the way, and one to three tests, all of which are collected."""
    table = rows()
    assert len(table) > 50
    there = collected({name for names in table.values() for name in names})
    for row, names in table.items():
        assert row.count(" | ") == 2, f"a row has three cells: {row}"
        assert 1 <= len(names) <= MOST, f"name one to {MOST} tests in the last cell of: {row}"
        assert row.count("::") == len(names), f"a name cannot be read in: {row}"
        missing = [name for name in names if name not in there]
        assert not missing, f"SECURITY.md names tests that do not exist: {missing}"


@pytest.mark.parametrize("word", ["## Reporting", "## What it does not defend"])
def test_what_every_reader_looks_for_is_there(word: str) -> None:
    """How to report, and where the defence ends; on a page short enough to be read."""
    text = PAGE.read_text()
    assert word in text
    assert len(text.splitlines()) <= LINES


def test_each_test_stands_for_few_threats() -> None:
    """A test that holds everything holds nothing in particular."""
    names = [name for row in rows().values() for name in row]
    assert {name for name in names if names.count(name) > 1} == set()
