"""The table framework × behaviour says what the suite sees, and leads to every plugin's page."""

import re

import pytest
from support.frameworks.results import COLUMNS, PAGE, Row, page_of, written
from support.readme import ROOT

from toolgate_integrations._registry import INTEGRATIONS

EVERYTHING = {test for tests in COLUMNS.values() for test in tests}


@pytest.fixture
def page() -> str:
    return PAGE.read_text()


def test_the_same_results_leave_the_page_as_it_is(page: str) -> None:
    """Written anew from what it says, it is the same page."""
    names = re.findall(r"^\| \[`([^`]+)`\]", page, re.MULTILINE)
    assert names
    assert names == sorted(names)
    assert written(page, {}) == page


def test_what_fails_is_seen(page: str) -> None:
    """One failed test changes its column's sign, whichever mode it failed in."""
    fine = Row(["sync"], {}, EVERYTHING, set())
    broken = Row(["sync"], {}, EVERYTHING, {"test_blocked"})
    before, after = written(page, {"langchain": fine}), written(page, {"langchain": broken})
    [line] = set(after.splitlines()) - set(before.splitlines())
    assert line == fine.line("langchain").replace("✓ | ✓", "✓ | ✗", 1)


def test_what_is_not_run_is_not_promised(page: str) -> None:
    """Of a test that no mode runs there is no tick, and the reason stands below."""
    row = Row(["sync"], {"test_blocked": "it has no way to"}, EVERYTHING - {"test_blocked"}, set())
    after = written(page, {"langchain": row})
    assert "| ✓ | – |" in row.line("langchain")  # noqa: RUF001 - as the page writes it
    assert "- `langchain`, denied: it has no way to\n" in after


@pytest.mark.parametrize("identifier", INTEGRATIONS)
def test_every_plugin_has_its_rows_and_its_page(page: str, identifier: str) -> None:
    """The README leads to the page, the page names the module, and the table has a row of the plugin."""
    name = page_of(identifier)
    assert f"/blob/main/docs/{name})" in (ROOT / "README.md").read_text()
    assert f"toolgate_integrations.{identifier}" in (ROOT / "docs" / name).read_text()
    assert f"]({name}) |" in page


def test_pages_are_found_by_the_longest_name() -> None:
    """A harness of another way to run a framework leads to the framework's page."""
    assert page_of("langchain-toolnode") == "frameworks/langchain.md"
    assert page_of("claude_agent_sdk") == "frameworks/claude-agent-sdk.md"
    assert page_of("fastmcp-proxy-handshake") == "frameworks/fastmcp.md"
    assert page_of("claude-code") == "frameworks/claude-code.md"
