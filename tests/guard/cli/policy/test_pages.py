"""The pages about policies: their files, and their commands with the output that they show."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.gateway import Owner
from support.readme import blocks
from support.shell import Shell

from toolgate_cli.policy.documents import parse_document

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

PAGE, GUIDE = "docs/get-started/policy-in-git.md", "docs/guides/policies.md"
CHANGES = {"apply", "rollback", "start", "promote", "discard"}
#: times, and the amount of a counterexample: each amount between the old and the new maximum is one
VARYING = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z|(?<=amount   )[\d.]+|(?<=Amount )[\d.]+")


def run_block(shell: Shell, block: str) -> None:
    """Run the `toolgate policy` commands of a block, and compare their output with the output in the block."""
    for command, output in re.findall(r"^\$ toolgate (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE):
        words = shlex.split(command)
        run = shell.done
        if CHANGES & {*words}:
            words.append("--yes")
            run = shell.allowed
        assert VARYING.sub("x", run(*words)) == VARYING.sub("x", output), command


def test_commands_of_the_page_print_what_it_shows(
    shell: Shell, owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    policy, cases, _ = blocks(PAGE, "yaml")
    _, offline, apply, widened, proven, pull = blocks(PAGE, "console")
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    (tmp_path / "policy.tests.yaml").write_text(cases)
    run_block(shell, offline)
    run_block(shell, apply)
    assert shell.done("policy", "plan", "--require-proof") == "no changes\n"
    file.write_text(policy.replace("max_amount: 50", "max_amount: 80"))
    run_block(shell, widened)
    assert shell.run("policy", "plan", "--require-proof").exit_code == 1
    file.write_text(policy.replace("max_amount: 50", "max_amount: 20"))
    run_block(shell, proven)
    assert shell.run("policy", "plan", "--require-proof").exit_code == 0
    file.write_text(policy)
    [rule] = [one for one in owner.http.get("/api/rules").json() if one["name"] == "Large refunds"]
    owner.http.put(f"/api/rules/{rule['id']}", json={"when": "args.amount > 25"}).raise_for_status()
    run_block(shell, pull)
    assert file.read_text() == policy.replace("args.amount > 30", "args.amount > 25")


def test_format_and_test_case_of_the_guide_are_valid(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in zip(("policy.yaml", "policy.tests.yaml"), blocks(GUIDE, "yaml"), strict=True):
        Path(name).write_text(text)
    assert shell.done("policy", "validate") == "policy.yaml is valid: 2 agents, 2 rules, 1 budget\n"
    assert shell.done("policy", "test") == "1 case: 1 passed, 0 failed\n"


def test_schema_of_the_page_is_that_of_new_files(shell: Shell, tmp_path: Path) -> None:
    shell.done("policy", "pull", str(tmp_path / "new.yaml"))
    assert blocks(PAGE, "yaml")[0].splitlines()[0] == (tmp_path / "new.yaml").read_text().splitlines()[0]


def test_workflow_runs_commands_that_exist(shell: Shell) -> None:
    workflow: Any = parse_document(Path("workflow.yml"), blocks(PAGE, "yaml")[2]).value
    lines = [step["run"] for step in workflow["jobs"]["policy"]["steps"] if "run" in step]
    commands = [found for line in lines for found in re.findall(r"toolgate (?!\[)((?:[a-z]+ ?)+)(.*)", line)]
    assert len(commands) == 6
    for command, options in commands:
        if command.startswith("@") or "git+" in options:
            continue
        shown = shell.done(*command.split(), "--help")
        for option in re.findall(r"--[a-z-]+", options):
            assert option in shown, (command, option)


def test_stored_plan_is_json(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(blocks(PAGE, "yaml")[0])
    shell.done("policy", "plan", "--out", "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["version"] == "toolgate.plan/v1"
