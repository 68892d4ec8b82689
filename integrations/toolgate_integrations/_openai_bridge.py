"""What a run that goes on from a state needs besides: looking, and going on with a call that paused inside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from toolgate import Decision
from toolgate_integrations._base import Bridge, ToolCall, fitting

__all__ = ["RunBridge"]

T = TypeVar("T")


class RunBridge(Bridge):
    """Carries out the calls of runs that are paused and resumed from outside."""

    async def alook(self, call: ToolCall) -> Decision:
        """What the gateway would answer now: nobody is asked for it, and nothing recorded."""
        with self._as(call, (), bears_name=False):
            call_id = fitting(call.call_id)
            return await self.guard.acheck(
                self.action_of(call), call.arguments, call_id=call_id, dry_run=True
            )

    async def agoes_on(
        self,
        call: ToolCall,
        tool: Callable[[dict[str, Any]], Awaitable[T]],
        failed: Callable[[T], str | None] = lambda _: None,
        pauses: tuple[type[BaseException], ...] = (),
    ) -> T:
        """As `arun`, for a call that paused inside: what passed by an approval goes on by it, and is not asked again.

        Only what the gateway says it let through does: all else, also what was forbidden since, is asked as ever.
        """
        passed = (await self.alook(call)).blocked and (await self.alook(replace(call, call_id=None))).held
        if not passed:
            return await self.arun(call, tool, failed, pauses)
        with self._as(call, pauses, bears_name=False):
            action, call_id = self.action_of(call), fitting(call.call_id)
            record = partial(self.guard.record, action, call_id=call_id)
            try:
                answer = await tool(dict(call.arguments))
            except pauses:
                raise
            except BaseException as error:
                record("failed", {**call.arguments, "error": type(error).__name__})
                raise
            why = failed(answer)
            record(
                "success" if why is None else "failed", {**call.arguments, **({"error": why} if why else {})}
            )
            return answer
