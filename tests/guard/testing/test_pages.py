"""The examples of the pages about testing, freezes, rules and the embedded gateway run as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.readme import blocks

pytest_plugins = "pytester"


def test_example_passes_and_detects_a_wrong_tool(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's first test passes with the page's own setting, and fails when the tool does something else."""
    for name in ("URL", "API_KEY", "AGENT_ID"):
        monkeypatch.delenv(f"TOOLGATE_{name}", raising=False)
    [test, approval, budget, by_hand], [setting] = (
        blocks("docs/guides/testing.md", "python"),
        blocks("docs/guides/testing.md", "ini"),
    )
    pytester.makeini(setting)
    pytester.makepyfile(test_right=test, test_wrong=test.replace('return f"refunded', 'return f"kept'))
    without = re.sub(r".*fake_gateway\.budget\(.*\n", "", budget)
    pytester.makepyfile(test_approval=approval, test_budget=budget, test_no_budget=without)
    pytester.makepyfile(test_by_hand=by_hand + "\ndef test(): assert guard.check('mail.send').held\n")
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=4, failed=2)


def test_example_of_a_freeze_passes_and_detects_a_missing_freeze(pytester: pytest.Pytester) -> None:
    [code] = blocks("docs/guides/freezes.md", "python")
    without = re.sub(r".*fake_gateway\.freeze\(.*\n", "", code)
    pytester.makepyfile(test_right=code, test_wrong=without)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1, failed=1)


def test_example_of_a_rule_passes_and_detects_a_missing_rule(pytester: pytest.Pytester) -> None:
    [code] = blocks("docs/guides/rules.md", "python")
    without = code.replace("fake_gateway.rule(", "(lambda *_, **__: None)(")
    assert without != code
    pytester.makepyfile(test_right=code, test_wrong=without)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1, failed=1)


@pytest.mark.slow
@pytest.mark.sqlite_only("the embedded gateway is on SQLite alone")
def test_the_embedded_page_runs(tmp_path: Path) -> None:
    """Its block prints that the mail was sent, in a folder where it leaves its file."""
    [code] = blocks("docs/guides/embedded.md", "python")
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **home},
    )
    assert (done.stdout, done.stderr) == ("sent to ann@example.com\n", "")
    assert (tmp_path / "toolgate.db").exists()
