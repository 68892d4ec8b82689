"""Clients that take their time: a request has so long to arrive, and then its connection is somebody else's."""

import time
from collections.abc import Iterator
from functools import partial
from threading import Thread

import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.raw import Raw, whole
from support.shapes import problem
from support.waiting import until

HOST = b"Host: gateway\r\n"
SECONDS = 1
LATE = problem(408, f"The request did not arrive within {SECONDS} seconds")


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway that waits a second."""
    env = {"TOOLGATE_REQUEST_TIMEOUT_SECONDS": str(SECONDS)}
    with LiveGateway(tmp_path_factory.mktemp("impatient"), env=env) as gateway:
        yield gateway


@pytest.fixture
def hurried(impatient: LiveGateway) -> Iterator[Owner]:
    """An organization on it."""
    with Owner(impatient.url) as owner:
        yield owner


def drip(raw: Raw, drop: bytes) -> Thread:
    """Write drop after drop until the gateway hangs up."""

    def dripping() -> None:
        until(lambda: not _written(raw, drop))

    thread = Thread(target=dripping, daemon=True)
    thread.start()
    return thread


def _written(raw: Raw, drop: bytes) -> bool:
    try:
        raw.socket.sendall(drop)
    except OSError:
        return False
    return True


def credentials(owner: Owner) -> bytes:
    return b"X-API-Key: %b\r\nAuthorization: Bearer %b\r\n" % (owner.key.encode(), owner.token.encode())


def test_a_body_has_its_time(hurried: Owner) -> None:
    """A body that never comes, or comes drop by drop, is 408 on every road; nothing is done, and the connection ends."""

    def late(path: bytes, *, dripping: bool) -> None:
        with Raw(hurried.url) as raw:
            head = b"POST " + path + b" HTTP/1.1\r\n" + HOST + credentials(hurried)
            began = time.monotonic()
            raw.send(head + b"Content-Length: 90000\r\n\r\n")
            drops = drip(raw, b" ") if dripping else None
            answer = whole(raw.answer())
            assert SECONDS <= time.monotonic() - began < SECONDS + 10
            assert (answer.status, answer.json(), answer.headers["connection"]) == (408, LATE, "close")
            assert raw.ended()
            if drops is not None:
                drops.join()

    paths = (b"/sdk/check", b"/sdk/log", b"/api/agents", b"/api/organization/regenerate-key")
    together(*[partial(late, path, dripping=dripping) for path in paths for dripping in (False, True)])
    assert hurried.http.get("/api/organization").json()["api_key"] == hurried.key
    assert hurried.http.get("/api/agents").json() == []


def test_a_late_body_is_judged_after_the_key(hurried: Owner) -> None:
    """Who has no key hears of that, as with every other body."""
    with Raw(hurried.url) as raw:
        raw.send(b"POST /sdk/check HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\n")
        assert whole(raw.answer()).json()["detail"] == "Missing API key"


def test_an_idle_connection_is_closed(hurried: Owner) -> None:
    """Nothing, half a head and nothing after an answer: the connection ends without another word."""

    def idle(first: bytes) -> None:
        with Raw(hurried.url) as raw:
            raw.send(first)
            if first.endswith(b"\r\n\r\n"):
                assert whole(raw.answer()).status == 200
            assert raw.ended()

    whole_request = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
    beginnings = (b"", b"GET /health HTTP/1.1\r\nHo", whole_request, b"\r\n")
    together(*[partial(idle, first) for first in beginnings])


def test_a_dripping_head_is_cut_off(hurried: Owner) -> None:
    """Drops that keep a connection busy do not keep it open, not even after a good request."""

    def dripping(beginning: bytes, drop: bytes) -> None:
        with Raw(hurried.url) as raw:
            assert whole(raw.send(b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n").answer()).status == 200
            raw.send(beginning)
            drip(raw, drop).join(timeout=30)
            assert raw.ended()

    header = b"GET /health HTTP/1.1\r\nX-Long: "
    together(partial(dripping, b"", b"\r\n"), partial(dripping, header, b"x"))


@pytest.mark.slow
def test_a_rest_that_nobody_needs_does_not_hold_the_connection(hurried: Owner) -> None:
    """An answer that needed no body was given at once; the body that drips after it is cut off."""
    with Raw(hurried.url) as raw:
        raw.send(b"POST /nowhere HTTP/1.1\r\n" + HOST + b"Content-Length: 90000\r\n\r\n")
        assert whole(raw.answer()).status == 404
        drip(raw, b" ").join(timeout=30)
        assert raw.ended()


def test_a_long_poll_is_not_cut_off(hurried: Owner) -> None:
    """Whoever waits for the gateway is not slow: the poll outlives the time-out, and its connection goes on."""
    bot = hurried.agent()
    hurried.permit(bot, "held", requires_approval=True)
    approval = hurried.check(bot, "held").json()["approval_id"].encode()
    with Raw(hurried.url) as raw:
        target = b"/sdk/approvals/" + approval + b"?wait=%d" % (4 * SECONDS)
        began = time.monotonic()
        raw.send(b"GET " + target + b" HTTP/1.1\r\n" + HOST + credentials(hurried) + b"\r\n")
        # The beginning of the next request meanwhile is no reason either.
        raw.send(b"GET /hea")
        answer = whole(raw.answer())
        assert (answer.status, answer.json()["status"]) == (200, "pending")
        assert time.monotonic() - began >= 4 * SECONDS


@pytest.mark.slow
def test_a_queued_body_has_its_time_after_its_turn(hurried: Owner) -> None:
    """A request sent behind a long poll is not late because the gateway did not read on."""
    bot = hurried.agent()
    hurried.permit(bot, "held", requires_approval=True)
    approval = hurried.check(bot, "held").json()["approval_id"].encode()
    body = b'{"agent_id": "x", "action": "y"}' + b" " * 200_000
    with Raw(hurried.url) as raw:
        target = b"/sdk/approvals/" + approval + b"?wait=%d" % (3 * SECONDS)
        raw.send(b"GET " + target + b" HTTP/1.1\r\n" + HOST + credentials(hurried) + b"\r\n")
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        raw.send(b"POST /sdk/check HTTP/1.1\r\n" + HOST + credentials(hurried) + length + body)
        assert whole(raw.answer()).json()["status"] == "pending"
        assert whole(raw.answer()).json()["allowed"] is False


def test_a_body_in_pieces_within_the_time_is_whole(hurried: Owner) -> None:
    """Slow is not late."""
    body = b'{"name": "in pieces"}'
    with Raw(hurried.url) as raw:
        raw.send(b"POST /api/agents HTTP/1.1\r\n" + HOST + credentials(hurried))
        raw.send(b"Content-Length: %d\r\n\r\n" % len(body))
        raw.send(*[body[at : at + 1] for at in range(len(body))])
        assert whole(raw.answer()).status == 201


def test_who_never_reads_is_hung_up_on(hurried: Owner) -> None:
    """A client that asks and asks and fetches no answer loses its connection."""
    with Raw(hurried.url) as raw:
        # A large answer: a few of them are more than the machine keeps for a client.
        request = b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
        drip(raw, request).join(timeout=30)
        until(lambda: not _written(raw, request))


def test_too_many_connections_are_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Beyond the limit 503 with Retry-After before anything is asked; who is in goes on, and who leaves makes room."""
    env = {"TOOLGATE_MAX_CONNECTIONS": "3"}
    with LiveGateway(tmp_path_factory.mktemp("crowded"), env=env) as gateway:
        request = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
        inside = [Raw(gateway.url) for _ in range(3)]
        for raw in inside:
            assert whole(raw.send(request).answer()).status == 200
        with Raw(gateway.url) as raw:
            answer = whole(raw.send(request).answer())
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert "too many connections" in answer.json()["detail"]
            assert raw.ended()
        assert whole(inside[0].send(request).answer()).status == 200
        inside[1].socket.close()

        def let_in() -> bool:
            with Raw(gateway.url) as raw:
                return raw.send(request).answer().status == 200

        assert until(let_in)
        for raw in inside:
            raw.socket.close()


def test_after_a_check_there_is_time_for_another(hurried: Owner) -> None:
    """A connection that was answered at once stays as long as any other; then it ends, or its next request is late."""
    agent = hurried.agent()
    body = b'{"agent_id": "%b", "action": "pay"}' % agent.encode()
    head = (
        b"POST /sdk/check HTTP/1.1\r\n"
        + HOST
        + credentials(hurried)
        + b"Content-Length: %d\r\n\r\n" % len(body)
    )
    with Raw(hurried.url) as idle, Raw(hurried.url) as late:
        for raw in (idle, late):
            assert raw.send(head + body).answer().status == 200
            assert raw.send(head + body).answer().status == 200
        assert (late.send(head, body[:-1]).answer().status, late.ended()) == (408, True)
        assert idle.ended()
