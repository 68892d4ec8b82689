"""One way to carry out a call: asked for, run by the framework, recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from toolgate import is_guarded
from toolgate_integrations._asking import Asking
from toolgate_integrations._naming import ToolCall

__all__ = ["Carrying", "FailedError", "judged"]

T = TypeVar("T")


class Carrying(Asking):
    """Carries out calls as guarded actions."""

    def run(
        self,
        call: ToolCall,
        tool: Callable[[dict[str, Any]], T],
        failed: Callable[[T], str | None] = lambda _: None,
        pauses: tuple[type[BaseException], ...] = (),
    ) -> T:
        """Ask, let the framework run the tool, record; a function that is guarded itself asks by itself.

        Args:
            call: The call.
            tool: Runs the tool, with the arguments as they were approved.
            failed: What the framework's answer says went wrong, where it says so instead of raising.
            pauses: What the framework raises to come back later.

        Raises:
            GuardError: The tool did not run.
        """
        with self._as(call, pauses):
            if is_guarded(call.function):
                with self._held.watching(call):
                    return tool(dict(call.arguments))
            try:
                with (
                    self.guard.action(
                        self.action_of(call), call.arguments, **self._holding(waits=False), edits=True
                    ) as act,
                    self._proof(call, act),
                ):
                    return judged(tool(dict(act.context)), failed)
            except FailedError as failure:
                answer: T = failure.answer
                return answer

    async def arun(
        self,
        call: ToolCall,
        tool: Callable[[dict[str, Any]], Awaitable[T]],
        failed: Callable[[T], str | None] = lambda _: None,
        pauses: tuple[type[BaseException], ...] = (),
        *,
        waits: bool = False,
    ) -> T:
        """As `run`.

        Args:
            call: The call.
            tool: Runs the tool, with the arguments as they were approved.
            failed: What the framework's answer says went wrong, where it says so instead of raising.
            pauses: What the framework raises to come back later.
            waits: Wait for the person this time, whatever `on_hold` says.
        """
        with self._as(call, pauses):
            if is_guarded(call.function):
                with self._held.watching(call):
                    return await tool(dict(call.arguments))
            try:
                async with self.guard.action(
                    self.action_of(call), call.arguments, **self._holding(waits=waits), edits=True
                ) as act:
                    with self._proof(call, act):
                        return judged(await tool(dict(act.context)), failed)
            except FailedError as failure:
                answer: T = failure.answer
                return answer


class FailedError(Exception):
    """What a framework's answer says went wrong: recorded as a failure, and given to the model all the same."""

    def __init__(self, why: str, answer: Any) -> None:
        super().__init__(why)
        self.answer = answer


def judged(answer: T, failed: Callable[[T], str | None]) -> T:
    """Give the framework's answer back.

    Raises:
        FailedError: It says that something went wrong.
    """
    why = failed(answer)
    if why is not None:
        raise FailedError(why, answer)
    return answer
