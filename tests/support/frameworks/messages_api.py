"""Anthropic's Messages API on this machine: the model is scripted, the client and the agent's loop are real.

The model keeps no place in its script: what it says next is told by the history it is sent. So conversations may go on
beside one another, be asked for again, or be taken up in another process.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from support.frameworks.harness import Call
from support.frameworks.messages_wire import Shape, blocks, error, events, joined, unanswered

__all__ = ["MessagesAPI", "Read", "Script"]


@dataclass(frozen=True, slots=True)
class Read:
    """What the model read of a call.

    Attributes:
        text: the texts of the result.
        is_error: whether it was told as an error.
    """

    text: str
    is_error: bool


@dataclass
class Script:
    """What the model does in the conversations that begin with some words.

    Attributes:
        told: the words; they stand in the first message of the user's.
        turns: the calls it makes, turn by turn, each under the name by which the framework offers the tool; then it
            says "done". Turns may be added as a conversation goes on.
        read: what it read of calls, by id.
        histories: what it was sent, as roles and blocks, in order.
    """

    told: str
    turns: list[Sequence[Call]]
    read: dict[str, Read] = field(default_factory=dict)
    histories: list[list[tuple[str, list[Shape]]]] = field(default_factory=list)

    def take(self, history: list[tuple[str, list[Shape]]], tools: Sequence[Shape]) -> list[Shape]:
        """Read a history, and say the next thing: the first turn whose calls were not made in it."""
        for role, said in history:
            for each in said:
                if role == "user" and each["type"] == "tool_result":
                    text = " ".join(
                        one["text"] for one in blocks(each.get("content")) if one["type"] == "text"
                    )
                    self.read[each["tool_use_id"]] = Read(text, bool(each.get("is_error")))
        self.histories.append(history)
        made = {each["id"] for _, said in history for each in said if each["type"] == "tool_use"}
        turn = next((calls for calls in self.turns if not made.intersection(one.id for one in calls)), ())
        # Asked on the side, as for a title of the conversation, it is offered no tools.
        if not turn or not tools:
            return [{"type": "text", "text": "done"}]
        return [
            {"type": "tool_use", "id": one.id, "name": one.tool, "input": dict(one.arguments)} for one in turn
        ]


@dataclass
class _Held:
    """A conversation that the server keeps: what was said so far, and the tools that were offered."""

    messages: list[Shape]
    tools: Sequence[Shape]


class MessagesAPI:
    """Serves `POST /v1/messages`, streamed or not, in a `with` block.

    Attributes:
        url: to be given as the base URL.
        streams: whether it answers requests for a stream; otherwise it refuses them, as some proxies do.
        requests: the bodies it was sent, in order.
    """

    def __init__(self, *turns: Sequence[Call], streams: bool = True) -> None:
        self.streams = streams
        self.requests: list[dict[str, Any]] = []
        self._scripts = [Script("", list(turns))]
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def read(self) -> dict[str, Read]:
        """What was read of calls in all conversations, by id."""
        with self._lock:
            return {call_id: read for script in self._scripts for call_id, read in script.read.items()}

    def script(self, told: str, *turns: Sequence[Call]) -> Script:
        """Say what the model does in conversations that begin with these words; the longest that fit count."""
        script = Script(told, list(turns))
        with self._lock:
            self._scripts.append(script)
        return script

    def say(self, *turns: Sequence[Call]) -> None:
        """Add turns to all conversations that no other script is for."""
        with self._lock:
            self._scripts[0].turns.extend(turns)

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and body of the answer to a request, as if it had not asked for a stream."""
        with self._lock:
            self.requests.append(body)
            thread = body.get("thread") or {}
            held = self._held.get(thread.get("previous_message_id", ""), _Held([], []))
            if thread.get("type") == "continue" and not held.messages:
                return 404, error("not_found_error", "no such thread", error_code="thread_not_found")
            messages = [*held.messages, *body["messages"]]
            tools = body.get("tools") or held.tools
            history = joined(messages)
            if missing := unanswered(history):
                why = f"tool_use ids without tool_result blocks immediately after: {', '.join(missing)}"
                return 400, error("invalid_request_error", why)
            content = self._script_for(history).take(history, tools)
            calls = any(each["type"] == "tool_use" for each in content)
            message = {
                "id": f"msg_{len(self.requests)}",
                "type": "message",
                "role": "assistant",
                "model": body["model"],
                "content": content,
                "stop_reason": "tool_use" if calls else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 5, "output_tokens": 5},
            }
            if thread:
                self._held[str(message["id"])] = _Held(
                    [*messages, {"role": "assistant", "content": content}], tools
                )
            return 200, message

    def _script_for(self, history: list[tuple[str, list[Shape]]]) -> Script:
        first = next(said for role, said in history if role == "user")
        told = " ".join(each["text"] for each in first if each["type"] == "text")
        return max((each for each in self._scripts if each.told in told), key=lambda each: len(each.told))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: MessagesAPI

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = self.path.partition("?")[0]
        if path == "/v1/messages/count_tokens":
            return self._send(200, "application/json", b'{"input_tokens": 10}')
        if path != "/v1/messages":
            return self._nothing_here()
        if body.get("stream") and not self.api.streams:
            return self._nothing_here()
        status, said = self.api.answer(body)
        if status == 200 and body.get("stream"):
            return self._send(200, "text/event-stream", events(said))
        return self._send(status, "application/json", json.dumps(said).encode())

    def do_GET(self) -> None:
        self._nothing_here()

    def do_HEAD(self) -> None:
        self._send(200, "application/json", b"")

    def _nothing_here(self) -> None:
        self._send(404, "application/json", json.dumps(error("not_found_error", "nothing is here")).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""
