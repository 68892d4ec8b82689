"""`toolgate frameworks` on OpenCode: whether Toolgate's plugin is installed, and whether OpenCode would load it."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.elsewhere import alone, opencode
from typer.testing import CliRunner

from toolgate_cli.app import app
from toolgate_cli.hooks.opencode import TESTED
from toolgate_integrations import _registry


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(_registry, "survey", list)
    return alone(tmp_path, monkeypatch)


def install(*options: str) -> None:
    ended = CliRunner().invoke(app, ["hook", "install", "--for", "opencode", *options])
    assert ended.exit_code == 0, ended.output


def status(*options: str) -> dict[str, Any]:
    """Return what is printed; the exit status must agree with it."""
    ended = CliRunner().invoke(app, ["frameworks", "--json", *options])
    assert ended.stderr == ""
    (one,) = json.loads(ended.stdout)
    assert one["framework"] == "opencode"
    assert ended.exit_code == (not one["guarded"] and not one["ignored"])
    assert bool(one["cure"]) != one["guarded"]
    return dict(one)


def test_it_is_not_listed_without_program_and_settings(project: Path) -> None:
    assert CliRunner().invoke(app, ["frameworks", "--json"]).stdout == "[]\n"


@pytest.mark.parametrize("name", ["opencode.json", "opencode.jsonc", ".opencode"])
def test_a_project_that_uses_it_is_listed_without_a_program(project: Path, name: str) -> None:
    (project / name).mkdir()
    found = status()
    assert (found["state"], found["version"]) == ("no hooks", None)
    assert found["cure"] == "toolgate hook install --for opencode"
    install()
    assert status()["state"] == "covered"


@pytest.mark.parametrize("options", [(), ("--user",)])
def test_an_installed_plugin_is_covered(project: Path, options: tuple[str, ...]) -> None:
    opencode(project.parent, TESTED)
    assert status()["state"] == "no hooks"
    install(*options, "--hold-timeout", "60")
    found = status()
    assert (found["plugin"], found["from"], found["tested"]) == ("toolgate hook opencode", None, TESTED)
    assert (found["state"], found["version"]) == ("covered", TESTED)


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("1.18.2", "untested"),
        (TESTED, "covered"),
        ("1.99.0", "untested"),
        ("2.0.0", "too new"),
        ("x", "unknown"),
    ],
)
def test_versions(project: Path, version: str, state: str) -> None:
    opencode(project.parent, version)
    install()
    assert status()["state"] == state


def test_variables_with_which_opencode_loads_no_plugin(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second variable is only about the project's plugin."""
    opencode(project.parent, TESTED)
    install()
    monkeypatch.setenv("OPENCODE_DISABLE_PROJECT_CONFIG", "1")
    found = status()
    assert found["state"] == "disabled"
    assert "OPENCODE_DISABLE_PROJECT_CONFIG" in found["says"]
    (project / ".opencode" / "plugins" / "toolgate.js").unlink()
    install("--user")
    assert status()["state"] == "covered"
    monkeypatch.setenv("OPENCODE_PURE", "true")
    assert status()["state"] == "disabled"


def test_a_changed_plugin_is_reported(project: Path) -> None:
    opencode(project.parent, TESTED)
    install()
    path = project / ".opencode" / "plugins" / "toolgate.js"
    path.write_text(path.read_text().replace("throw new Error", "new Error"))
    found = status()
    assert found["state"] == "no hooks"
    assert "toolgate.js" in found["says"]
    install()
    assert status()["state"] == "covered"


def test_a_file_of_others_is_unknown(project: Path) -> None:
    opencode(project.parent, TESTED)
    path = project / ".opencode" / "plugins" / "toolgate.js"
    path.parent.mkdir(parents=True)
    path.write_text("export const Other = async () => ({})\n")
    assert status()["state"] == "unknown"


def test_it_can_be_ignored(project: Path) -> None:
    opencode(project.parent, TESTED)
    assert status("--ignore", "OpenCode")["ignored"]
    ended = CliRunner().invoke(app, ["frameworks"])
    assert ended.exit_code == 1
    assert "opencode: no plugin checks the tool calls of OpenCode in this folder" in ended.stdout
