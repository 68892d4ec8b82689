"""The real Claude Code, asking a server of this machine: where it would run a tool unasked, it does not."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.frameworks.claude_cli import ClaudeCLI, allowing
from support.frameworks.harness import Call, Scene
from support.frameworks.messages_api import MessagesAPI
from support.hook_server import OWN, ServedHook

from toolgate_cli.hooks.claude_code import SECRET_VARIABLE, add_hooks, http_hook

TOOLS = ["--tools", "Bash,Read,Write", *allowing("Bash", "Read", "Write")]


def settings(port: int) -> dict[str, Any]:
    """What is installed into empty settings."""
    return add_hooks({}, http_hook(port), 60)


@pytest.mark.slow
def test_its_own_tools(scene: Scene, tmp_path: Path) -> None:
    """What is granted runs and is logged, what is not does not; Claude Code itself knows no key of the gateway's."""
    calls = [
        Call("Bash", {"command": "env > env.txt", "description": "Do it"}, "call-1"),
        Call("Read", {"file_path": "/etc/hostname"}, "call-2"),
    ]
    with ServedHook(scene, "--on-hold", "tell") as hook, MessagesAPI(calls) as api:
        claude = ClaudeCLI(tmp_path, api.url, settings(hook.port), {SECRET_VARIABLE: OWN})
        claude.run("go", *TOOLS)
        assert "'tools.Read' is blocked" in api.read["call-2"].text
        assert hook.end() == ""
    assert "TOOLGATE_API_KEY" not in (claude.project / "env.txt").read_text()
    assert scene.logged() == [("Bash", "success"), ("Read", "denied")]


def test_what_cannot_be_asked_blocks(scene: Scene, tmp_path: Path) -> None:
    """No server listens, or Claude Code was started without the secret: no tool runs."""
    write = Call("Write", {"file_path": str(tmp_path / "project" / "b.txt"), "content": "x"}, "call-2")
    calls = [Call("Bash", {"command": "touch a.txt", "description": "Do it"}, "call-1"), write]
    with ServedHook(scene) as gone:
        gone.end()
    with ServedHook(scene) as hook, MessagesAPI(calls) as api:
        found = settings(gone.port)
        found["hooks"]["PreToolUse"] = [
            {**settings(port)["hooks"]["PreToolUse"][0], "matcher": tool}
            for tool, port in (("Bash", gone.port), ("Write", hook.port))
        ]
        claude = ClaudeCLI(tmp_path, api.url, found)
        claude.run("go", *TOOLS)
        assert "ECONNREFUSED" in api.read["call-1"].text
        assert "HTTP 401" in api.read["call-2"].text
    assert list(claude.project.iterdir()) == []


DENIAL = {"hookEventName": "PreToolUse", "permissionDecision": "deny"}
#: what a server may answer, by the name of the file that the command would make
FAILURES: dict[str, tuple[int, bytes]] = {
    "unauthorized": (401, b""),
    "missing": (404, b"{}"),
    "broken": (500, b"{}"),
    "moved": (302, b""),
    "moved-with-it": (307, b""),
    "page": (200, b"<html>fine</html>"),
    "list": (200, b"[]"),
    "half": (200, b'{"a": '),
    "of-another-kind": (200, b'{"hookSpecificOutput": 5}'),
    "of-another-event": (
        200,
        json.dumps({"hookSpecificOutput": {**DENIAL, "hookEventName": "Stop"}}).encode(),
    ),
}
HANGS_UP, NEVER = "hangs-up", "never"
#: what Claude Code takes for a yes, whatever `onFailure` says
YES: dict[str, tuple[int, bytes]] = {
    "empty": (200, b""),
    "nothing": (204, b""),
    "of-no-kind": (200, b'{"foo": 1}'),
}


class Scripted(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ended = threading.Event()
    redirected = False

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = told["tool_input"]["command"].removeprefix("touch ")
        if self.path == "/elsewhere":
            type(self).redirected = True
        if name in (HANGS_UP, NEVER):
            if name == NEVER:
                self.ended.wait(60)
            self.close_connection = True
            return
        status, body = {**FAILURES, **YES}[name]
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST  # noqa: N815 - http.server's name

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def scripted() -> Iterator[int]:
    """The port of a server that answers as the command it is asked about says."""
    Scripted.ended.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_port
        Scripted.ended.set()
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [True, False])
def test_what_a_server_may_answer(scripted: int, tmp_path: Path, blocks: bool) -> None:
    """The traps are real, and so is the cure: by `onFailure` every failure blocks, and without it none does.

    Two things are a yes all the same: an answer of nothing, and JSON that says nothing of a hook.
    """
    found = settings(scripted)
    (group,) = found["hooks"]["PreToolUse"]
    group["hooks"][0].update(timeout=2, onFailure="block" if blocks else "continue")
    failing = [*FAILURES, HANGS_UP, NEVER]
    calls = [
        Call("Bash", {"command": f"touch {name}", "description": "Do it"}, f"call-{name}")
        for name in (*failing, *YES)
    ]
    with MessagesAPI(calls) as api:
        claude = ClaudeCLI(tmp_path, api.url, {"hooks": {"PreToolUse": [group]}}, {SECRET_VARIABLE: OWN})
        claude.run("go", *TOOLS)
    ran = {path.name for path in claude.project.iterdir()}
    assert ran == (set(YES) if blocks else {*failing, *YES})
    assert not Scripted.redirected
