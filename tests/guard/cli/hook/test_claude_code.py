"""The real Claude Code with installed hooks: where it would run a tool unasked, it does not."""

from pathlib import Path
from typing import Any

import pytest
from support.frameworks.claude_cli import ClaudeCLI, allowing
from support.frameworks.claude_code import settings, variables
from support.frameworks.harness import Call, Scene
from support.frameworks.messages_api import MessagesAPI

TOOLS = ["--tools", "Bash,Read,Write"]


def bash(command: str, call_id: str) -> list[Call]:
    return [Call("Bash", {"command": command, "description": "Do it"}, call_id)]


def changed(found: dict[str, Any], **hook: Any) -> dict[str, Any]:
    """Installed settings, with something else in the hook that asks."""
    found["hooks"]["PreToolUse"][0]["hooks"][0].update(hook)
    return found


def test_its_own_tools(scene: Scene, tmp_path: Path) -> None:
    """A command runs and is logged with its folder, a failing one as failed; what is not granted does not run.

    And a yes of the gateway's overrides nothing: a file that its user has not allowed to be written is not.
    """
    scene.owner.permit(scene.agent_id, "files.write")
    with MessagesAPI(
        bash("echo ran > done.txt", "call-1"),
        bash("exit 3", "call-2"),
        [Call("Read", {"file_path": "/etc/hostname"}, "call-3")],
        [Call("Write", {"file_path": str(tmp_path / "out.txt"), "content": "x"}, "call-4")],
    ) as api:
        words = settings("--on-hold", "tell", "--tool-action", "Write=files.write")
        claude = ClaudeCLI(tmp_path, api.url, words, variables(scene))
        claude.run("go", *TOOLS, *allowing("Bash", "Read"))
        read = api.read
    assert (claude.project / "done.txt").read_text() == "ran\n"
    assert "'tools.Read' is blocked" in read["call-3"].text
    assert read["call-4"].is_error
    assert not (tmp_path / "out.txt").exists()
    logged = [each for each in scene.logged() if each[0] != "write"]
    assert logged == [("Bash", "failed"), ("Bash", "success"), ("Read", "denied")]
    (success,) = (each for each in scene.owner.entries() if each["status"] == "success")
    assert success["context"]["cwd"] == str(claude.project)
    assert success["context"]["command"] == "echo ran > done.txt"


def test_a_hook_that_cannot_answer_blocks(scene: Scene, tmp_path: Path) -> None:
    """The command is gone, or its time is over: by `onFailure`, which is installed, the tool does not run."""
    gone = changed(settings("--on-hold", "tell"), command=str(tmp_path / "gone"))
    slow = changed(settings("--hold-timeout", "60", "--tool-action", "Bash=tools.Write"), timeout=1)
    for number, each in enumerate((gone, slow)):
        with MessagesAPI(bash("touch ran.txt", f"call-{number}")) as api:
            claude = ClaudeCLI(tmp_path / str(number), api.url, each, variables(scene))
            claude.folder.mkdir()
            claude.run("go", *TOOLS, *allowing("Bash"))
            assert api.read[f"call-{number}"].is_error
        assert not (claude.project / "ran.txt").exists()


@pytest.mark.slow
def test_without_what_is_installed_it_would_run(scene: Scene, tmp_path: Path) -> None:
    """The trap is real: a hook that is gone, without `onFailure`, is no objection."""
    gone = changed(settings("--on-hold", "tell"), command=str(tmp_path / "gone"), onFailure="continue")
    with MessagesAPI(bash("touch ran.txt", "call-1")) as api:
        claude = ClaudeCLI(tmp_path, api.url, gone, variables(scene))
        claude.run("go", *TOOLS, *allowing("Bash"))
    assert (claude.project / "ran.txt").exists()


def test_another_hook_that_exchanges_the_command(scene: Scene, tmp_path: Path) -> None:
    """Another hook that exchanges the command is not asked about, and is found out in the log."""
    other = tmp_path / "other"
    said = '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"command": "touch other.txt"}}}'
    other.write_text(f"#!/bin/sh\necho '{said}'\n")
    other.chmod(0o755)
    found = settings("--on-hold", "tell")
    found["hooks"]["PreToolUse"].append({"hooks": [{"type": "command", "command": str(other)}]})
    with MessagesAPI(bash("touch asked.txt", "call-1")) as api:
        claude = ClaudeCLI(tmp_path, api.url, found, variables(scene))
        claude.run("go", *TOOLS, *allowing("Bash"))
    assert (claude.project / "other.txt").exists()
    assert scene.logged() == [("Bash", "success")]
    (entry,) = scene.owner.entries()
    assert entry["context"]["changed_after_asking"] is True
    assert entry["context"]["command"] == "touch other.txt"
