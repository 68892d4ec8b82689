"""What stands before replicas in tests is no rubber stamp: every gateway gets requests, and a dead one none."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from support.balancer import Balancer
from support.waiting import until


class _Numbered(BaseHTTPRequestHandler):
    """Answers with its port and what it was sent; `/health/ready` by what the test says."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["content-length"]))
        self._say(200, b"%d:%b" % (self.server.server_address[1], sent))

    def do_GET(self) -> None:
        self._say(200 if getattr(self.server, "is_ready", True) else 503, b"")

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Numbered) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def three() -> Iterator[list[ThreadingHTTPServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(_server()) for _ in range(3)]


def _answered(client: httpx.Client, times: int) -> Counter[int]:
    counted = Counter[int]()
    for number in range(times):
        port, _, sent = client.post("/", content=b"%d" % number).text.partition(":")
        assert sent == str(number)
        counted[int(port)] += 1
    return counted


@pytest.mark.slow
def test_each_request_goes_to_a_random_gateway(three: list[ThreadingHTTPServer]) -> None:
    """Requests over one connection reach all three, and what is said goes there and back whole."""
    ports = [server.server_address[1] for server in three]
    with Balancer(ports) as balancer, httpx.Client(base_url=balancer.url) as client:
        assert set(_answered(client, 100)) == set(ports)


@pytest.mark.slow
def test_one_that_is_not_ready_gets_no_requests(three: list[ThreadingHTTPServer]) -> None:
    """By readiness, a gateway that calls itself not ready gets none; with the others gone it is still tried."""
    ports = [server.server_address[1] for server in three]
    with Balancer(ports, by_readiness=True) as balancer, httpx.Client(base_url=balancer.url) as client:
        vars(three[0])["is_ready"] = False
        until(lambda: ports[0] not in _answered(client, 30))
        assert set(_answered(client, 60)) == set(ports[1:])
        balancer.told(ports[:1])
        assert set(_answered(client, 3)) == set(ports[:1])
