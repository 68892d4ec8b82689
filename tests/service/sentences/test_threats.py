"""The pages about threats name tests for each defence, and these tests exist."""

import re

import pytest
from support.collected import collected
from support.readme import ROOT

PAGES = [ROOT / "docs" / "internals" / name for name in ("threats.md", "threats-network.md")]
NAMED = re.compile(r"`([\w/]+\.py::\w+)`")
#: maximum number of tests in a row
MOST = 3
LINES = 200


def rows() -> dict[str, list[str]]:
    """Return the rows of the tables of threats, and the tests in the last cell of each."""
    found: dict[str, list[str]] = {}
    within = False
    for line in (line for page in PAGES for line in page.read_text().splitlines()):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            within = False
        elif cells[-1].rstrip(" |") == "tests":
            within = True
        elif within and not line.startswith("| ---"):
            assert line not in found
            found[line] = NAMED.findall(cells[-1])
    return found


def test_every_threat_is_held() -> None:
    """Each row has a threat, a defence and one to three tests, all of which are collected."""
    table = rows()
    assert len(table) > 50
    there = collected({name for names in table.values() for name in names})
    for row, names in table.items():
        assert row.count(" | ") == 2, f"a row has three cells: {row}"
        assert 1 <= len(names) <= MOST, f"name one to {MOST} tests in the last cell of: {row}"
        assert row.count("::") == len(names), f"the name of a test is malformed in: {row}"
        missing = [name for name in names if name not in there]
        assert not missing, f"these tests do not exist: {missing}"


@pytest.mark.parametrize(
    "word", ["## Reporting", "## What it does not defend", *(page.name for page in PAGES)]
)
def test_what_every_reader_looks_for_is_there(word: str) -> None:
    """SECURITY.md describes how to report, names the limits, and links the tables of threats; it is short."""
    text = (ROOT / "SECURITY.md").read_text()
    assert word in text
    assert len(text.splitlines()) <= LINES


def test_each_test_stands_for_few_threats() -> None:
    """No test is named for two threats."""
    names = [name for row in rows().values() for name in row]
    assert {name for name in names if names.count(name) > 1} == set()
