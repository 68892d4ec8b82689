"""What the plugin for OpenCode tells the hook, and what the hook answers."""

import json
import os
import re
import subprocess
from typing import Any

import pytest
from support.forking import FORK_SERVER
from support.frameworks.claude_code import variables
from support.frameworks.harness import Scene

from toolgate import ConfigurationError
from toolgate_integrations.coding_agents.agents import Before, OpenCode

CALL = {
    "event": "before",
    "tool": "bash",
    "arguments": {"command": "ls"},
    "session": "ses_1",
    "call": "call-1",
    "agent": "build",
    "folder": "/srv/project",
    "servers": ["my bank", "my"],
    "process": os.getpid(),
}


def asked(scene: Scene, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables(scene)}
    words = ("--tool-action", "bash=tools.Bash", "--tool-action", "write=tools.Write", *words)
    return FORK_SERVER.run("hook", "opencode", *words, env=environment, typed=json.dumps({**CALL, **more}))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"event": "PreToolUse"}, "unknown event 'PreToolUse'"),
        ({"event": None}, "event"),
        ({"tool": ""}, "tool"),
        ({"arguments": None}, "arguments"),
        ({"arguments": ["ls"]}, "arguments"),
        ({"session": 7}, "session"),
        ({"call": None}, "call"),
        ({"process": None}, "process"),
        ({"process": True}, "process"),
        ({"process": 0}, "process"),
        ({"tool": "my_bank_pay"}, "the server of the tool"),
    ],
)
def test_what_is_no_question_is_refused(more: dict[str, Any], why: str) -> None:
    """What is missing, of another kind or not clear is an error that says so."""
    with pytest.raises(ConfigurationError, match=re.escape(why)):
        OpenCode().read({**CALL, **more})


@pytest.mark.parametrize(
    ("tool", "servers", "found"),
    [
        ("my_bank_pay", ["my bank"], ("my bank", "pay")),
        ("my_bank_pay", ["other"], (None, None)),
        ("my_bank_", ["my bank"], (None, None)),
        ("bash", ["bash"], (None, None)),
        ("my_pay", None, (None, None)),
    ],
)
def test_the_server_of_a_tool(tool: str, servers: Any, found: tuple[str | None, str | None]) -> None:
    """A tool belongs to the server with whose name, as OpenCode writes it, its own begins."""
    event = OpenCode().read({**CALL, "tool": tool, "servers": servers})
    assert isinstance(event, Before)
    assert (event.call.server, event.call.own_name) == found


def test_its_answers(scene: Scene) -> None:
    """A yes is JSON that says so; a no is status 2 with the reason; what is told afterwards is recorded."""
    done = asked(scene)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"toolgate": "allowed", "arguments": None}
    assert asked(scene, event="after", duration_ms=12).returncode == 0
    done = asked(scene, tool="read", arguments={"filePath": "/etc/hostname"}, call="call-2")
    assert done.returncode == 2
    assert "'tools.read' is blocked" in json.loads(done.stdout)["why"]
    (success,) = (each for each in scene.owner.entries() if each["status"] == "success")
    assert (success["call_id"], success["run_id"]) == ("call-1", "ses_1")
    assert success["context"] == {"command": "ls", "cwd": "/srv/project", "duration_ms": 12}


def test_told_it_goes_through_once_after_the_approval(scene: Scene) -> None:
    """The model is told which approval waits; approved, the same call passes once under another name."""
    write = {"tool": "write", "arguments": {"filePath": "/srv/a", "content": "b"}}
    done = asked(scene, "--on-hold", "tell", **write)
    (request,) = scene.owner.http.get("/api/approvals").json()
    assert done.returncode == 2
    assert request["id"] in json.loads(done.stdout)["why"]
    scene.approve(request["id"])
    assert asked(scene, "--on-hold", "tell", **write, call="call-2").returncode == 0
    assert asked(scene, "--on-hold", "tell", **write, call="call-3").returncode == 2


def test_of_another_agent(scene: Scene) -> None:
    """A kind of agent that has an id of its own acts under it; it has no permission here."""
    other = scene.owner.agent("explorer")
    assert asked(scene, "--subagent", f"general={other}", agent="general").returncode == 2
    assert asked(scene, "--subagent", f"general={other}").returncode == 0


def test_of_a_program_that_died(scene: Scene) -> None:
    """A call of an OpenCode that is gone becomes one with an unknown outcome, by whichever hook comes next."""
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert asked(scene, call="call-1", process=gone.pid).returncode == 0
    assert asked(scene, call="call-2").returncode == 0
    assert asked(scene, call="call-2", event="after").returncode == 0
    (unknown,) = (each for each in scene.owner.entries() if each["call_id"] == "call-1")
    assert (unknown["status"], unknown["context"]["outcome"]) == ("pending", "unknown")
