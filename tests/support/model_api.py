"""A chat model's HTTP API on this machine: the provider is faked, the client library and the agent's loop are real."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("refund", {"order_id": "1001", "amount": 40}),
    ("refund", {"order_id": "1002", "amount": 250}),
    ("delete_file", {"name": "customers-2019.csv"}),
    ("send_mail", {"to": "ada@example.test", "subject": "Your refund", "body": "40.00 are on their way."}),
)


class _ChatCompletions(BaseHTTPRequestHandler):
    """Answers `POST …/chat/completions` with the next tool call, then with a last word."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        done = [message for message in asked["messages"] if message["role"] == "tool"]
        message: dict[str, Any] = {"role": "assistant", "content": "Two of four things are done."}
        if len(done) < len(CALLS):
            name, arguments = CALLS[len(done)]
            function = {"name": name, "arguments": json.dumps(arguments)}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"call_{len(done)}", "type": "function", "function": function}],
            }
        answer = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": asked["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def model_api() -> Iterator[str]:
    """Serve the API and give its base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ChatCompletions)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
