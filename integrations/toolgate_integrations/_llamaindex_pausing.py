"""Where in a run of LlamaIndex a call stands, and its pause: an event that asks, and the answer that wakes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from llama_index.core.agent.workflow import ToolCall as ToolCallEvent
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_index_instrumentation.dispatcher import active_instrument_tags

# The framework's own agents take it from there; it has no public name.
from workflows.runtime.types.results import AddWaiter, StepWorkerStateContextVar, WaitingForEvent

from toolgate import ApprovalPending
from toolgate_integrations._during import during
from toolgate_integrations._telling import shown

__all__ = ["Place", "place_of", "turn_of"]

_running: ContextVar[tuple[str, str] | None] = ContextVar("toolgate_llamaindex_running", default=None)


@dataclass(frozen=True, slots=True)
class Place:
    """The call that an agent's step carries out.

    Attributes:
        ctx: The framework's context of the step.
        event: The call, as the model made it.
        call_id: The call's id, the same when the step is carried out again; no other call of the run has it.
        run_id: Of the conversation, the same after a restart.
        running_id: Of this very run, another one after a restart.
        agent: The agent whose turn it is; None outside of an `AgentWorkflow`.
        waited: The requests that the call has been paused for before this step, the newest last.
    """

    ctx: Context[Any]
    event: ToolCallEvent
    call_id: str
    run_id: str
    running_id: str
    agent: str | None
    waited: list[str]

    def running(self) -> AbstractContextManager[None]:
        """While the tool runs: what it calls in turn is another call."""
        return during(_running, (self.running_id, self.call_id))

    async def no(self) -> str | None:
        """What somebody said who rejected the call; None for all that only wakes it, and if it was never paused.

        Raises:
            WaitingForEvent: Nothing has woken it: after a restart the framework carries the step out to have its
                requirements again, which it does not keep.
        """
        if not self.waited:
            return None
        event = await self.ctx.wait_for_event(HumanResponseEvent, **self._wait(self.waited[-1]))
        # Until the requirements are there again, the framework gives each answer to every call.
        if event.get("approval_id", None) != self.waited[-1]:
            return None
        if str(event.get("response", None)).strip().lower() not in _NOES:
            return None
        why = event.get("reason", None)
        return why[:_LONGEST] if isinstance(why, str) else ""

    def paused(self, pending: ApprovalPending) -> WaitingForEvent[Any]:
        """What stops the step until somebody answers; the framework carries it out again then."""
        said = {
            "prefix": f"{pending.action!r} waits for a person: {pending.reason}",
            **shown(pending),
            "tool_name": self.event.tool_name,
            "tool_kwargs": self.event.tool_kwargs,
            "tool_id": self.event.tool_id,
        }
        asked = InputRequiredEvent(**said)
        if pending.approval_id in self.waited:
            # Answered, and still undecided: the framework shows the event of a wait only once.
            self.ctx.write_event_to_stream(asked)
        return self.stopped(pending.approval_id, asked)

    def stopped(self, approval_id: str, asked: InputRequiredEvent | None = None) -> WaitingForEvent[Any]:
        """What stops the step for a request, as if it had not been answered.

        It takes the place of an earlier wait: two beside each other would have the call run twice.
        """
        return WaitingForEvent(
            AddWaiter(event_type=HumanResponseEvent, waiter_event=asked, **self._wait(approval_id))
        )

    def _wait(self, approval_id: str) -> dict[str, Any]:
        waiter_id = _waits(self.call_id) + approval_id
        return {"waiter_id": waiter_id, "requirements": {"approval_id": approval_id}, "timeout": None}


async def place_of(tool_name: str) -> Place | None:
    """Where a call of a tool stands; None where no step of an agent carries it out.

    Args:
        tool_name: The tool's.
    """
    step = StepWorkerStateContextVar.get(None)
    if step is None or not isinstance(step.event, ToolCallEvent) or step.event.tool_name != tool_name:
        return None
    # A model without ids of its own calls each call by the tool's name, or not at all.
    call_id = f"{step.event.tool_id}:{step.state.work_item_id}"
    running_id = active_instrument_tags.get().get("llamaindex.run_id")
    if running_id is None or step.state.work_item_id is None or _running.get() == (running_id, call_id):
        return None
    ctx = Context.get_step_context()
    run_id = await ctx.store.get(_RUN_ID, default=None)
    if run_id is None:
        # All calls of a run write the same, whichever is the first.
        run_id = running_id
        await ctx.store.set(_RUN_ID, run_id)
    agent = await ctx.store.get("current_agent_name", default=None)
    waits = [each.waiter_id for each in step.state.collected_waiters]
    ours = [each.removeprefix(_waits(call_id)) for each in waits if each.startswith(_waits(call_id))]
    return Place(ctx, step.event, call_id, run_id, running_id, agent, ours)


class _Turn(asyncio.Lock):
    """Held while a call is carried out."""

    done = False


# Far more than wait at once.
@lru_cache(4096)
def _turn(running_id: str, call_id: str) -> _Turn:  # noqa: ARG001 - one for each
    return _Turn()


@asynccontextmanager
async def turn_of(place: Place) -> AsyncIterator[str | None]:
    """The turn of a call, in which it pauses if it is held; yields the no that has woken it, if one has.

    Calls have one turn at a time each: two answers to one call have the framework carry it out twice.

    Args:
        place: The call's.

    Raises:
        WaitingForEvent: It pauses, or has been carried out to its end already.
    """
    # Of this very run: one that is gone on with once more from what was kept has the gateway say that it is over.
    turn = _turn(place.running_id, place.call_id)
    async with turn:
        if turn.done and place.waited:
            raise place.stopped(place.waited[-1])
        turn.done = True
        try:
            yield await place.no()
        except ApprovalPending as pending:
            turn.done = False
            raise place.paused(pending) from pending
        except WaitingForEvent:
            turn.done = False
            raise


def _waits(call_id: str) -> str:
    """How the ids of the framework's waits for a call begin, before the request."""
    return f"toolgate:{call_id}:"


_RUN_ID: Final = "toolgate_run_id"
_NOES: Final = ("no", "n", "reject", "rejected", "deny", "denied", "decline", "declined", "false")
_LONGEST: Final = 2000
