"""The plugin itself, run by Node with a live gateway: it throws unless the hook says that a tool may run."""

from pathlib import Path
from typing import Any

import pytest
from support.frameworks.claude_code import variables
from support.frameworks.harness import Scene
from support.frameworks.opencode import plugin
from support.frameworks.opencode_host import host
from support.waiting import until

from toolgate_cli.hooks.files import render_plugin


def bash(call_id: str, command: str = "ls", **more: Any) -> dict[str, Any]:
    return {"tool": "bash", "callID": call_id, "args": {"command": command}, **more}


def entries(scene: Scene) -> dict[str, dict[str, Any]]:
    return {each["call_id"]: each for each in scene.owner.entries() if each["call_id"]}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The plugin, with bash allowed and write held."""
    path = tmp_path / "toolgate.js"
    actions = ["--tool-action", "bash=tools.Bash", "--tool-action", "write=tools.Write"]
    path.write_text(plugin("--hold-timeout", "60", *actions))
    return path


@pytest.mark.slow
def test_what_became_of_calls(scene: Scene, installed: Path) -> None:
    """Allowed ones run, others throw the reason; the log has how each ended, in which session, and what really ran."""
    found = host(
        installed,
        bash("call-1", ends={"changes": {"command": "rm -r /"}}),
        bash("call-2", ends={"metadata": {"exit": 3}}),
        bash("call-3", ends={"error": "no such shell"}),
        {"tool": "read", "callID": "call-4", "args": {"filePath": "/etc/hostname"}},
        {"tool": "my-bank_pay", "callID": "call-5", "args": {"name": "a"}},
        **variables(scene),
    )
    assert "ran" in found["call-1"]
    assert "'tools.read' is blocked" in found["call-4"]["thrown"]
    assert "'my-bank.pay' is blocked" in found["call-5"]["thrown"]
    logged = entries(scene)
    statuses = {call_id: each["status"] for call_id, each in logged.items()}
    assert statuses == {"call-1": "success", "call-2": "failed", "call-3": "failed"}
    assert logged["call-1"]["context"]["command"] == "rm -r /"
    assert logged["call-1"]["context"]["changed_after_asking"] is True
    assert logged["call-2"]["context"]["cwd"] == "/srv/project"
    assert "status 3" in logged["call-2"]["context"]["error"]["message"]
    assert "no such shell" in logged["call-3"]["context"]["error"]["message"]
    assert {each["run_id"] for each in scene.owner.entries()} == {"ses_1"}


def test_what_was_approved_is_what_runs(scene: Scene, installed: Path) -> None:
    """The object that OpenCode runs the tool with is changed in place: nothing of what the model wrote is left in it."""
    call = {"tool": "write", "callID": "call-1", "args": {"filePath": "/srv/a", "content": "theirs"}}

    def approve() -> None:
        (request,) = until(lambda: scene.owner.http.get("/api/approvals").json())
        scene.approve(request["id"], context={"filePath": "/srv/a", "content": "approved"})

    found = host(installed, call, meanwhile=approve, **variables(scene))
    assert found["call-1"]["ran"] == {"filePath": "/srv/a", "content": "approved"}
    assert entries(scene)["call-1"]["status"] == "success"
    assert "changed_after_asking" not in entries(scene)["call-1"]["context"]


def test_given_up_it_is_withdrawn(scene: Scene, installed: Path) -> None:
    """A held call that OpenCode's user gives up is withdrawn, and nobody can approve it any more."""
    call = {
        "tool": "write",
        "callID": "call-1",
        "args": {"filePath": "/srv/a", "content": "x"},
        "givenUp": True,
    }

    def held() -> None:
        until(lambda: scene.owner.http.get("/api/approvals").json())

    found = host(installed, call, meanwhile=held, **variables(scene))
    assert "SIGTERM" in found["call-1"]["thrown"]
    (request,) = scene.owner.http.get("/api/approvals", params={"status": "cancelled"}).json()
    assert request["context"]["content"] == "x"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, "could not be started"),
        ("exit 0", "status 0"),
        ("exit 1", "status 1"),
        ("kill -9 $$", "status null"),
        ("echo fine; exit 0", "status 0"),
        ("echo '{}'", "status 0"),
        ("echo null", "status 0"),
        ("echo '\"allowed\"'", "status 0"),
        ("echo 'A warning.'; echo '{\"toolgate\": \"allowed\"}'", "status 0"),
        ('echo \'{"toolgate": "allowed"}\'; exit 1', "status 1"),
        ("echo no such thing >&2; exit 2", "no such thing"),
        ("exec sleep 60", "time limit"),
    ],
)
def test_whatever_is_no_yes_throws(tmp_path: Path, script: str | None, why: str) -> None:
    """A hook that is gone, ends otherwise, says something else or nothing in time has no tool run."""
    command = tmp_path / "toolgate"
    if script is not None:
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    path = tmp_path / "plugin.js"
    path.write_text(render_plugin(str(command), [], -9))
    assert why in host(path, bash("call-1"))["call-1"]["thrown"]


def test_a_yes_lets_it_run(tmp_path: Path) -> None:
    """The trap of the test before: with the one right answer the same plugin throws nothing."""
    command, path = tmp_path / "toolgate", tmp_path / "plugin.js"
    command.write_text('#!/bin/sh\necho \'{"toolgate": "allowed", "arguments": null}\'\n')
    command.chmod(0o755)
    path.write_text(render_plugin(str(command), [], 50))
    assert host(path, bash("call-1"))["call-1"]["ran"] == {"command": "ls"}
