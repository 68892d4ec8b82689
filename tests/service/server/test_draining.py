"""A gateway that gets SIGTERM drains: it still responds for a while, and sends clients to other gateways."""

import math
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.console import Reader
from support.crowd import meanwhile
from support.gateway import Owner
from support.serving import Serving
from support.waiting import until
from support.wire import GONE, Wire

SECONDS = 15
#: longer than any of these tests takes
FOR_EVER = "60"


@pytest.fixture
def leaving(home: Path, kept: dict[str, str]) -> Iterator[Serving]:
    """A gateway whose pause lasts longer than a test."""
    extra = kept | {"TOOLGATE_DRAIN_SECONDS": FOR_EVER}
    with Serving(home, "--plan", "enterprise", extra=extra) as gateway:
        yield gateway.listening()


def test_everything_is_answered_and_everybody_sent_elsewhere(leaving: Serving) -> None:
    """After SIGTERM the gateway is not ready, answers all the same, and closes each connection with its answer."""
    with Owner(leaving.url) as owner, Wire.of(owner) as wire, ThreadPoolExecutor(1) as pool:
        agent = owner.agent()
        owner.permit(agent, "files.delete", requires_approval=True)
        owner.permit(agent, "files.read")
        approval = wire.check(agent, "files.delete").json()["approval_id"]
        with Wire.of(owner) as waiting:
            poll = pool.submit(waiting.send, "GET", f"/sdk/approvals/{approval}?wait=60")
            leaving.process.send_signal(signal.SIGTERM)
            until(lambda: wire.send("GET", "/health/ready").status == 503)
            # Nobody is kept waiting for what another gateway can tell.
            assert poll.result(SECONDS).json()["status"] == "pending"
        answers = [
            wire.check(agent, "files.read"),
            wire.log(agent, "files.read"),
            wire.send("GET", "/api/agents"),
            wire.send("GET", "/health"),
        ]
        assert [answer.status for answer in answers] == [200] * 4
        assert [answer.headers.get_all("Connection") for answer in answers] == [["close"]] * 4  # type: ignore[attr-defined]  # an HTTPMessage
        ready = wire.send("GET", "/health/ready")
        assert (ready.status, ready.json()["detail"]) == (503, "shutting down")
        assert leaving.process.poll() is None


def test_an_open_page_is_told_to_come_again(leaving: Serving) -> None:
    """An event stream of the console ends as soon as the gateway is about to, and not with it."""
    with Owner(leaving.url) as owner, Reader.of(leaving.url, owner.email) as reader:
        with reader.http.stream("GET", "/console/approvals/events?environment=production") as answer:
            assert answer.status_code == 200
            leaving.process.send_signal(signal.SIGTERM)
            assert answer.read().startswith(b"retry: ")
        assert leaving.process.poll() is None


def test_a_second_signal_ends_the_pause(leaving: Serving) -> None:
    """Whoever does not want to wait for the pause sends SIGTERM again, and the end is as orderly."""
    leaving.process.send_signal(signal.SIGTERM)
    with Wire(leaving.url, "no key") as wire:
        until(lambda: wire.send("GET", "/health/ready").status == 503)
    assert leaving.ended_by(signal.SIGTERM, SECONDS) == 0
    assert leaving.complaint == ""


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("pause", ["1", pytest.param("3", marks=pytest.mark.slow)])
def test_no_request_fails_while_the_gateway_drains(
    home: Path, kept: dict[str, str], pause: str, workers: str
) -> None:
    """Amid requests on kept connections and on new ones, SIGTERM: every request of the pause is answered, and every
    acknowledged entry is there afterwards."""
    acknowledged: list[str] = []
    sent = threading.Semaphore(0)
    pause_ends = math.inf

    def log(wire: Wire, agent: str) -> None:
        answer = wire.log(agent, "amid.all")
        assert answer.status == 200, answer.raw
        acknowledged.append(answer.json()["id"])

    def check(wire: Wire, agent: str) -> None:
        assert wire.allowed(agent, "amid.all")

    extra = kept | {"TOOLGATE_DRAIN_SECONDS": pause, "TOOLGATE_WORKERS": workers}
    with Serving(home, "--plan", "enterprise", extra=extra) as gateway, ExitStack() as stack:
        owner = stack.enter_context(Owner(gateway.listening().url))
        agent = owner.agent()
        owner.permit(agent, "amid.all")

        def keeping(act: Callable[[Wire, str], None]) -> None:
            with Wire.of(owner) as wire:
                while True:
                    act(wire, agent)
                    sent.release()

        def coming_anew(act: Callable[[Wire, str], None]) -> None:
            while True:
                with Wire.of(owner) as wire:
                    act(wire, agent)
                sent.release()

        def until_closed(work: Callable[..., None], act: Callable[..., None]) -> None:
            # A connection that begins when the port is closed may be reset.
            with pytest.raises(GONE):
                work(act)
            assert time.monotonic() > pause_ends

        works = [
            lambda _, work=work, act=act: until_closed(work, act)
            for work in (keeping, coming_anew)
            for act in (log, check)
        ]
        with meanwhile(works):
            for _ in range(50):
                assert sent.acquire(timeout=SECONDS)
            pause_ends = time.monotonic() + float(pause)
            assert gateway.ended_by(signal.SIGTERM, SECONDS) == 0
        assert gateway.complaint == ""
    with Serving(home, extra=kept) as again, Wire(again.listening().url, owner.key, owner.token) as wire:
        assert {entry["id"] for entry in wire.entries("amid.all")} >= set(acknowledged)


CHECKED = b'{"agent_id": "nobody", "action": "a"}'


def _question(key: str) -> bytes:
    head = (
        f"POST /sdk/check HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\nContent-Length: {len(CHECKED)}\r\n\r\n"
    )
    return head.encode() + CHECKED


def _connect(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=SECONDS)


def _answer(client: socket.socket) -> str:
    """Return all that comes until the other side closes."""
    with client, client.makefile("rb") as file:
        return file.read().decode()


def test_what_has_begun_to_arrive_is_answered(home: Path, kept: dict[str, str]) -> None:
    """Half a head and half a body at SIGTERM are answered once they are whole; an idle connection just ends."""
    with Serving(home, extra=kept) as gateway, Owner(gateway.listening().url) as owner:
        question = _question(owner.key)
        idle, head, body = (_connect(gateway.url) for _ in range(3))
        idle.sendall(question)
        received = b""
        while not received.endswith(b"}"):
            # The head and the body of an answer may arrive apart.
            part = idle.recv(65536)
            assert part, received
            received += part
        assert received.startswith(b"HTTP/1.1 200 ")
        head.sendall(question[:20])
        body.sendall(question[:-5])
        # They lie at the gateway by now: what one client sends later is answered later.
        with Wire.of(owner) as wire:
            assert wire.send("GET", "/health").status == 200
        gateway.process.send_signal(signal.SIGTERM)
        assert _answer(idle) == ""
        for client, rest in ((head, question[20:]), (body, question[-5:])):
            client.sendall(rest)
            answer = _answer(client)
            assert answer.startswith("HTTP/1.1 200 ")
            assert "\r\nconnection: close\r\n" in answer
        assert gateway.process.wait(SECONDS) == 0
    assert gateway.complaint == ""
