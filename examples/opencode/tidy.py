"""OpenCode with Toolgate's plugin: the model wants to remove a folder, and an approver decides."""

import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMMAND = "rm -r build"
MODEL = "anthropic/claude-sonnet-4-5"


class ScriptedModel(BaseHTTPRequestHandler):
    """Calls one tool, then repeats the result that it read; a small part of Anthropic's Messages API."""

    def do_POST(self) -> None:
        """Respond with the next message as a stream."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages = [each["content"] for each in request["messages"]]
        blocks = [block for content in messages if isinstance(content, list) for block in content]
        results = [block for block in blocks if block["type"] == "tool_result"]
        if results or not request.get("tools"):
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": _text(results)}
            reason = "end_turn"
        else:
            arguments = {"command": COMMAND, "description": "Remove what was built"}
            block = {"type": "tool_use", "id": "toolu_tidy", "name": "bash", "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            reason = "tool_use"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"]}
        started = {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        self._send(
            {"type": "message_start", "message": started},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": None},
                "usage": usage,
            },
            {"type": "message_stop"},
        )

    def _send(self, *events: dict[str, Any]) -> None:
        content = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _text(results: list[dict[str, Any]]) -> str:
    content = results[-1]["content"] if results else "Nothing was done."
    text = content if isinstance(content, str) else " ".join(each.get("text", "") for each in content)
    return text if "Not done" in text else "It is done."


def run_opencode(program: str, folder: Path) -> None:
    """Start OpenCode in the folder, with a scripted model if there is no API key."""
    environment = {**os.environ, "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    model = ThreadingHTTPServer(("127.0.0.1", 0), ScriptedModel)
    model.daemon_threads = True
    threading.Thread(target=model.serve_forever, daemon=True).start()
    if not os.environ.get("ANTHROPIC_API_KEY"):
        options = {"baseURL": f"http://127.0.0.1:{model.server_port}/v1", "apiKey": "sk-scripted"}
        settings = {"model": MODEL, "small_model": MODEL, "provider": {"anthropic": {"options": options}}}
        environment["OPENCODE_CONFIG_CONTENT"] = json.dumps(settings)
        environment["OPENCODE_DISABLE_MODELS_FETCH"] = "1"
    prompt = f"Remove the folder build, with the command {COMMAND}."
    command = [program, "run", prompt]
    subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=True)  # noqa: S603 - the user's


def run_one_call(folder: Path) -> None:
    """Call the plugin with Node, as OpenCode does."""
    node = shutil.which("node")
    if node is None:
        sys.exit("install OpenCode (https://opencode.ai), or Node for a call without it")
    plugin = folder / ".opencode" / "plugins" / "toolgate.js"
    command = [node, "--no-warnings", HERE / "one_call.mjs", plugin, COMMAND]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603 - the user's program


def main(folder: Path) -> None:
    """Make a folder to remove, install the plugin, and let OpenCode work."""
    (folder / "build" / "tmp").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "opencode.json", folder)
    toolgate = Path(sys.executable).with_name("toolgate")
    install = [toolgate, "hook", "install", "--for", "opencode", "--hold-timeout", "120"]
    subprocess.run(install, cwd=folder, check=True)  # noqa: S603 - the command of this installation
    # The project's plugin starts `toolgate` as found on PATH.
    os.environ["PATH"] = f"{toolgate.parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which("opencode")
    if program is None:
        run_one_call(folder)
    else:
        run_opencode(program, folder)
    left = sorted(str(each.relative_to(folder)) for each in (folder / "build").rglob("*"))
    nothing = "nothing in it" if (folder / "build").exists() else "nothing"
    print("left of build:", ", ".join(left) or nothing)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "work").absolute())
