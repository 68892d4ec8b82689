"""Calls that a framework runs by itself after a callback: asked about there, and recorded where the tool is run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from toolgate import is_guarded
from toolgate_integrations._asking import Asking
from toolgate_integrations._carrying import FailedError, judged
from toolgate_integrations._naming import ToolCall

__all__ = ["Begun", "Between"]

T = TypeVar("T")


class Begun:
    """One call that is let through; it is recorded once, by `run`, `arun` or `not_run`.

    Attributes:
        arguments: The call's, as they were approved.
        asks_itself: Its function is guarded itself: that one asks, where it runs, and records what comes of it.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        inside: Callable[[], AbstractContextManager[None]],
        block: ExitStack | None,
    ) -> None:
        self.arguments = dict(arguments)
        self.asks_itself = block is None
        self._inside = inside
        self._block = block or ExitStack()

    def run(self, tool: Callable[[], T], failed: Callable[[T], str | None] = lambda _: None) -> T:
        """Run the tool, in any thread, and record what comes of it.

        Args:
            tool: Runs it.
            failed: What the tool's answer says went wrong, where it says so instead of raising.
        """
        try:
            with self._running():
                return judged(tool(), failed)
        except FailedError as failure:
            answer: T = failure.answer
            return answer

    async def arun(
        self, tool: Callable[[], Awaitable[T]], failed: Callable[[T], str | None] = lambda _: None
    ) -> T:
        """As `run`."""
        try:
            with self._running():
                return judged(await tool(), failed)
        except FailedError as failure:
            answer: T = failure.answer
            return answer

    def not_run(self, error: Exception) -> None:
        """Record that the framework has not run the tool, and why; never raises it."""
        with suppress(Exception), self._block:
            raise error

    @contextmanager
    def _running(self) -> Iterator[None]:
        with self._inside(), self._block:
            yield


class Between(Asking):
    """Asks about calls that are run by the framework."""

    def begin(self, call: ToolCall, pauses: tuple[type[BaseException], ...] = ()) -> Begun:
        """Ask about a call, and come back once it may run; a function that is guarded itself asks by itself.

        Args:
            call: The call.
            pauses: What the tool raises to be called again.

        Raises:
            GuardError: The tool must not run.
        """
        if is_guarded(call.function):
            return self._by_itself(call, pauses)
        block = ExitStack()
        with self._as(call, pauses):
            act = block.enter_context(self._asked(call))
        return self._begun(call, act, block)

    async def abegin(self, call: ToolCall, pauses: tuple[type[BaseException], ...] = ()) -> Begun:
        """As `begin`."""
        if is_guarded(call.function):
            return self._by_itself(call, pauses)
        block = ExitStack()
        with self._as(call, pauses):
            act = await self._asked(call).__aenter__()
        block.push(partial(_left, act))
        return self._begun(call, act, block)

    def _begun(self, call: ToolCall, act: Any, block: ExitStack) -> Begun:
        @contextmanager
        def inside() -> Iterator[None]:
            # What else is guarded inside the tool is other calls of the same agent and run.
            with self.within(call), self._proof(call, act):
                yield

        return Begun(act.context, inside, block)

    def _by_itself(self, call: ToolCall, pauses: tuple[type[BaseException], ...]) -> Begun:
        @contextmanager
        def inside() -> Iterator[None]:
            with self.bearing(call, pauses), self._held.watching(call):
                yield

        return Begun(call.arguments, inside, None)

    def _asked(self, call: ToolCall) -> Any:
        return self.guard.action(
            self.action_of(call), call.arguments, **self._holding(waits=False), edits=True
        )


def _left(
    act: Any, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
) -> None:
    # A block records at its end without awaiting anything: also where no event loop is at hand.
    with suppress(StopIteration):
        act.__aexit__(kind, error, traceback).send(None)
