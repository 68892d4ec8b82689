"""A tool's function while a call of it is let through: it runs once, and what comes of it is seen here.

CrewAI tries a tool that raises up to six times after one question, and tells its hooks of an error only as text.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

from crewai.tools import BaseTool
from crewai.tools.base_tool import Tool
from crewai.tools.structured_tool import CrewStructuredTool
from crewai.tools.tool_failure import ToolFailure

from toolgate import ConfigurationError

__all__ = ["Carrier", "ChangedError", "Passing", "function_of", "passing", "watched"]


class Carrier(Protocol):
    """Runs a tool's function as a guarded action."""

    def run(self, tool: Callable[[], Any], failed: Callable[[Any], str | None]) -> Any:
        """Run it, and record what comes of it."""
        ...

    async def arun(self, tool: Callable[[], Awaitable[Any]], failed: Callable[[Any], str | None]) -> Any:
        """As `run`."""
        ...


class ChangedError(ConfigurationError):
    """The arguments are not those that the gateway was asked about."""


class Passing:
    """One call, from the hook before the tool to the hook after it.

    Attributes:
        arguments: The framework's own object of them, by which the second hook knows the call.
        outer: The call in whose tool this one is made.
        approved: What the arguments have to be when the tool runs.
        carrier: Runs the tool's function; None while the call is not let through.
        ran: Whether the function has run.
        error: What it raised, or what kept it from running.
        leave: Leaves the tool as it was.
    """

    def __init__(self, arguments: dict[str, Any], outer: Passing | None) -> None:
        self.arguments = arguments
        self.outer = outer
        self.approved: dict[str, Any] = {}
        self.carrier: Carrier | None = None
        self.ran = False
        self.error: BaseException | None = None
        self.leave: Callable[[], None] = lambda: None
        self._running = False
        self._result: Any = None

    def begins(self) -> Carrier | None:
        """Who runs the function that is called now; None if it is another, called by the tool that runs."""
        return None if self._running else self.carrier

    def run(self, carrier: Carrier, body: Callable[[], Any]) -> Any:
        """Run the function, the first time; then only say again what came of it."""

        def run() -> Any:
            self._look()
            answer = body()
            # As the framework does with it next: the call ends when the coroutine does.
            return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer

        if self.ran:
            return self._again()
        with self._once():
            self._result = carrier.run(run, _failure)
        return self._result

    async def arun(self, carrier: Carrier, body: Callable[[], Awaitable[Any]]) -> Any:
        """As `run`."""

        async def run() -> Any:
            self._look()
            return await body()

        if self.ran:
            return self._again()
        with self._once():
            self._result = await carrier.arun(run, _failure)
        return self._result

    def _look(self) -> None:
        if self.arguments != self.approved:
            raise ChangedError(
                "another hook has changed the arguments after the gateway was asked; register it before the guard"
            )

    @contextmanager
    def _once(self) -> Iterator[None]:
        self._running = self.ran = True
        try:
            yield
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._running = False

    def _again(self) -> Any:
        if self.error is not None:
            raise self.error
        return self._result


#: the call that is let through in this thread or task; the framework keeps it from hook to tool to hook
passing: Final[ContextVar[Passing | None]] = ContextVar("toolgate_crewai_passing", default=None)


def _failure(answer: Any) -> str | None:
    return answer.as_agent_message() if isinstance(answer, ToolFailure) else None


def watched(tool: CrewStructuredTool | None, *, cached: bool) -> Callable[[], None]:
    """Watch a tool's function, in whatever way the framework is going to look it up.

    Args:
        tool: The tool.
        cached: Whether its result may be kept in the framework's cache.

    Returns:
        Leaves the tool as it was; to be called once.
    """
    places = [*_places(tool)]
    owner = getattr(tool, "_original_tool", None) or tool
    uncached = [] if cached or owner is None else [(owner, "cache_function")]
    with _lock:
        for place in places:
            _watch(*place, _watching)
        for place in uncached:
            _watch(*place, lambda _: _never)

    def leave() -> None:
        with _lock:
            for place in (*places, *uncached):
                _leave(*place)

    return leave


def function_of(tool: CrewStructuredTool | None) -> object:
    """The Python function of a tool, as its author wrote it; None if nobody knows."""
    found = None
    for owner, name in _places(tool):
        found = getattr(owner, name)
    while hasattr(found, _BODY):
        found = getattr(found, _BODY)
    return found


def _places(tool: CrewStructuredTool | None) -> Iterator[tuple[Any, str]]:
    original: BaseTool | None = getattr(tool, "_original_tool", None)
    if isinstance(original, Tool):
        yield original, "func"
        return
    if tool is not None:
        yield tool, "func"
    if original is not None:
        yield original, "_run"


def _watch(owner: Any, name: str, instead: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    place = id(owner), name
    if place not in _calls:
        own = vars(owner).get(name, _NONE)
        _calls[place] = _Watched(owner, own)
        # Past pydantic, which would take the name of a method for a field that is not there.
        object.__setattr__(owner, name, instead(getattr(owner, name)))
    _calls[place].count += 1


def _leave(owner: Any, name: str) -> None:
    here = _calls[id(owner), name]
    here.count -= 1
    if here.count == 0:
        del _calls[id(owner), name]
        if here.own is _NONE:
            object.__delattr__(owner, name)
        else:
            object.__setattr__(owner, name, here.own)


def _never(*_: Any) -> bool:
    return False


@dataclass
class _Watched:
    owner: object
    own: object
    count: int = 0


def _watching(body: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(body):

        @functools.wraps(body)
        async def awatching(*args: Any, **kwargs: Any) -> Any:
            call = passing.get()
            carrier = None if call is None else call.begins()
            if call is None or carrier is None:
                return await body(*args, **kwargs)
            return await call.arun(carrier, lambda: body(*args, **kwargs))

        setattr(awatching, _BODY, body)
        return awatching

    @functools.wraps(body)
    def watching(*args: Any, **kwargs: Any) -> Any:
        call = passing.get()
        carrier = None if call is None else call.begins()
        if call is None or carrier is None:
            return body(*args, **kwargs)
        return call.run(carrier, lambda: body(*args, **kwargs))

    setattr(watching, _BODY, body)
    return watching


_BODY: Final = "_toolgate_body"
_NONE: Final = object()
#: the functions that are watched: by whose they are and how they are called, how many calls are let through
_calls: Final[dict[tuple[int, str], _Watched]] = {}
# Calls of one tool begin and end in many threads.
_lock = threading.Lock()
