"""Held calls, as the hook's process waits for a person or tells the model."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.forking import FORK_SERVER
from support.frameworks.claude_code import variables
from support.frameworks.harness import Scene
from support.waiting import until

BASH = {
    "session_id": "session-1",
    "cwd": "/srv/project",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "rm -r build", "timeout": 1000},
    "tool_use_id": "toolu_1",
}


def asked(scene: Scene, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    held = ["--tool-action", "Bash=tools.Write"]
    environment = {**os.environ, **variables(scene)}
    typed = json.dumps({**BASH, **more})
    return FORK_SERVER.run("hook", "claude-code", *held, *words, env=environment, typed=typed)


def edited(scene: Scene, **changes: Any) -> subprocess.CompletedProcess[str]:
    """Asked, held, and approved with something else in it."""
    with ThreadPoolExecutor() as pool:
        asking = pool.submit(asked, scene)
        (request,) = until(lambda: scene.owner.http.get("/api/approvals").json())
        scene.approve(request["id"], context={**request["context"], **changes})
        return asking.result(60)


def test_an_edit_changes_the_input_and_overrides_no_permission(scene: Scene) -> None:
    """The approver's command runs in place of the model's, and the user's own permissions still count.

    The log names the approval, and finds nothing changed that was not approved.
    """
    done = edited(scene, command="rm -r build/tmp", timeout=500)
    assert done.returncode == 0
    changed = {"command": "rm -r build/tmp", "timeout": 500}
    assert json.loads(done.stdout) == {
        "hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": changed}
    }
    assert asked(scene, hook_event_name="PostToolUse", tool_input=changed).returncode == 0
    assert scene.logged() == [("Write", "pending"), ("Write", "success")]
    (success,) = (each for each in scene.owner.entries() if each["status"] == "success")
    (newest, *_) = scene.owner.http.get("/api/approvals", params={"status": "consumed"}).json()
    assert success["approval_id"] == newest["id"]
    assert success["context"] == {**changed, "cwd": "/srv/project"}


def test_the_folder_cannot_be_edited(scene: Scene) -> None:
    """What is no argument cannot be changed: the call is refused, and does not run where it was not approved."""
    done = edited(scene, cwd="/srv/other")
    assert done.returncode == 2
    assert "'cwd'" in done.stderr


def test_told_it_goes_through_once_after_the_approval(scene: Scene) -> None:
    """Whoever tells names the approval; the same call under another id passes once, and not in another folder."""
    done = asked(scene, "--on-hold", "tell")
    (request,) = scene.owner.http.get("/api/approvals").json()
    assert done.returncode == 2
    assert request["id"] in json.loads(done.stdout)["hookSpecificOutput"]["permissionDecisionReason"]
    assert request["context"]["cwd"] == "/srv/project"
    scene.approve(request["id"])
    assert asked(scene, "--on-hold", "tell", tool_use_id="toolu_2", cwd="/").returncode == 2
    assert asked(scene, "--on-hold", "tell", tool_use_id="toolu_3").returncode == 0
    assert asked(scene, "--on-hold", "tell", tool_use_id="toolu_4").returncode == 2


def test_waited_in_vain_the_model_is_told_and_the_request_stays(scene: Scene) -> None:
    """When the time is over the tool does not run; approved later, the same call goes through."""
    done = asked(scene, "--hold-timeout", "0.2")
    (request,) = scene.owner.http.get("/api/approvals").json()
    assert done.returncode == 2
    assert request["id"] in done.stderr
    assert scene.status(request["id"]) == "pending"
    scene.approve(request["id"])
    assert asked(scene, "--hold-timeout", "0.2", tool_use_id="toolu_2").returncode == 0
