"""`toolgate frameworks`: what is installed, what no plugin guards, and the page that shows it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.elsewhere import alone, claude
from support.readme import blocks
from support.sites import requires, site
from typer.testing import CliRunner

from toolgate_cli.app import app
from toolgate_integrations import _registry

PAGE = "docs/guides/unguarded-frameworks.md"


def run(*options: str) -> Any:
    return CliRunner().invoke(app, ["frameworks", *options], env={"COLUMNS": "200"})


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says what is installed, in place of what is; nothing of a coding agent is here."""
    alone(tmp_path, monkeypatch)

    def install(**versions: str | None) -> None:
        folder, real = site(tmp_path, **versions), _registry.survey
        monkeypatch.setattr(_registry, "survey", lambda: real([str(folder)]))

    return install


def told(*options: str) -> dict[str, dict[str, Any]]:
    """What is printed as JSON, by framework; the status says whether any is unguarded."""
    ended = run("--json", *options)
    assert ended.stderr == ""
    assert ended.stdout.isascii()
    found = json.loads(ended.stdout)
    assert ended.exit_code == any(not one["guarded"] and not one["ignored"] for one in found)
    return {one["framework"]: one for one in found}


def test_covered_frameworks_are_fine(installed: Any) -> None:
    """Status 0, also for a newer version of the series that was tested."""
    installed(langchain="1.0.3", langgraph="1.99.0")
    assert {name: one["state"] for name, one in told().items()} == {
        "langchain": "covered",
        "langgraph": "untested",
    }
    ended = run()
    assert ended.exit_code == 0
    assert ended.stdout.endswith("2 of 2 agent frameworks can be guarded by plugins\n")


def test_no_framework_is_fine(installed: Any) -> None:
    """Nothing is here that would run tools."""
    installed(numpy="2.4.6")
    assert told() == {}
    assert (run().exit_code, run().stdout) == (0, "no known agent framework is installed here\n")


@pytest.mark.parametrize(
    "versions",
    [{"letta": "0.16.10"}, {"mcp": "1.30.0"}, {"mcp": "3.0"}, {"langgraph": "1.2.22"}, {"mcp": None}],
)
def test_what_is_not_covered_is_status_1(installed: Any, versions: dict[str, str | None]) -> None:
    """Without a plugin, out of its range, without the plugin's extra, or of no version: each with its cure."""
    installed(openai_agents="0.24.0", **versions)
    [name] = versions
    one = told()[name]
    assert (one["version"], one["guarded"]) == (versions[name], False)
    ended = run()
    assert ended.exit_code == 1
    assert (
        f"{name}: {one['says']}\n  → {one['cure']}\n1 of 2 agent frameworks would run tools unguarded\n"
        in ended.stdout
    )


def test_json_has_all_that_is_known(installed: Any) -> None:
    """What a script reads is what a person sees."""
    installed(mcp="1.30.0")
    assert told()["mcp"] == {
        "framework": "mcp",
        "version": "1.30.0",
        "plugin": "toolgate_integrations.mcp",
        "from": "2.0",
        "tested": "2.3.0",
        "state": "too old",
        "guarded": False,
        "ignored": False,
        "says": "2.0 is the oldest supported version",
        "cure": "pip install 'toolgate[mcp]'",
    }


def test_what_runs_no_tools_can_be_ignored(installed: Any) -> None:
    """It is shown, and no reason for status 1; one that is not installed may be named, one that is unknown not."""
    installed(google_genai="1.60.0", letta="0.6")
    seen = told("--ignore", "Google-GenAI", "--ignore", "griptape")
    assert {name: one["ignored"] for name, one in seen.items()} == {"google-genai": True, "letta": False}
    ended = run("--ignore", "google-genai", "--ignore", "letta")
    assert ended.exit_code == 0
    assert ended.stdout.endswith("0 of 2 agent frameworks can be guarded by plugins, 2 ignored\n")
    ended = run("--ignore", "antropic")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr == (
        "toolgate: --ignore: unknown framework 'antropic'; to list the names, run: toolgate frameworks\n"
    )


