"""An outbox, and a gateway that takes what it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.slow_gateway import SlowGateway

from toolgate._call import new_entry
from toolgate._models import Entry
from toolgate._outbox.delivery import Delivery, Result
from toolgate._outbox.outbox import Outbox
from toolgate._outbox.sender import Sender
from toolgate._outbox.store import Row, Target
from toolgate._settings import Place
from toolgate.errors import GatewayUnavailable

OURS = Target("https://gateway.example", "f" * 64, "production", "org-1")
TAKEN = Result(taken=True)
DOWN = Delivery((), GatewayUnavailable("down"))

Reply = Delivery | Callable[[Sequence[tuple[str, str]]], Delivery]


class Taker:
    """Takes entries until told otherwise; each reply is for one request."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.usual: Reply = lambda entries: Delivery([TAKEN] * len(entries))
        self.sent: list[list[tuple[str, str]]] = []
        self.taken: list[str] = []

    def deliver(self, entries: Sequence[tuple[str, str]], seconds: float) -> Delivery:
        self.sent.append(list(entries))
        reply = self.replies.pop(0) if self.replies else self.usual
        delivery = reply(entries) if callable(reply) else reply
        self.taken += [key for (key, _), each in zip(entries, delivery.results, strict=False) if each.taken]
        return delivery

    def close(self) -> None:
        pass


def entry(action: str = "a.b", **context: object) -> Entry:
    return new_entry(action=action, agent_id="agent-1", status="success", context={"n": 1, **context})  # type: ignore[dict-item]  # JSON


def waiting(outbox: Outbox) -> list[Row]:
    rows = [*outbox.batch(old=False, after=0, limit=100), *outbox.batch(old=True, after=0, limit=100)]
    return sorted(rows, key=lambda row: row.id)


def die(outbox: Outbox) -> None:
    """Leave what a killed process leaves: a file whose lock is free."""
    assert outbox._file_lock is not None
    outbox._file_lock.release()


@pytest.fixture
def taker() -> Taker:
    return Taker()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "outbox", rows=100)


@pytest.fixture
def make_outbox(place: Place) -> Iterator[Callable[..., Outbox]]:
    made: list[Outbox] = []

    def make(target: Target = OURS, **changes: object) -> Outbox:
        from dataclasses import replace

        made.append(Outbox(replace(place, **changes), target))  # type: ignore[arg-type]  # fields of a place
        return made[-1]

    yield make
    for outbox in made:
        outbox.close()


@pytest.fixture
def outbox(make_outbox: Callable[..., Outbox]) -> Outbox:
    return make_outbox()


@pytest.fixture
def make_sender(taker: Taker) -> Iterator[Callable[[Outbox], Sender]]:
    made: list[Sender] = []

    def make(outbox: Outbox) -> Sender:
        made.append(Sender(outbox, lambda: taker, 5.0))
        return made[-1]

    yield make
    for sender in made:
        sender.stop(10)


@pytest.fixture
def sender(make_sender: Callable[[Outbox], Sender], outbox: Outbox) -> Sender:
    return make_sender(outbox)


@pytest.fixture
def slow_gateway() -> Iterator[SlowGateway]:
    with SlowGateway() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
