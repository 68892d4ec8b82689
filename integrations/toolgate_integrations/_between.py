"""Calls that a framework runs by itself after a callback: asked about there, and recorded where the tool is run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from toolgate_integrations._asking import Asking
from toolgate_integrations._carrying import FailedError, judged
from toolgate_integrations._naming import ToolCall

__all__ = ["Begun", "Between"]

T = TypeVar("T")


class Begun:
    """One call that the gateway has let through; it is recorded once, by `run`, `arun` or `not_run`.

    Attributes:
        arguments: The call's, as they were approved.
    """

    def __init__(self, asking: Asking, call: ToolCall, block: ExitStack, approved: Mapping[str, Any]) -> None:
        self.arguments = dict(approved)
        self._asking = asking
        self._call = call
        self._block = block

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
        # What is guarded inside the tool is other calls of the same agent and run.
        with self._asking.within(self._call), self._block:
            yield


class Between(Asking):
    """Asks about calls that are run by the framework."""

    def begin(self, call: ToolCall, pauses: tuple[type[BaseException], ...] = ()) -> Begun:
        """Ask about a call, and come back once it may run.

        Args:
            call: The call.
            pauses: What the tool raises to be called again.

        Raises:
            GuardError: The tool must not run.
        """
        block = ExitStack()
        with self._as(call, pauses):
            act = block.enter_context(self._asked(call))
        return Begun(self, call, block, act.context)

    async def abegin(self, call: ToolCall, pauses: tuple[type[BaseException], ...] = ()) -> Begun:
        """As `begin`."""
        block = ExitStack()
        with self._as(call, pauses):
            act = await self._asked(call).__aenter__()
        block.push(partial(_left, act))
        return Begun(self, call, block, act.context)

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
