"""The nginx of the Compose file: connections to the gateways are used again, and only ready gateways get requests."""

import http.client
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

import pytest
from support.debian import program
from support.ports import reserve_port
from support.postgres import dying_with
from support.readme import ROOT
from support.waiting import until

COMPOSE = ROOT / "service" / "deploy" / "compose"


class _Upstream:
    """A server that counts its connections and requests, and is ready or not, in a `with` block."""

    def __init__(self) -> None:
        self.is_ready = True
        self.connections = 0
        self.requests = 0
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            is_counted = False

            def do_GET(self) -> None:
                if self.path == "/health/ready":
                    self._answer(200 if upstream.is_ready else 503)
                    return
                if not self.is_counted:
                    self.is_counted = True
                    upstream.connections += 1
                upstream.requests += 1
                self._answer(200)

            def _answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Proxy:
    """The shipped script and configuration, on ports and in a folder of this test's own."""

    def __init__(self, folder: Path, upstreams: list[_Upstream]) -> None:
        folder.chmod(0o755)
        self.port = reserve_port()
        text = (COMPOSE / "nginx.conf").read_text()
        text = text.replace("listen 8080", f"listen 127.0.0.1:{self.port}").replace("/tmp/", f"{folder}/")
        text = text.replace("worker_processes auto", "worker_processes 1")
        if os.getuid() == 0:
            text = f"user root;\n{text}"
        configuration = folder / "nginx.conf"
        configuration.write_text(text)
        nginx = program("nginx", "nginx-light")
        environment = {
            "PATH": f"{Path(nginx).parent}:{os.environ['PATH']}",
            "GATEWAYS": " ".join(f"127.0.0.1:{upstream.port}" for upstream in upstreams),
            "UPSTREAMS": str(folder / "gateways.conf"),
            "NGINX_CONF": str(configuration),
        }
        with (folder / "said").open("wb") as said:
            self._process = subprocess.Popen(
                ["sh", COMPOSE / "follow-ready.sh"],
                env=environment,
                stdout=said,
                stderr=said,
                start_new_session=True,
                preexec_fn=dying_with(os.getpid(), signal.SIGKILL),  # noqa: PLW1509 - it takes no lock that a thread might hold
            )
        self.upstreams = folder / "gateways.conf"
        until(self._answers)

    def _answers(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self.get() == 200
        return False

    def get(self) -> int:
        """Send one request on a connection of its own, as most agents do, and return the status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/anything")
            return connection.getresponse().status
        finally:
            connection.close()

    def stop(self) -> int:
        """End it as Docker does."""
        self._process.send_signal(signal.SIGQUIT)
        return self._process.wait(timeout=30)

    def kill(self) -> None:
        """End whatever is left."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=30)


@pytest.fixture
def upstreams() -> Iterator[list[_Upstream]]:
    with ExitStack() as stack:
        yield [stack.enter_context(_Upstream()) for _ in range(2)]


@pytest.fixture
def proxy(tmp_path: Path, upstreams: list[_Upstream]) -> Iterator[_Proxy]:
    program("wget", "wget")
    proxy = _Proxy(tmp_path, upstreams)
    try:
        yield proxy
    finally:
        proxy.kill()


def test_connections_to_the_gateways_are_used_again(proxy: _Proxy, upstreams: list[_Upstream]) -> None:
    before = sum(upstream.requests for upstream in upstreams)
    for _ in range(100):
        assert proxy.get() == 200
    assert sum(upstream.requests for upstream in upstreams) == before + 100
    assert sum(upstream.connections for upstream in upstreams) <= 6


def test_only_ready_gateways_get_requests(proxy: _Proxy, upstreams: list[_Upstream]) -> None:
    """A gateway that drains gets nothing new, and requests again once it is ready."""
    draining, other = upstreams
    draining.is_ready = False
    until(lambda: str(draining.port) not in proxy.upstreams.read_text())
    # The workers of before the reload take no new connections once one of the new workers has answered alone.
    until(lambda: _all_to(other, proxy))
    before = draining.requests
    for _ in range(50):
        assert proxy.get() == 200
    assert draining.requests == before
    draining.is_ready = True
    until(lambda: proxy.get() == 200 and draining.requests > before)


def _all_to(upstream: _Upstream, proxy: _Proxy) -> bool:
    before = upstream.requests
    for _ in range(50):
        assert proxy.get() == 200
    return upstream.requests == before + 50


def test_without_a_ready_gateway_its_own_answer_is_passed_on(
    proxy: _Proxy, upstreams: list[_Upstream]
) -> None:
    listed = proxy.upstreams.read_text()
    for upstream in upstreams:
        upstream.is_ready = False
    for _ in range(20):
        assert proxy.get() == 200
    assert proxy.upstreams.read_text() in {listed, *(f"{line}\n" for line in listed.splitlines())}


def test_it_ends_gracefully(proxy: _Proxy) -> None:
    assert proxy.stop() == 0
