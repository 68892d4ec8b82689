"""With a key in the environment the examples use a real model: here one of OpenAI's interface, on this machine."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.gateway import Owner
from support.readme import ROOT

PAYING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_invoice", {"number": "INV-7"}),
    ("pay_invoice", {"number": "INV-7", "amount": 120.5}),
)
EXAMPLES: dict[str, tuple[str, tuple[str, ...], tuple[tuple[str, dict[str, Any]], ...], dict[str, str]]] = {
    "langchain": ("treasurer.py", ("kept.db",), PAYING, {"LANGCHAIN_MODEL": "openai:gpt-5-mini"}),
    "pydantic_ai": ("accountant.py", ("kept.json",), PAYING, {"PYDANTIC_AI_MODEL": "openai:gpt-5-mini"}),
    "openai_agents": ("treasurer.py", (), (("pay", {"to": "Eve", "amount": 40}),), {}),
}


class Model(BaseHTTPRequestHandler):
    """Makes the next call of its script for each result it is shown, then says "done"."""

    script: tuple[tuple[str, dict[str, Any]], ...] = ()
    asked: list[tuple[str, str | None]]

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, self.headers["Authorization"]))
        chat = self.path.endswith("/chat/completions")
        shown = given["messages"] if chat else given["input"]
        shown = [] if isinstance(shown, str) else shown
        said = sum(each.get("role") == "tool" or each.get("type") == "function_call_output" for each in shown)
        call = self.script[said] if said < len(self.script) else None
        answer = json.dumps((_completion if chat else _response)(call, said)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


def _completion(call: tuple[str, dict[str, Any]] | None, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "done"}
    if call is not None:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        made = [{"id": f"call-{number}", "type": "function", "function": function}]
        message = {"role": "assistant", "content": None, "tool_calls": made}
    choice = {"index": 0, "message": message, "finish_reason": "stop" if call is None else "tool_calls"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


def _response(call: tuple[str, dict[str, Any]] | None, number: int) -> dict[str, Any]:
    text = {"type": "output_text", "text": "done", "annotations": []}
    item: dict[str, Any] = {"type": "message", "id": "m-1", "role": "assistant", "content": [text]}
    if call is not None:
        item = {"type": "function_call", "id": f"fc-{number}", "call_id": f"call-{number}", "name": call[0]}
        item["arguments"] = json.dumps(call[1])
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **details}
    kept = {"id": "r-1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    options = {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
    return {**kept, **options, "output": [{**item, "status": "completed"}], "usage": usage}


@pytest.fixture
def model() -> Iterator[tuple[type[Model], str]]:
    kind = type("OneModel", (Model,), {"asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield kind, f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_with_a_key(
    owner: Owner, tmp_path: Path, model: tuple[type[Model], str], example: str
) -> None:
    """The model is asked with the key, its payment waits, and the next process carries it out once it is approved."""
    script, arguments, calls, named = EXAMPLES[example]
    kind, address = model
    kind.script = calls
    agent_id = owner.agent()
    for action, _ in calls:
        owner.permit(agent_id, f"tools.{action}", requires_approval=action.startswith("pay"))
    environment = {
        **os.environ,
        **named,
        "OPENAI_API_KEY": "a key",
        "OPENAI_BASE_URL": address,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "TOOLGATE_URL": owner.url,
        "TOOLGATE_API_KEY": owner.key,
        "TOOLGATE_AGENT_ID": agent_id,
        "PAYMENTS_FILE": str(tmp_path / "payments.txt"),
    }

    def run(answer: str = "") -> str:
        command = [sys.executable, str(ROOT / "examples" / example / script), *arguments]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            input=answer,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "waits for a person" in run()
    [request] = owner.http.get("/api/approvals").json()
    assert owner.http.post(f"/api/approvals/{request['id']}/approve", json={}).status_code == 200
    assert run("\n").endswith("done\n")
    assert len(kind.asked) == len(calls) + 1
    assert {key for _, key in kind.asked} == {"Bearer a key"}
    logged = [(each["action"], each["status"]) for each in owner.entries()]
    assert logged.count((f"tools.{calls[-1][0]}", "success")) == 1
