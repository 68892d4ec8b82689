"""A payments API in a few lines: what the agent calls. It knows nothing of permissions."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Payments(BaseHTTPRequestHandler):
    """Tells what the account holds, and writes refunds into a file."""

    def do_GET(self) -> None:
        """Whatever is read."""
        self._say(200, {"holds": 1200})

    def do_POST(self) -> None:
        """A refund."""
        refund = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with Path(os.environ.get("REFUNDS_FILE", "refunds.txt")).open("a") as refunds:
            refunds.write(f"{refund['charge']} {refund['amount']}\n")
        self._say(201, {"refunded": refund["amount"]})

    def do_DELETE(self) -> None:
        """The end of the account."""
        self._say(200, {"closed": True})

    def _say(self, status: int, said: object) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[str]:
    """Serve the API on this machine.

    Yields:
        Its address.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), Payments)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
