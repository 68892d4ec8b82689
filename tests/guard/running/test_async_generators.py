"""Guarded asynchronous generators do what bare ones do, and end in exactly one entry."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import logging
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolgate import ActionDenied, Guard, acting_as

BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}


class Stop(Exception):
    """Ends a generator that takes everything else."""


Steps = list[str]
STEPS = st.lists(
    st.sampled_from(["yield", "catch", "cleanup", "raise", "return", "wait", "stop"]), max_size=6
)
RESUME = st.one_of(
    st.just(("next",)),
    st.tuples(st.just("send"), st.integers(0, 3) | st.none()),
    st.tuples(
        st.just("throw"),
        st.sampled_from([ValueError, GeneratorExit, StopAsyncIteration, asyncio.CancelledError, Stop]),
    ),
    st.just(("close",)),
)


async def body(steps: Steps, began: Callable[[bool], object] = bool) -> AsyncGenerator[Any, Any]:
    """An asynchronous generator that does what the steps say."""
    began(True)
    got: list[Any] = []
    for number, step in enumerate(steps):
        if step == "yield":
            got.append((yield (number, got[-1:])))
        elif step == "catch":
            try:
                got.append((yield number))
            except GeneratorExit:
                # One that goes on after this is of no use to anybody any more: see the stubborn one below.
                return
            except BaseException as error:
                got.append(type(error).__name__)
        elif step == "cleanup":
            try:
                yield number
            finally:
                await asyncio.sleep(0)
                got.append("cleaned")
        elif step == "wait":
            await asyncio.sleep(0)
        elif step == "raise":
            raise LookupError(number)
        elif step == "stop":
            raise StopAsyncIteration(number)
        else:
            return


async def outcome(act: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return "value", await act()
    except BaseException as error:
        return "raised", chain(error)


def chain(error: BaseException | None) -> Any:
    if error is None:
        return None
    return type(error).__name__, error.args, chain(error.__cause__), chain(error.__context__)


async def resumed(generator: AsyncGenerator[Any, Any], how: tuple[Any, ...]) -> Any:
    if how[0] == "next":
        return await outcome(lambda: anext(generator))
    if how[0] == "send":
        return await outcome(lambda: generator.asend(how[1]))
    if how[0] == "throw":
        return await outcome(lambda: generator.athrow(how[1]("thrown")))
    return await outcome(generator.aclose)


def ended_well(play: tuple[Any, ...], seen: Any) -> bool:
    """Whether the play that ended a generator did so without an error of the generator's."""
    if seen[0] == "value":
        return True
    asked = play in [("close",), ("throw", GeneratorExit)]
    kind = seen[1][0]
    return kind == "StopAsyncIteration" or (asked and kind == "GeneratorExit")


