"""What became of a call is told by another process than the one that asked."""

import json
import os
import subprocess
from typing import Any

from support.forking import FORK_SERVER
from support.frameworks.claude_code import variables
from support.frameworks.harness import Scene

BASH = {
    "session_id": "session-1",
    "cwd": "/srv/project",
    "tool_name": "Bash",
    "tool_input": {"command": "make", "description": "Build it", "password": "hunter22"},
    "tool_use_id": "toolu_1",
}


def told(scene: Scene, event: str, *words: str, env: dict[str, str] | None = None, **more: Any) -> Any:
    typed = json.dumps({**BASH, "hook_event_name": event, **more})
    environment = {**os.environ, **variables(scene), **(env or {})}
    return FORK_SERVER.run("hook", "claude-code", *words, env=environment, typed=typed)


def entry(scene: Scene) -> dict[str, Any]:
    assert scene.guard.flush(30)
    (found,) = scene.owner.entries()
    return dict(found)


def test_success_names_the_decision(scene: Scene) -> None:
    """The entry has the call's and the session's ids, the decision, and the folder that was asked about."""
    assert told(scene, "PreToolUse").returncode == 0
    assert told(scene, "PostToolUse", cwd="/srv/elsewhere", duration_ms=12).returncode == 0
    found = entry(scene)
    assert (found["status"], found["run_id"], found["call_id"]) == ("success", "session-1", "toolu_1")
    assert found["decision_id"]
    assert found["context"].items() >= {"cwd": "/srv/project", "command": "make", "duration_ms": 12}.items()
    assert "hunter22" not in str(found)


def test_failure_says_why(scene: Scene) -> None:
    """The tool's own words are in the entry, without what is hidden in its arguments."""
    told(scene, "PreToolUse")
    assert told(scene, "PostToolUseFailure", error="make: hunter22 is no target").returncode == 0
    found = entry(scene)
    assert found["status"] == "failed"
    assert "is no target" in found["context"]["error"]["message"]
    assert "hunter22" not in str(found)


def test_what_ran_otherwise_than_asked_is_said(scene: Scene) -> None:
    """Another hook may exchange the arguments after the guard: the entry tells what ran, and that it was not this."""
    told(scene, "PreToolUse")
    told(scene, "PostToolUse", tool_input={**BASH["tool_input"], "command": "make clean"})
    found = entry(scene)["context"]
    assert (found["command"], found["changed_after_asking"]) == ("make clean", True)


def test_what_was_never_asked_is_said(scene: Scene) -> None:
    """A tool that ran although no hook asked leaves an entry that says so."""
    told(scene, "PostToolUse")
    assert entry(scene)["context"]["asked_about"] == "not known"


def test_an_agent_that_died_leaves_an_entry(scene: Scene) -> None:
    """What was let through and never heard of again is recorded as such, once, by whichever hook comes next."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    assert told(scene, "PreToolUse", env={"CLAUDE_PID": str(dead.pid)}).returncode == 0
    for call_id in ("toolu_2", "toolu_3"):
        assert told(scene, "PreToolUse", tool_use_id=call_id).returncode == 0
        assert told(scene, "PostToolUse", tool_use_id=call_id).returncode == 0
    assert scene.logged() == [("Bash", "pending"), ("Bash", "success"), ("Bash", "success")]
    (unknown,) = (each for each in scene.owner.entries() if each["status"] == "pending")
    assert (unknown["call_id"], unknown["context"]["outcome"]) == ("toolu_1", "unknown")
    assert "hunter22" not in str(unknown)


def test_who_acts_and_under_which_action(scene: Scene) -> None:
    """Subagents act as the agents that are named for them, and tools have the actions that are named for them."""
    reviewer = scene.owner.agent("reviewer")
    scene.owner.permit(reviewer, "shell.run")
    words = ("--subagent", f"reviewer={reviewer}", "--tool-action", "Bash=shell.run")
    assert told(scene, "PreToolUse", *words).returncode == 2
    assert told(scene, "PreToolUse", *words, agent_type="reviewer").returncode == 0
    assert told(scene, "PostToolUse", *words, agent_type="reviewer").returncode == 0
    assert scene.guard.flush(30)
    found = {(each["agent_name"], each["action"], each["status"]) for each in scene.owner.entries()}
    assert found == {("bot", "shell.run", "denied"), ("reviewer", "shell.run", "success")}


def test_where_nothing_can_be_recorded_the_tool_has_run_all_the_same(scene: Scene) -> None:
    """After the tool nothing is blocked any more: the hook says what is wrong, and what ran is not run again."""
    done = told(scene, "PostToolUse", env={"TOOLGATE_OUTBOX": "/proc/no/such/place"})
    assert done.stdout == ""
    assert done.stderr


def test_large_content_is_cut_for_the_gateway_and_not_for_the_tool(scene: Scene) -> None:
    """A file of some hundred kilobytes is asked about as others are: the approver sees how much, the tool gets all."""
    large = {"command": "cat", "content": "x" * 300_000}
    done = told(scene, "PreToolUse", tool_input=large)
    assert (done.returncode, done.stdout) == (0, "")
    assert told(scene, "PostToolUse", tool_input=large).returncode == 0
    found = entry(scene)["context"]
    assert "changed_after_asking" not in found
    assert found["command"] == "cat"
    assert len(json.dumps(found)) < 64 * 1024
