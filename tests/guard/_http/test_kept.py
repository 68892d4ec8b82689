"""Which connections are kept for the next request, and which are closed."""

from __future__ import annotations

import threading
import time
from typing import Any

from toolgate._http.transport import Request, Wire

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_a_peer_that_hangs_up_between(peer: Any) -> None:
    """A kept connection that the gateway has closed meanwhile costs no call."""
    hung_up = threading.Semaphore(0)

    def once(connection: Any) -> None:
        connection.sendall(OK)
        connection.close()
        hung_up.release()

    server, wire = peer(once), Wire("httpx", None, time.monotonic)
    for _ in range(3):
        assert wire.send(Request("GET", server.url, {}), 5).body == b"ok"
        assert hung_up.acquire(timeout=5)
    assert len(server.requests) == 3
    wire.close()
