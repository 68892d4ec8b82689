"""What a plain function returns before it has run is followed to its end."""

from __future__ import annotations

import asyncio
import functools
import gc
import types
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from toolgate import ActionDenied, Guard, acting_as

BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}


def ended(gateway: Any) -> list[str]:
    return [each["status"] for each in gateway.logs]


def behind(function: Any) -> Any:
    """A plain function that gives what the other one does."""
    return lambda: function()  # noqa: PLW0108 - it is what hides the other's kind


async def fine() -> str:
    await asyncio.sleep(0)
    return "done"


async def failing() -> str:
    await asyncio.sleep(0)
    raise LookupError("mine")


class Query:
    """Something to await that can do more, as the queries of some databases."""

    def __init__(self, inner: Any = fine) -> None:
        self._inner = inner
        self.table = "users"

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner().__await__()


@types.coroutine
def of_old() -> Generator[Any, Any, str]:
    yield
    return "done"


@pytest.mark.parametrize("make", [fine, Query, of_old], ids=["coroutine", "query", "of old"])
async def test_awaitables(guard: Guard, gateway: Any, make: Any) -> None:
    """It is recorded when it has been awaited to its end, and not before."""
    tool = guard.guarded("a.b")(behind(make))
    later = tool()
    assert ended(gateway) == []
    assert await later == "done"
    assert ended(gateway) == ["success"]


@pytest.mark.parametrize("make", [failing, lambda: Query(failing)], ids=["coroutine", "query"])
async def test_awaitables_that_fail(guard: Guard, gateway: Any, make: Any) -> None:
    """What it raises goes through, after a failed entry."""
    with pytest.raises(LookupError, match="mine"):
        await guard.guarded("a.b")(behind(make))()
    assert ended(gateway) == ["failed"]


async def test_blocked(guard: Guard, gateway: Any) -> None:
    """The check is at the call, as the function's own part runs there."""
    gateway.check = [BLOCKED]
    with pytest.raises(ActionDenied):
        guard.guarded("a.b")(lambda: pytest.fail("the tool ran"))()


async def test_what_else_an_awaitable_can_do(guard: Guard, gateway: Any) -> None:
    """An object that can be awaited keeps its class and attributes; dropped, it is recorded as returned."""
    query = guard.guarded("a.b")(behind(Query))()
    assert isinstance(query, Query)
    assert query.table == "users"
    del query
    gc.collect()
    assert await guard.aflush()
    assert ended(gateway) == ["success"]


async def test_a_coroutine_that_is_dropped(guard: Guard, gateway: Any) -> None:
    """A coroutine nobody awaits is recorded as failed, under the tool's own name."""
    tool = guard.guarded("a.b")(behind(fine))
    with pytest.warns(RuntimeWarning, match="coroutine 'fine' was never awaited"):  # noqa: PT031 - where it is dropped
        tool()
        gc.collect()
    assert await guard.aflush()
    assert ended(gateway) == ["failed"]
    assert (
        gateway.logs[0]["context"]["error"]["message"]
        == "the iterator or coroutine was discarded before it ended"
    )


@pytest.mark.parametrize(
    ("inner", "status"), [(fine, "success"), (failing, "failed")], ids=["fine", "failing"]
)
async def test_futures(guard: Guard, gateway: Any, inner: Any, status: str) -> None:
    """A task or future is handed on as it is, and recorded once it is done."""
    made: list[asyncio.Future[str]] = []

    @guard.guarded("a.b")
    def tool() -> asyncio.Future[str]:
        made.append(asyncio.ensure_future(inner()))
        return made[0]

    future = tool()
    assert future is made[0]
    await asyncio.wait([future])
    assert (future.exception() is None) == (status == "success")
    assert await guard.aflush()
    assert ended(gateway) == [status]


async def test_a_cancelled_future(guard: Guard, gateway: Any) -> None:
    """One that is cancelled is recorded as failed."""
    loop = asyncio.get_running_loop()
    future = guard.guarded("a.b")(loop.create_future)()
    future.cancel()
    await asyncio.sleep(0)
    assert await guard.aflush()
    assert [each["context"]["error"]["type"] for each in gateway.logs] == ["CancelledError"]


async def test_a_failure_nobody_looks_at(guard: Guard) -> None:
    """That it is recorded does not keep asyncio from telling of it."""
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: told.append(about["message"]))
    future = guard.guarded("a.b")(loop.create_future)()
    future.set_exception(LookupError("mine"))
    await asyncio.sleep(0)
    del future
    gc.collect()
    assert told == ["Future exception was never retrieved"]


def test_generators(guard: Guard, gateway: Any) -> None:
    """A generator that has not begun is recorded at its end; one that has is somebody else's."""

    def numbers() -> Iterator[int]:
        yield from (1, 2)

    assert list(guard.guarded("a.b")(behind(numbers))()) == [1, 2]
    assert gateway.logs[0]["context"]["items"] == 2
    begun = numbers()
    next(begun)
    assert guard.guarded("a.b")(lambda: begun)() is begun
    assert "items" not in gateway.logs[1]["context"]


async def test_async_generators(guard: Guard, gateway: Any) -> None:
    """As the synchronous ones."""

    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    assert [item async for item in guard.guarded("a.b")(behind(numbers))()] == [1, 2]
    assert gateway.logs[0]["context"]["items"] == 2


async def test_a_decorator_that_hides_the_coroutine_function(guard: Guard, gateway: Any) -> None:
    """Also below a decorator that knows nothing of coroutines the tool is recorded when it has run."""

    def passing(function: Any) -> Any:
        @functools.wraps(function)
        def passed(*args: Any) -> Any:
            return function(*args)

        return passed

    @guard.guarded("a.b")
    @passing
    async def tool(n: int) -> int:
        await asyncio.sleep(0)
        return n

    with acting_as("caller"):
        later = tool(3)
    assert await later == 3
    assert [(each["status"], each["agent_id"], each["context"]["n"]) for each in gateway.logs] == [
        ("success", "caller", 3)
    ]
