"""Which connections are kept for the next request, and which are closed."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import httpcore
import pytest

from toolgate._http.kept import Kept
from toolgate._http.transport import Request, Wire

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Connection:
    """Answers, or raises what it is told to."""

    def __init__(self, origin: object, *raises: BaseException) -> None:
        self.origin = origin
        self.raises = list(raises)
        self.expired = self.closed = False
        self.idle = True

    def handle_request(self, request: object) -> object:
        if self.raises:
            raise self.raises.pop()
        return SimpleNamespace(stream=SimpleNamespace(close=lambda: None))

    def can_handle_request(self, origin: object) -> bool:
        return origin == self.origin

    def has_expired(self) -> bool:
        return self.expired

    def is_idle(self) -> bool:
        return self.idle and not self.closed

    def close(self) -> None:
        self.closed = True


class Making:
    """Keeps what it makes; the next ones raise what is in `raises`."""

    def __init__(self) -> None:
        self.made: list[Connection] = []
        self.raises: list[BaseException] = []

    def __call__(self, origin: object) -> Connection:
        self.made.append(Connection(origin, *([self.raises.pop()] if self.raises else [])))
        return self.made[-1]


def request(origin: str = "here", scheme: bytes = b"http") -> Any:
    return SimpleNamespace(url=SimpleNamespace(scheme=scheme, origin=origin))


@pytest.fixture
def making() -> Making:
    return Making()


@pytest.fixture
def kept(making: Making) -> Kept:
    return Kept(httpcore, making, 2)


def together(kept: Kept, count: int) -> None:
    """So many requests at once."""
    for give_back in [kept.send(request())[1] for _ in range(count)]:
        give_back()


def test_one_after_the_other(kept: Kept, making: Making) -> None:
    """One connection serves them all."""
    for _ in range(3):
        together(kept, 1)
    assert len(making.made) == 1


def test_no_more_than_are_allowed_stay_idle(kept: Kept, making: Making) -> None:
    """Those beyond are closed when they are given back; the last one that was used serves next."""
    together(kept, 4)
    assert [each.closed for each in making.made] == [False, False, True, True]
    together(kept, 2)
    assert len(making.made) == 4


def test_one_that_expired_is_not_used(kept: Kept, making: Making) -> None:
    """It is closed, and another one made."""
    together(kept, 1)
    making.made[0].expired = True
    together(kept, 1)
    assert [each.closed for each in making.made] == [True, False]


def test_one_that_nobody_needs_any_more(kept: Kept, making: Making) -> None:
    """It is closed when it has expired, though others serve."""
    together(kept, 2)
    making.made[0].expired = True
    together(kept, 1)
    assert [each.closed for each in making.made] == [True, False]


def test_one_to_somebody_else(kept: Kept, making: Making) -> None:
    """It is never asked what another gateway is to be asked."""
    together(kept, 1)
    kept.send(request("there"))[1]()
    assert [each.origin for each in making.made] == ["here", "there"]
    assert making.made[0].closed


@pytest.mark.parametrize("error", [httpcore.ReadTimeout(), KeyboardInterrupt()])
def test_one_that_failed(kept: Kept, making: Making, error: BaseException) -> None:
    """It is closed, and what it raised goes through."""
    making.raises = [error]
    with pytest.raises(type(error)):
        kept.send(request())
    assert making.made[0].closed
    together(kept, 1)
    assert len(making.made) == 2


def test_one_whose_answer_was_not_read(kept: Kept, making: Making) -> None:
    """What is left of the answer would be taken for the next one's: it is closed."""
    _, give_back = kept.send(request())
    making.made[0].idle = False
    give_back()
    assert making.made[0].closed


def test_one_that_is_closed_in_the_very_moment(kept: Kept, making: Making) -> None:
    """Nothing was sent yet, so another one serves."""
    making.raises = [httpcore.ConnectionNotAvailable()]
    together(kept, 1)
    assert [each.closed for each in making.made] == [True, False]


def test_closing(kept: Kept, making: Making) -> None:
    """Those in use are closed as well, and what is given back later is not kept."""
    together(kept, 1)
    _, first = kept.send(request())
    _, second = kept.send(request())
    kept.close()
    assert [each.closed for each in making.made] == [True, True]
    first()
    second()
    _, late = kept.send(request())
    late()
    assert [each.closed for each in making.made] == [True, True, True]


def test_another_protocol(kept: Kept, making: Making) -> None:
    """Nothing is opened for it."""
    with pytest.raises(httpcore.UnsupportedProtocol, match="ftp"):
        kept.send(request(scheme=b"ftp"))
    assert making.made == []


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
