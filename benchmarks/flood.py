"""Latency of a valid client's checks while clients without a credential send the worst bodies found.

    python benchmarks/flood.py [--database-url URL] [--seconds 5] [--clients 8]

For each kind of request it prints how many a second the flood sent, p50 and p99 of the checks of one valid client before
and during the flood, and their ratio. The bar is a p99 of at most five times the p99 without the flood.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import cycle
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

SIZE = 246 * 1024
UNKNOWN_KEY = "ak_" + "0" * 37
#: an idle pause between two measurements, so that what one left behind does not disturb the next
SETTLE = 1.0


def filled(unit: bytes, size: int = SIZE) -> bytes:
    """Return a JSON object whose context is an array of `unit`."""
    head, tail = b'{"agent_id":"a","action":"b","context":{"a":[', b"]}}"
    count = (size - len(head) - len(tail)) // (len(unit) + 1)
    return head + b",".join([unit] * count) + tail


def bodies(size: int) -> Mapping[str, bytes]:
    """Return the bodies that cost a parser most."""
    names = b",".join(b'"%x":1' % number for number in range((size - 2) // 10))
    return {
        "numbers": filled(b"1e9", size),
        "long numbers": filled(b"9" * 400, size),
        "growing numbers": filled(b"1e400", size),
        "objects": filled(b'{"a":1}', size),
        "nested": filled(b"[" * 30 + b"]" * 30, size),
        "deep": b"[" * (size // 2) + b"]" * (size // 2),
        "members": b"{" + names + b"}",
        "same member": b"{" + b",".join([b'"a":1'] * ((size - 2) // 6)) + b"}",
        "escapes": filled(b'"' + b"\\u0041" * 1000 + b'"', size),
        "packed": gzip.compress(filled(b"1", 4 * size)),
    }


def requests(path: str, headers: Mapping[str, str], size: int) -> list[bytes]:
    """Return whole requests with these bodies."""
    found = []
    for kind, body in bodies(size).items():
        given = {"Host": "gateway", **headers, "Content-Length": str(len(body))}
        if kind == "packed":
            given["Content-Encoding"] = "gzip"
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        found.append(f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    return found


#: name of a flood, its path, its headers, the size of its bodies
FLOODS = (
    ("check, unknown key", "/sdk/check", {"X-API-Key": UNKNOWN_KEY}, SIZE),
    ("check, no key", "/sdk/check", {}, SIZE),
    ("check, small", "/sdk/check", {"X-API-Key": UNKNOWN_KEY}, 15 * 1024),
    ("logs, unknown key", "/sdk/logs", {"X-API-Key": UNKNOWN_KEY}, SIZE),
    ("agents, wrong token", "/api/agents", {"Authorization": "Bearer a.b.c"}, SIZE),
    ("login", "/auth/login", {}, SIZE),
    ("login, small", "/auth/login", {}, 15 * 1024),
    ("register, small", "/auth/register", {}, 15 * 1024),
    ("reset, small", "/auth/password-reset", {}, 15 * 1024),
    ("confirm, small", "/auth/password-reset/confirm", {}, 15 * 1024),
    ("invitation, small", "/auth/accept-invitation", {}, 15 * 1024),
)


def answered(connection: socket.socket) -> bytes:
    """Return one whole answer; empty if the gateway hung up."""
    answer = b""
    while True:
        head, ends, body = answer.partition(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head) if ends else None
        if found and len(body) >= int(found[1]):
            return answer
        part = connection.recv(65_536)
        if not part:
            return b""
        answer += part


def flood(port: int, prepared: list[bytes], sent: "Synchronized[int]") -> None:
    """Send requests as fast as they are answered, for ever."""
    os.nice(5)
    connection: socket.socket | None = None
    for request in cycle(prepared):
        try:
            if connection is None:
                connection = socket.create_connection(("127.0.0.1", port), 10)
            connection.sendall(request)
            answer = answered(connection)
            if not answer or b"connection: close" in answer.lower():
                connection.close()
                connection = None
        except OSError:
            connection = None
        with sent.get_lock():
            sent.value += 1


def checked(port: int, request: bytes, seconds: float) -> list[float]:
    """Send checks one after the other and return the milliseconds of each, sorted."""
    taken = []
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ends = time.perf_counter() + seconds
        while time.perf_counter() < ends:
            began = time.perf_counter()
            connection.sendall(request)
            answer = answered(connection)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"a check was not answered: {answer[:200]!r}")
            taken.append((time.perf_counter() - began) * 1000)
            # As fast as an agent may be; without a pause the client alone would fill a core.
            time.sleep(0.002)
    return sorted(taken)


def percentile(values: list[float], share: float) -> float:
    """Return a percentile of sorted values."""
    return values[min(len(values) - 1, int(len(values) * share))]


@contextmanager
def serving(database_url: str | None) -> Iterator[int]:
    """Serve a new gateway; yield its port."""
    with tempfile.TemporaryDirectory() as folder:
        url = database_url or f"sqlite:///{Path(folder) / 'toolgate.db'}"
        env = {
            **os.environ,
            "TOOLGATE_DATABASE_URL": url,
            "TOOLGATE_SECRET": "a secret for a benchmark, long enough",
        }
        env["TOOLGATE_DEFAULT_PLAN"] = "enterprise"
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port: int = taken.getsockname()[1]
        command = [sys.executable, "-m", "toolgate", "serve", "--port", str(port)]
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
        try:
            wait_for(port)
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def wait_for(port: int) -> None:
    """Return once the gateway is ready."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready") as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the gateway did not start")


def valid_check(port: int) -> bytes:
    """Register an organization and return a check that is allowed."""

    def call(method: str, path: str, body: Any = None, token: str = "") -> Any:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return json.loads(answer.read())

    email = f"ada{os.getpid()}@example.com"
    registration = {"email": email, "password": "correct horse battery", "organization_name": "Acme"}
    token = call("POST", "/auth/register", registration)["access_token"]
    key = call("GET", "/api/organization", token=token)["api_key"]
    agent = call("POST", "/api/agents", {"name": "bot"}, token)["id"]
    call("POST", f"/api/agents/{agent}/permissions", {"action": "a.b"}, token)
    body = json.dumps({"agent_id": agent, "action": "a.b", "context": {"amount": 1}}).encode()
    head = f"POST /sdk/check HTTP/1.1\r\nHost: gateway\r\nX-API-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def main() -> None:
    """Measure every flood."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    with serving(given.database_url) as port:
        check = valid_check(port)
        checked(port, check, 1)
        alone = checked(port, check, given.seconds)
        base = percentile(alone, 0.99)
        print(f"alone: p50 {percentile(alone, 0.5):.2f} ms, p99 {base:.2f} ms")
        for name, path, headers, size in FLOODS:
            if given.only not in name:
                continue
            prepared, sent = requests(path, headers, size), multiprocessing.Value("Q", 0)
            made = [
                multiprocessing.Process(target=flood, args=(port, prepared, sent))
                for _ in range(given.clients)
            ]
            for one in made:
                one.start()
            time.sleep(SETTLE)
            before, began = sent.value, time.perf_counter()
            taken = checked(port, check, given.seconds)
            rate = (sent.value - before) / (time.perf_counter() - began)
            for one in made:
                one.kill()
                one.join()
            p99 = percentile(taken, 0.99)
            print(
                f"{name:20} {rate:7.0f}/s   p50 {percentile(taken, 0.5):6.2f} ms   p99 {p99:7.2f} ms   "
                f"{p99 / base:5.1f} × alone   longest {taken[-1]:.0f} ms"
            )
            time.sleep(SETTLE)


if __name__ == "__main__":
    main()
