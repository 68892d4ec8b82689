from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from toolgate import ConfigurationError, Guard, acting_as
from toolgate._identity import Identity, identify


def test_order() -> None:
    """The call's own agent wins over acting_as, that over the fallbacks, and they come in order."""
    assert identify(None, None, "guard") == Identity("guard")
    assert identify(None, "decorator", "guard") == Identity("decorator")
    with acting_as("acting", run_id="run"):
        assert identify(None, "decorator") == Identity("acting", "run")
        assert identify("call", "decorator") == Identity("call", "run")


def test_nobody() -> None:
    """Without any agent the error names the three cures."""
    with pytest.raises(ConfigurationError, match=r"TOOLGATE_AGENT_ID.*agent_id.*acting_as"):
        identify(None, None)


def test_nesting_and_return() -> None:
    """An inner identity takes over and gives back, also after an exception; the run goes on."""
    with acting_as("outer", run_id="run"):
        with contextlib.suppress(KeyError), acting_as("inner"):
            assert identify(None) == Identity("inner", "run")
            raise KeyError
        assert identify(None) == Identity("outer", "run")
    with pytest.raises(ConfigurationError):
        identify(None)


@pytest.mark.parametrize("bad", ["", "  ", "x" * 256, "two\nlines", "nul\x00"])
def test_bad_ids(bad: str) -> None:
    """An id must be 1 to 255 printable characters."""
    with pytest.raises(ConfigurationError, match="agent_id"):
        acting_as(bad)
    with pytest.raises(ConfigurationError, match="run_id"):
        acting_as("agent", run_id=bad)


def test_entered_once() -> None:
    """One acting_as object cannot be entered twice."""
    acting = acting_as("agent")
    with acting, pytest.raises(ConfigurationError, match="already entered"), acting:
        pass


def test_threads_are_apart() -> None:
    """An identity holds in its own thread only."""
    seen: list[Identity] = []
    with acting_as("main"):
        thread = threading.Thread(target=lambda: seen.append(identify(None, "fallback")))
        thread.start()
        thread.join()
    assert seen == [Identity("fallback")]


async def test_tasks_are_apart() -> None:
    """Two tasks that act at the same time each keep their own identity."""
    barrier = asyncio.Barrier(2)

    async def act(name: str) -> Identity:
        with acting_as(name):
            await barrier.wait()
            return identify(None)

    assert await asyncio.gather(act("a"), act("b")) == [Identity("a"), Identity("b")]


def test_reaches_the_gateway(make_guard: Callable[..., Guard], gateway: Any) -> None:
    """The acting agent and run stand in the check and in the log entry."""

    @make_guard().guarded("a.b", agent_id="decorator")
    def tool() -> None: ...

    tool()
    with acting_as("acting", run_id="run-7"):
        tool()
    assert [each["agent_id"] for each in gateway.checks] == ["decorator", "acting"]
    assert [each.get("run_id") for each in gateway.checks] == [None, "run-7"]
    assert [each.get("run_id") for each in gateway.logs] == [None, "run-7"]


async def test_reaches_the_gateway_async(make_guard: Callable[..., Guard], gateway: Any) -> None:
    """As the synchronous test, for coroutine functions."""
    async with make_guard() as guard:

        @guard.guarded("a.b", agent_id="decorator")
        async def tool() -> None: ...

        await tool()
        with acting_as("acting", run_id="run-7"):
            await tool()
    assert [each["agent_id"] for each in gateway.checks] == ["decorator", "acting"]
    assert [each.get("run_id") for each in gateway.logs] == [None, "run-7"]


async def test_the_call_decides_not_the_await(make_guard: Callable[..., Guard], gateway: Any) -> None:
    """A coroutine acts as who called the function, whoever awaits it and wherever."""
    async with make_guard() as guard:

        @guard.guarded("a.b", agent_id="decorator")
        async def tool(items: list[int]) -> None: ...

        items = [1]
        with acting_as("acting", run_id="run-7"):
            inside = tool(items)
        outside = tool(items)
        items.append(2)
        await inside
        with acting_as("later"):
            await outside
            await asyncio.create_task(tool(items))
    for sent in (gateway.checks, gateway.logs):
        assert [each["agent_id"] for each in sent] == ["acting", "decorator", "later"]
        assert [each.get("run_id") for each in sent] == ["run-7", None, None]
        # What runs is what is asked about: the arguments count as they are when it runs.
        assert [each["context"]["items"] for each in sent] == [[1, 2]] * 3
