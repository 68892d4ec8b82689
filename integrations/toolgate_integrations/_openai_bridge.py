"""What a run that goes on from a state needs besides: going on with a call that paused inside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from toolgate_integrations._base import Bridge, ToolCall, fitting

__all__ = ["RunBridge"]

T = TypeVar("T")


class RunBridge(Bridge):
    """Carries out the calls of runs that are paused and resumed from outside."""

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
        looked = await self.alook(call)
        # One answer: what two of them seem to say together may have changed in between.
        if not looked.already_used:
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
