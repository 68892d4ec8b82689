"""The real OpenCode with the installed plugin: `make test-coding-agents` brings it and runs these."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from support.frameworks.claude_code import variables
from support.frameworks.harness import Call, Scene
from support.frameworks.messages_api import MessagesAPI
from support.frameworks.opencode import OpenCodeCLI, plugin
from support.frameworks.opencode_example import run_example
from support.frameworks.tool_server import ToolServer
from support.gateway import Owner
from support.waiting import until

from toolgate_cli.hooks.files import render_plugin

_pause = threading.Event()


def bash(command: str, call_id: str) -> Call:
    return Call("bash", {"command": command, "description": "Do it"}, call_id)


def entries(scene: Scene) -> list[tuple[str, str]]:
    return sorted((each["action"], each["status"]) for each in scene.owner.entries())


def held(scene: Scene) -> dict[str, Any]:
    """The request that waits, once there is one: the program takes long to start, and the gateway is not asked all the time."""

    def asked() -> list[dict[str, Any]]:
        _pause.wait(0.5)
        found: list[dict[str, Any]] = scene.owner.http.get("/api/approvals").json()
        return found

    (request,) = until(asked, seconds=90)
    return request


def test_its_own_tools(scene: Scene, program: str, tmp_path: Path) -> None:
    """What is allowed runs, what is not granted does not, and the log says how each ended."""
    calls = [
        bash("echo ran > done.txt", "call-1"),
        bash("exit 3", "call-2"),
        Call("read", {"filePath": "/etc/hostname"}, "call-3"),
        Call("bash", {"cmd": "touch no.txt"}, "call-5"),
    ]
    with MessagesAPI(calls) as api:
        opencode = OpenCodeCLI(program, tmp_path, api.url, variables(scene))
        opencode.install(plugin("--on-hold", "notify_model"))
        opencode.run()
        read = api.read
    assert (opencode.project / "done.txt").read_text() == "ran\n"
    assert "'tools.read' is blocked" in read["call-3"].text
    found = {each["call_id"]: each for each in scene.owner.entries() if each["call_id"]}
    assert {call_id: each["status"] for call_id, each in found.items()} == {
        "call-1": "success", "call-2": "failed", "call-5": "failed",
    }  # fmt: skip
    assert found["call-1"]["context"]["cwd"] == str(opencode.project)
    assert "status 3" in found["call-2"]["context"]["error"]["message"]
    assert len({each["run_id"] for each in scene.owner.entries()}) == 1


def test_tools_of_a_server(scene: Scene, program: str, tmp_path: Path) -> None:
    """A tool of an MCP server's has the server's name before its own, and one that fails is logged as failed."""

    def pay(name: str) -> str:
        """Pay it."""
        return f"paid {name}"

    def refund(name: str) -> str:
        """Give it back."""
        raise ValueError(f"no {name}")

    calls = [Call("bank_pay", {"name": "a"}, "call-1"), Call("bank_refund", {"name": "b"}, "call-2")]
    with MessagesAPI(calls) as api, ToolServer({"pay": pay, "refund": refund}) as tools:
        config = {"mcp": {"bank": {"type": "remote", "url": tools.url}}}
        opencode = OpenCodeCLI(program, tmp_path, api.url, variables(scene), config)
        opencode.install(plugin("--on-hold", "notify_model"))
        opencode.run()
        assert set(api.read) == {"call-1", "call-2"}
    assert entries(scene) == [("bank.pay", "success"), ("bank.refund", "failed")]


def test_of_a_subagent(scene: Scene, program: str, tmp_path: Path) -> None:
    """A subagent's calls are asked about, as the agent that stands for its kind."""
    other = scene.owner.agent("explorer")
    scene.owner.permit(other, "tools.bash")
    with MessagesAPI() as api:
        api.script(
            "go",
            [
                Call(
                    "task",
                    {"description": "s", "prompt": "look around", "subagent_type": "general"},
                    "call-1",
                )
            ],
        )
        api.script("look around", [bash("touch sub.txt", "call-2")])
        opencode = OpenCodeCLI(program, tmp_path, api.url, variables(scene))
        opencode.install(plugin("--on-hold", "notify_model", "--subagent", f"general={other}"))
        opencode.run()
    assert (opencode.project / "sub.txt").exists()
    found = {each["action"]: each for each in scene.owner.entries()}
    assert found["tools.bash"]["agent_id"] == other
    assert found["tools.task"]["agent_id"] == scene.agent_id


def test_held_and_changed(scene: Scene, program: str, tmp_path: Path) -> None:
    """What the person approved is what runs, in place of what the model wrote."""
    call = Call("write", {"filePath": str(tmp_path / "project" / "a.txt"), "content": "theirs"}, "call-1")
    with MessagesAPI([call]) as api:
        opencode = OpenCodeCLI(program, tmp_path, api.url, variables(scene))
        opencode.install(plugin("--hold-timeout", "60"))
        with opencode.start() as process:
            request = held(scene)
            scene.approve(request["id"], context={**request["context"], "content": "approved"})
            process.communicate(timeout=120)
    assert (opencode.project / "a.txt").read_text() == "approved"
    (success,) = (each for each in scene.owner.entries() if each["status"] == "success")
    assert success["approval_id"]
    assert "changed_after_asking" not in success["context"]