@given(steps=STEPS, plays=st.lists(RESUME, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_play_goes_as_with_a_bare_one(
    guard: Guard, gateway: Any, steps: Steps, plays: list[tuple[Any, ...]]
) -> None:
    """anext, asend, athrow and aclose give the same values and exceptions; what began ends in exactly one entry."""
    gateway.forget()
    bare_runs: list[bool] = []
    runs: list[bool] = []

    async def play_all() -> list[tuple[str, int]]:
        bare = body(steps, bare_runs.append)
        guarded = guard.guarded("a.b", ignore={"began"})(body)(steps, runs.append)
        items, status = 0, None
        for play in [*plays, *[("close",)] * (len(steps) + 1)]:
            expected = await resumed(bare, play)
            assert await resumed(guarded, play) == expected
            assert runs == bare_runs
            items += bool(runs) and bare.ag_frame is not None
            if bare.ag_frame is None and status is None:
                status = "success" if ended_well(play, expected) else "failed"
            assert (guarded.ag_frame is None) == (bare.ag_frame is None)
        assert await guard.aflush()
        assert status is not None
        return [(status, items)] if runs else []

    expected = asyncio.run(play_all())
    assert len(gateway.checks) == len(runs)
    assert [(each["status"], each["context"]["items"]) for each in gateway.logs] == expected


async def test_a_stubborn_one(guard: Guard, gateway: Any) -> None:
    """A generator that goes on when it is closed is an error to whoever closes it, and recorded when it is dropped."""

    @guard.guarded("a.b")
    async def tool() -> AsyncIterator[int]:
        with contextlib.suppress(GeneratorExit):
            yield 1
        yield 2

    made = tool()
    assert await anext(made) == 1
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        await made.aclose()
    del made
    gc.collect()
    await asyncio.sleep(0)
    assert await guard.aflush()
    assert [(each["status"], each["context"]["items"]) for each in gateway.logs] == [("success", 2)]


async def test_the_check_is_before_the_first_item(guard: Guard, gateway: Any) -> None:
    """Calling asks nothing; a refused generator ends with the refusal, and nothing of it has run."""

    @guard.guarded("a.b")
    async def tool() -> AsyncIterator[int]:
        pytest.fail("the tool ran")
        yield 1

    gateway.check = [BLOCKED]
    refused = tool()
    assert gateway.requests == []
    with pytest.raises(ActionDenied, match="no permission"):
        await anext(refused)
    assert [item async for item in refused] == []
    assert [each["status"] for each in gateway.logs] == ["denied"]


async def test_a_wrong_call_fails_where_it_is_written(guard: Guard) -> None:
    """Arguments that do not fit are a TypeError at the call, as of any generator function."""

    @guard.guarded("a.b")
    async def tool(n: int) -> AsyncIterator[int]:
        yield n

    with pytest.raises(TypeError, match="'n'"):
        tool()  # type: ignore[call-arg]  # what is tested


async def test_the_caller_acts_and_not_who_iterates(guard: Guard, gateway: Any) -> None:
    """The identity is the caller's; the arguments count as they are when the tool begins."""

    @guard.guarded("a.b")
    async def tool(items: list[int]) -> AsyncIterator[int]:
        for item in items:
            yield item

    items = [1]
    with acting_as("caller", run_id="run-7"):
        made = tool(items)
    items.append(2)
    with acting_as("somebody else"):
        assert [item async for item in made] == [1, 2]
    for sent in (*gateway.checks, *gateway.logs):
        assert (sent["agent_id"], sent["run_id"], sent["context"]["items"]) == ("caller", "run-7", [1, 2])
    assert gateway.logs[0]["context"]["items_"] == 2


@pytest.mark.parametrize("cyclic", [False, True])
@pytest.mark.parametrize("how", ["collected", "at the end of the loop"])
def test_an_abandoned_one_is_recorded(
    guard: Guard, gateway: Any, how: str, cyclic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The event loop closes a generator nobody keeps, its cleaning waits, and nobody is warned of anything."""
    cleaned: list[bool] = []
    clean = asyncio.Event()
    kept: list[Any] = []

    @guard.guarded("a.b")
    async def tool() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)
            clean.set()

    async def main() -> None:
        made: Any = [tool()]
        assert await anext(made[0]) == 1
        if cyclic:
            made.append(made)
        if how == "collected":
            del made
            gc.collect()
            await clean.wait()
        else:
            kept.append(made)

    asyncio.run(main())
    assert cleaned == [True]
    assert guard.flush()
    assert [
        (each["status"], each["context"]["items"], each["context"]["closed"]) for each in gateway.logs
    ] == [("success", 1, True)]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_one_whose_loop_is_gone_is_recorded(guard: Guard, gateway: Any) -> None:
    """A generator dropped after its loop was closed without closing it is not closed, but recorded."""

    @guard.guarded("a.b")
    async def tool() -> AsyncIterator[int]:
        yield 1
        yield 2

    loop = asyncio.new_event_loop()
    made = [tool()]

    async def begin() -> int:
        return await anext(made[0])

    assert loop.run_until_complete(begin()) == 1
    loop.close()
    made.clear()
    gc.collect()
    assert guard.flush()
    assert [(each["status"], each["context"]["items"]) for each in gateway.logs] == [("failed", 1)]
    assert (
        gateway.logs[0]["context"]["error"]["message"]
        == "the iterator or coroutine was discarded before it ended"
    )


async def test_one_that_is_never_begun_is_no_call(guard: Guard, gateway: Any) -> None:
    """Nothing is asked and nothing recorded of a generator that is dropped before its first item."""

    @guard.guarded("a.b")
    async def tool() -> AsyncIterator[int]:
        yield 1

    tool()
    gc.collect()
    assert await guard.aflush()
    assert gateway.requests == []


async def test_cancelled_between_and_inside_items(guard: Guard, gateway: Any) -> None:
    """A task cancelled while its generator works is recorded as failed and stays cancelled."""
    inside = asyncio.Event()

    @guard.guarded("a.b")
    async def tool() -> AsyncIterator[int]:
        yield 1
        inside.set()
        await asyncio.Event().wait()

    async def use() -> None:
        async for _ in tool():
            pass

    task = asyncio.create_task(use())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(each["status"], each["context"]["items"]) for each in gateway.logs] == [("failed", 1)]
    assert gateway.logs[0]["context"]["error"]["type"] == "CancelledError"


async def test_looks_and_behaves_like_a_generator(guard: Guard) -> None:
    """It is one, by its type and its name, and lets go of what it gave out and was sent."""

    class Big:
        pass

    @guard.guarded("a.b")
    async def tool() -> AsyncGenerator[Big, Big]:
        while True:
            yield Big()

    made = tool()
    assert inspect.isasyncgenfunction(tool)
    assert inspect.isasyncgen(made)
    assert (made.__name__, made.__qualname__) == (tool.__name__, tool.__qualname__)
    first = weakref.ref(await anext(made))
    assert first() is None
    big = Big()
    sent = weakref.ref(big)
    await made.asend(big)
    del big
    assert sent() is None
    await made.aclose()


@pytest.mark.parametrize("above", [True, False])
async def test_context_managers(guard: Guard, gateway: Any, above: bool) -> None:
    """Checked when entered; the body's exception goes through as the very same, or is swallowed as before."""
    guard_it, managing = guard.guarded("a.b"), contextlib.asynccontextmanager

    async def tool(swallow: bool) -> AsyncIterator[str]:
        try:
            yield "entered"
        except LookupError:
            if not swallow:
                raise

    managed: Any = guard_it(managing(tool)) if above else managing(guard_it(tool))
    made = managed(False)
    assert gateway.requests == []
    error = LookupError("mine")
    with pytest.raises(LookupError) as raised:  # noqa: PT012 - the body of a with is what is tested
        async with made as value:
            assert value == "entered"
            assert len(gateway.checks) == 1
            raise error
    assert raised.value is error
    async with managed(True):
        raise LookupError
    for kind in (StopAsyncIteration, RuntimeError):
        with pytest.raises(kind, match="mine"):
            async with managed(True):
                raise kind("mine")
    assert [each["status"] for each in gateway.logs] == ["failed", "success", "failed", "failed"]


@pytest.mark.parametrize("above", [True, False])
async def test_context_managers_as_decorators(guard: Guard, gateway: Any, above: bool) -> None:
    """What a guarded context manager decorates is checked and recorded at each of its calls."""
    guard_it, managing = guard.guarded("a.b"), contextlib.asynccontextmanager

    async def tool(n: int) -> AsyncIterator[None]:
        yield

    managed: Any = guard_it(managing(tool)) if above else managing(guard_it(tool))

    @managed(7)
    async def decorated() -> str:
        return "done"

    assert gateway.requests == []
    assert [await decorated(), await decorated()] == ["done", "done"]
    assert [each["context"]["n"] for each in (*gateway.checks, *gateway.logs)] == [7] * 4
