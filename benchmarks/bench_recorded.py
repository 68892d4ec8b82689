"""The SDK's pieces: the wrapper around a tool, its arguments as context, and what is written down of a call."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import wrapt
from pytest_benchmark.fixture import BenchmarkFixture

from toolgate import Guard
from toolgate._call import new_entry
from toolgate._capture.context import Rules, capture
from toolgate._capture.serializer import Fingerprinter
from toolgate._models import Entry, Intent
from toolgate._outbox.outbox import Outbox
from toolgate._outbox.store import Target
from toolgate._settings import Place

KEY = "ak_" + "a" * 37
ANSWER = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
ARGUMENTS = {"charge_id": "ch_1", "amount": 12.5, "note": "late", "password": "hunter22"}
#: more than any run writes, so that a full outbox is not what is timed
ROOM = 10_000_000


def refund(charge_id: str, amount: float) -> tuple[str, float]:
    """A tool that does nothing."""
    return charge_id, amount


def answer(request: httpx.Request) -> httpx.Response:
    """A gateway that allows and takes everything."""
    if request.url.path == "/sdk/check":
        return httpx.Response(200, json=ANSWER)
    taken = [{"status": 200}] * request.content.count(b'"idempotency_key"')
    return httpx.Response(200, json={"results": taken})


@wrapt.decorator
def unguarded(
    tool: Callable[..., Any], _instance: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A wrapper that does nothing."""
    return tool(*args, **kwargs)


@pytest.fixture(params=[False, True], ids=["buffered", "full_sync"])
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outbox]:
    """An outbox in a file; with full sync each entry is on the disk."""
    place = Place(tmp_path / "outbox", full_sync=request.param, rows=ROOM, size=ROOM * 1000)
    found = Outbox(place, Target("https://gateway.example", "f" * 64, "production", "org-1"))
    yield found
    found.close()


def entry() -> Entry:
    """Return a log entry of a refund."""
    return new_entry(
        action="stripe.refund", agent_id="a", status="success", context={"charge_id": "ch_1", "amount": 12.5}
    )


def test_call(benchmark: BenchmarkFixture) -> None:
    """Call the tool itself."""
    assert benchmark(refund, "ch_1", 12.5) == ("ch_1", 12.5)


def test_wrapper_that_does_nothing(benchmark: BenchmarkFixture) -> None:
    """Call it through a decorator of wrapt, which is what `guarded` is made of."""
    assert benchmark(unguarded(refund), "ch_1", 12.5) == ("ch_1", 12.5)


def test_wrapper(benchmark: BenchmarkFixture) -> None:
    """Call it guarded, where the gateway is a function of this process and nothing goes to the disk."""
    transport = httpx.MockTransport(answer)
    with Guard("http://127.0.0.1:9", KEY, "agent", transport=transport, outbox="memory") as guard:
        assert benchmark(guard.guarded("stripe.refund")(refund), "ch_1", 12.5) == ("ch_1", 12.5)
        assert guard.flush(30)


def test_capture(benchmark: BenchmarkFixture) -> None:
    """Make four arguments a context, one of them hidden."""
    context = benchmark(capture, ARGUMENTS, Rules(), Fingerprinter(KEY)).context
    assert context["amount"] == 12.5
    assert "hunter22" not in str(context)


def test_outbox_write(benchmark: BenchmarkFixture, outbox: Outbox) -> None:
    """Write down that a tool is about to run."""
    intent = benchmark(lambda: outbox.intend(entry()))
    assert isinstance(intent, Intent)


def test_outbox_write_of_a_call(benchmark: BenchmarkFixture, outbox: Outbox) -> None:
    """Write down that a tool is about to run, then what became of it."""

    def call() -> None:
        one = entry()
        outbox.finish(one, outbox.intend(one))

    benchmark(call)
    assert outbox.count() > 0
