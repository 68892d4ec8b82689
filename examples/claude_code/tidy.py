"""Claude Code with the guard in its settings: it wants to remove a folder, and a person decides."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import claude_agent_sdk

CLAUDE = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
COMMAND = {"command": "rm -r build", "description": "Remove what was built"}


class ScriptedModel(BaseHTTPRequestHandler):
    """Scripted model that runs one command and repeats its result; it implements a part of Anthropic's Messages API."""

    def do_POST(self) -> None:
        """Answer with the next message; streams are refused, so the client asks again without."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("stream") or not self.path.startswith("/v1/messages?"):
            return self._send(404, {"type": "error", "error": {"type": "not_found_error", "message": "no"}})
        results = [
            block
            for message in asked["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        if results or not asked.get("tools"):
            said: dict[str, Any] = {
                "type": "text",
                "text": "It is done." if _worked(results) else _read(results),
            }
        else:
            said = {"type": "tool_use", "id": "toolu_tidy", "name": "Bash", "input": COMMAND}
        return self._send(
            200,
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": asked["model"],
                "content": [said],
                "stop_reason": "tool_use" if said["type"] == "tool_use" else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            },
        )

    def _send(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


def _worked(results: list[dict[str, Any]]) -> bool:
    return bool(results) and not results[-1].get("is_error")


def _read(results: list[dict[str, Any]]) -> str:
    told = results[-1].get("content", "") if results else "Nothing was done."
    return told if isinstance(told, str) else " ".join(each.get("text", "") for each in told)


def main(folder: Path) -> None:
    """Make something to remove, put the guard into the project's settings, and start Claude Code."""
    (folder / "build" / "tmp").mkdir(parents=True, exist_ok=True)
    toolgate = Path(sys.executable).with_name("toolgate")
    subprocess.run([toolgate, "hook", "install", "--hold-timeout", "120"], cwd=folder, check=True)  # noqa: S603 - the command of this installation
    environment = {**os.environ, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    model = ThreadingHTTPServer(("127.0.0.1", 0), ScriptedModel)
    model.daemon_threads = True
    threading.Thread(target=model.serve_forever, daemon=True).start()
    if not os.environ.get("ANTHROPIC_API_KEY"):
        environment["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{model.server_port}"
        environment["ANTHROPIC_API_KEY"] = "sk-scripted"
    prompt = "Remove the folder build, with the command rm -r build."
    # Claude Code itself lets commands run unasked here: whether they may is asked of the gateway.
    words = ["-p", prompt, "--allowedTools", "Bash", "--setting-sources", "project"]
    subprocess.run([CLAUDE, *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=True)  # noqa: S603 - the program of the wheel
    left = sorted(str(each.relative_to(folder)) for each in (folder / "build").rglob("*"))
    print(
        "left of build:", ", ".join(left) or ("nothing in it" if (folder / "build").exists() else "nothing")
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "work").absolute())