OTHER = """
export const Other = async () => ({"tool.execute.before": async (_, {args}) => {args.command = "touch other.txt"}})
"""


def test_another_plugin_that_changes_the_command(scene: Scene, program: str, tmp_path: Path) -> None:
    """Another plugin that comes later is not asked about, and is found out in the log."""
    with MessagesAPI([bash("touch asked.txt", "call-1")]) as api:
        opencode = OpenCodeCLI(program, tmp_path, api.url, variables(scene))
        opencode.install(plugin("--on-hold", "notify_model"), ".opencode/plugins/a.js")
        opencode.install(OTHER, ".opencode/plugins/z.js")
        opencode.run()
    assert (opencode.project / "other.txt").exists()
    (entry,) = scene.owner.entries()
    assert entry["context"]["command"] == "touch other.txt"
    assert entry["context"]["changed_after_asking"] is True


@pytest.mark.parametrize(
    ("command", "limit"),
    [("/nowhere/toolgate", 60), ("/bin/false", 60), ("/bin/true", 60), ("/bin/yes", 1)],
)
def test_a_hook_that_cannot_answer_blocks(
    scene: Scene, program: str, tmp_path: Path, command: str, limit: int
) -> None:
    """It is gone, says nothing, something else, or no end: the tool does not run."""
    with MessagesAPI([bash("touch ran.txt", "call-1")]) as api:
        opencode = OpenCodeCLI(program, tmp_path, api.url, variables(scene))
        opencode.install(render_plugin(command, [], limit - 10))
        opencode.run()
    assert not (opencode.project / "ran.txt").exists()
    assert "Not done" in api.read["call-1"].text


@pytest.mark.parametrize(
    ("text", "words", "env", "runs"),
    [
        (None, ("--pure",), {}, True),
        (None, (), {"OPENCODE_PURE": "1"}, True),
        (None, (), {"OPENCODE_DISABLE_PROJECT_CONFIG": "1"}, True),
        (None, (), {"OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"}, False),
        ("}", (), {}, True),
    ],
)
def test_what_switches_it_off(
    scene: Scene,
    program: str,
    tmp_path: Path,
    text: str | None,
    words: tuple[str, ...],
    env: dict[str, str],
    runs: bool,
) -> None:
    """The traps are real: the tool runs unasked."""
    with MessagesAPI([bash("touch ran.txt", "call-1")]) as api:
        opencode = OpenCodeCLI(
            program, tmp_path, api.url, {**variables(scene), "TOOLGATE_API_KEY": "", **env}
        )
        opencode.install(text or plugin("--on-hold", "notify_model"))
        opencode.run(*words)
    assert (opencode.project / "ran.txt").exists() == runs


def test_of_the_user(scene: Scene, program: str, tmp_path: Path) -> None:
    """The user's plugin guards, and does so where the project's configuration is not read."""
    with MessagesAPI(
        [bash("touch ran.txt", "call-1"), Call("read", {"filePath": "/etc/hostname"}, "call-2")]
    ) as api:
        variable = {"OPENCODE_DISABLE_PROJECT_CONFIG": "1"}
        opencode = OpenCodeCLI(program, tmp_path, api.url, {**variables(scene), **variable})
        opencode.install(plugin("--on-hold", "notify_model"), "../home/.config/opencode/plugins/toolgate.js")
        opencode.run()
        assert "'tools.read' is blocked" in api.read["call-2"].text
    assert (opencode.project / "ran.txt").exists()


def test_given_up_while_it_is_held(scene: Scene, program: str, tmp_path: Path) -> None:
    """Ended at the terminal while it waits, the request is withdrawn, and nothing runs."""
    call: Any = Call("write", {"filePath": str(tmp_path / "project" / "a.txt"), "content": "x"}, "call-1")
    with MessagesAPI([call]) as api:
        opencode = OpenCodeCLI(program, tmp_path, api.url, variables(scene))
        opencode.install(plugin("--hold-timeout", "60"))
        with opencode.start() as process:
            request = held(scene)
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=120)

    def withdrawn() -> bool:
        _pause.wait(0.5)
        return scene.status(request["id"]) == "cancelled"

    until(withdrawn, seconds=30)
    assert not (opencode.project / "a.txt").exists()


def test_the_example(owner: Owner, program: str, tmp_path: Path) -> None:
    """examples/opencode, with its settings and its scripted model: the approver's edit is what runs."""
    edits = {"command": "rm -r build/tmp"}
    output = run_example(owner, tmp_path, [Path(program).parent], "approve", edits)
    assert output.splitlines()[-1] == "left of build: nothing in it"
