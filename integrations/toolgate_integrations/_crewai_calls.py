"""One call, from the hook before the tool to the hook after it: its function runs once, and is seen here.

CrewAI tries a tool that raises up to six times after one question, and tells its hooks of an error only as text.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from crewai.tools.structured_tool import CrewStructuredTool
from crewai.tools.tool_failure import ToolFailure

from toolgate import ConfigurationError, GuardError
from toolgate_integrations._base import Begun
from toolgate_integrations._crewai_functions import watched

__all__ = ["Call", "Passing", "Refused", "passing"]


@dataclass(frozen=True, slots=True)
class Refused:
    """One that is not let through.

    Attributes:
        arguments: The framework's own object of them, by which the second hook knows the call.
        outer: The call in whose tool this one is made.
        refusal: What keeps it from running.
    """

    arguments: dict[str, Any]
    outer: Call | None
    refusal: Exception


class Passing:
    """One that is let through.

    Attributes:
        arguments: The framework's own object of them, by which the second hook knows the call.
        outer: The call in whose tool this one is made.
        running: Its function runs; what is called meanwhile, the function calls.
    """

    def __init__(
        self,
        begun: Begun,
        tool: CrewStructuredTool | None,
        arguments: dict[str, Any],
        outer: Call | None,
    ) -> None:
        self.arguments = arguments
        self.outer = outer
        self._begun = begun
        self._approved = copy.deepcopy(arguments)
        self._ran = self.running = False
        self._result: Any = None
        self._error: BaseException | None = None
        # What asks by itself is not asked about where its result comes from the cache.
        self._leave = watched(tool, _watching, cached=not begun.asks_itself)

    @property
    def refusal(self) -> GuardError | None:
        """What kept the function from running all the same: a guard of its own, or arguments that have changed."""
        refuses = GuardError if self._begun.asks_itself else _ChangedError
        return self._error if isinstance(self._error, refuses) else None

    def run(self, body: Callable[[], Any]) -> Any:
        """Run the function, the first time; then only say again what came of it."""

        def run() -> Any:
            self._look()
            answer = body()
            # As the framework does with it next: the call ends when the coroutine does.
            return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer

        if self._ran:
            return self._again()
        with self._once():
            self._result = self._begun.run(run, _failure)
        return self._result

    async def arun(self, body: Callable[[], Awaitable[Any]]) -> Any:
        """As `run`."""

        async def run() -> Any:
            self._look()
            return await body()

        if self._ran:
            return self._again()
        with self._once():
            self._result = await self._begun.arun(run, _failure)
        return self._result

    def end(self) -> None:
        """Leave the tool as it was, and record the call if its function has not run."""
        self._leave()
        if not self._ran:
            self._begun.not_run(NotSeenError(_NOT_SEEN))

    def _look(self) -> None:
        if self.arguments != self._approved:
            raise _ChangedError(
                "another hook has changed the arguments after the gateway was asked; register it before the guard"
            )

    @contextmanager
    def _once(self) -> Iterator[None]:
        self.running = self._ran = True
        try:
            yield
        except BaseException as error:
            self._error = error
            raise
        finally:
            self.running = False

    def _again(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


Call: TypeAlias = Passing | Refused
#: the call that is made in this thread or task; the framework keeps it from hook to tool to hook
passing: Final[ContextVar[Call | None]] = ContextVar("toolgate_crewai_passing", default=None)


class NotSeenError(Exception):
    """The framework has answered a call by itself."""


class _ChangedError(ConfigurationError):
    """The arguments are not those that the gateway was asked about."""


def _failure(answer: Any) -> str | None:
    return answer.as_agent_message() if isinstance(answer, ToolFailure) else None


def _watching(body: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(body)
    def watching(*args: Any, **kwargs: Any) -> Any:
        call = _due()
        return body(*args, **kwargs) if call is None else call.run(lambda: body(*args, **kwargs))

    @functools.wraps(body)
    async def awatching(*args: Any, **kwargs: Any) -> Any:
        call = _due()
        return await (body(*args, **kwargs) if call is None else call.arun(lambda: body(*args, **kwargs)))

    return awatching if inspect.iscoroutinefunction(body) else watching


def _due() -> Passing | None:
    """The call whose function is called now; None if it is another's, called by the tool that runs."""
    call = passing.get()
    return call if isinstance(call, Passing) and not call.running else None


_NOT_SEEN: Final = (
    "the tool was not seen to run: the framework answered by itself, as from its cache, at a usage limit or where "
    "arguments do not fit"
)