@pytest.mark.parametrize(
    ("framework", "requirements", "needed"),
    [
        ({"google_adk": "2.13.0"}, {"google_adk": ["google-genai>=1.0,<3"]}, {"google_genai": "2.34.0"}),
        ({"crewai": "1.15.30"}, {"crewai": ["mcp (<2) ; python_version > '3'"]}, {"mcp": "1.26.0"}),
        (
            {"pydantic_ai_slim": "2.68.0", "pydantic_ai": "2.68.0"},
            {
                "pydantic_ai": ["pydantic-ai-slim[openai,google]==2.68.0"],
                "pydantic_ai_slim": ["google-genai>=1; extra == 'google'", "letta; extra == 'letta'"],
            },
            {"google_genai": "2.34.0"},
        ),
        (
            {"strands_agents": "1.62.0", "between": "1"},
            {"strands_agents": ["Between"], "between": ["mcp<2"]},
            {"mcp": "1.26.0"},
        ),
    ],
)
def test_what_only_a_guarded_framework_needs_is_status_0(
    installed: Any,
    tmp_path: Path,
    framework: dict[str, str],
    requirements: dict[str, list[str]],
    needed: dict[str, str],
) -> None:
    installed(**framework, **needed)
    for name, each in requirements.items():
        requires(tmp_path, name, *each)
    [name] = needed
    shown = name.replace("_", "-")
    assert (told()[shown]["state"], told()[shown]["guarded"]) == ("dependency", True)
    ended = run()
    assert ended.exit_code == 0
    assert f"{shown}: " in ended.stdout
    assert f"code that uses {shown!r} directly is not guarded" in ended.stdout


@pytest.mark.parametrize(
    ("requirement", "version"),
    [("numpy", "2.13.0"), ("google-genai; extra == 'gemini'", "2.13.0"), ("google-genai", "2.11.0")],
)
def test_what_no_guarded_framework_needs_is_status_1(
    installed: Any, tmp_path: Path, requirement: str, version: str
) -> None:
    installed(google_adk=version, google_genai="2.34.0")
    requires(tmp_path, "google_adk", requirement)
    assert told()["google-genai"]["state"] == "no plugin"
    assert run().exit_code == 1


def test_what_others_call_their_version_commands_no_terminal(installed: Any) -> None:
    """Metadata is written by whoever made the package."""
    installed(letta="1.0\x1b[2J")
    assert "\x1b" not in run().stdout
    assert "1.0\\x1b[2J" in run().stdout


def test_it_looks_at_what_python_imports(tmp_path: Path) -> None:
    """As it is typed, in a process of its own: the first of a name on the path, beside all that is really here."""
    for needed in ("langchain", "fastmcp"):
        pytest.importorskip(needed, reason=f"the test needs {needed} beside the frameworks that it invents")
    folder = site(tmp_path, letta="0.16.10", mcp="1.30.0")
    ended = subprocess.run(
        [sys.executable, "-m", "toolgate", "frameworks", "--json"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (1, "")
    found = {one["framework"]: one for one in json.loads(ended.stdout)}
    assert found["letta"]["state"] == "no plugin"
    # Frameworks with plugins that are really here need it.
    assert (found["mcp"]["version"], found["mcp"]["state"]) == ("1.30.0", "dependency")
    assert found["langchain"]["state"] == "covered"


def test_the_page_shows_what_is_printed(installed: Any, tmp_path: Path) -> None:
    """The command line's page, to the letter but for spaces at the ends of lines."""
    [shown] = [block for block in blocks(PAGE, "text") if block.startswith("$ toolgate frameworks\n")]
    claude(tmp_path)
    installed(langchain="1.4.7", langgraph="1.2.22", letta="0.16.10", mcp="1.30.0", openai_agents="0.24.1")
    ended = run()
    assert ended.exit_code == 1
    lines = [line.strip() for line in ended.stdout.splitlines()]
    assert [line for line in lines if line] == [line.strip() for line in shown.splitlines()[1:]]
