"""Rules of the house that no linter holds."""

import re

import pytest
from support.readme import ROOT

FOLDERS = ("guard", "integrations", "service", "benchmarks", "tests", "examples")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def test_no_file_is_over_500_lines() -> None:
    """A room that has grown too large is rebuilt."""
    assert len(SOURCES) > 100
    assert [str(path) for path in SOURCES if len(path.read_text().splitlines()) > 500] == []


@pytest.mark.parametrize("mark", ["type: " + "ignore", "no" + "qa"])
def test_every_exception_to_a_rule_has_its_reason(mark: str) -> None:
    """Beside each silenced checker stands why."""
    bare = re.compile(rf"# {mark}(\[[\w, -]+\]|: [A-Z0-9, ]+)?\s*$", re.MULTILINE)
    assert [str(path) for path in SOURCES if bare.search(path.read_text())] == []
