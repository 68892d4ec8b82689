"""Calls that a framework asks about in one hook, runs by itself, and tells the outcome of in another."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from toolgate_integrations._asking import Asking
from toolgate_integrations._naming import ToolCall

__all__ = ["Apart", "Passed", "ToolFailed"]


class ToolFailed(Exception):
    """What a framework says of a tool that failed, or was not run after all."""


class Passed:
    """A call that may run, or is running.

    Attributes:
        arguments: Those it may run with: as it was asked for, or as a person changed them.
    """

    def __init__(self, block: AbstractAsyncContextManager[Any], arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self._block = block

    async def ended(self, why_not: str | None = None) -> None:
        """Record what came of it, once.

        Args:
            why_not: What went wrong; None if nothing did.
        """
        if why_not is None:
            await self._block.__aexit__(None, None, None)
        else:
            await self._block.__aexit__(ToolFailed, ToolFailed(why_not), None)


class Apart(Asking):
    """Asks about calls that somebody else runs."""

    async def apass(self, call: ToolCall) -> Passed:
        """Ask about a call, and wait for the person where calls do; whoever runs it says so by `Passed.ended`.

        If nobody does, as when the process ends, the log says `pending` with an unknown outcome.

        Raises:
            GuardError: The call may not run.
        """
        with self._as(call, ()):
            block = self.guard.action(
                self.action_of(call), call.arguments, **self._holding(waits=False), edits=True
            )
            act = await block.__aenter__()
        return Passed(block, dict(act.context))
