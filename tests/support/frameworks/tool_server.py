"""A server of tools that speaks MCP over HTTP, as little of it as a client needs: the tools run in this process."""

import inspect
import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_TYPES = {int: "integer", str: "string"}


class ToolServer:
    """Serves functions in a `with` block.

    Attributes:
        url: its address.
    """

    def __init__(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        self._tools = tools
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"served": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"

    def answer(self, method: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a request."""
        if method == "initialize":
            return {
                "protocolVersion": given["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "calls itself something else", "version": "1"},
            }
        if method == "tools/list":
            return {"tools": [_listed(name, tool) for name, tool in self._tools.items()]}
        if method == "tools/call":
            return self._called(given["name"], given["arguments"])
        return {}

    def _called(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            text, wrong = str(self._tools[name](**arguments)), False
        except Exception as error:
            text, wrong = str(error), True
        return {"content": [{"type": "text", "text": text}], "isError": wrong}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _listed(name: str, tool: Callable[..., Any]) -> dict[str, Any]:
    given = inspect.signature(tool, eval_str=True).parameters
    schema = {
        "type": "object",
        "properties": {each: {"type": _TYPES[one.annotation]} for each, one in given.items()},
        "required": list(given),
    }
    return {"name": name, "description": tool.__doc__, "inputSchema": schema}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: ToolServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in asked:
            return self._send(202, b"")
        result = self.served.answer(asked["method"], asked.get("params") or {})
        return self._send(200, json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode())

    def do_GET(self) -> None:
        self._send(405, b"")

    def do_DELETE(self) -> None:
        self._send(200, b"")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""
