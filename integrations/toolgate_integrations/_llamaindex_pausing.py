"""Where in a run of LlamaIndex a call stands, and its pause: an event that asks, and the answer that wakes it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from llama_index.core.agent.workflow import ToolCall as ToolCallEvent
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_index_instrumentation.dispatcher import active_instrument_tags

# The framework's own agents take it from there; it has no public name.
from workflows.runtime.types.results import (
    AddWaiter,
    StepWorkerContext,
    StepWorkerStateContextVar,
    WaitingForEvent,
)

from toolgate import ApprovalPending

__all__ = ["Answer", "Pausing", "Place", "place_of"]

_running: ContextVar[tuple[str, str] | None] = ContextVar("toolgate_llamaindex_running", default=None)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a paused call was woken by.

    Attributes:
        approval_id: The request that the call waited for.
        no: What somebody said who rejected the call; None for everything else, which only wakes.
    """

    approval_id: str
    no: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """The call that an agent's step carries out.

    Attributes:
        ctx: The framework's context of the step.
        step: What the framework keeps of the step.
        call_id: The call's id, the same when the step is carried out again; no other call of the run has it.
        run_id: Of the conversation, the same after a restart.
        running_id: Of this very run, another one after a restart.
        agent: The agent whose turn it is; None outside of an `AgentWorkflow`.
    """

    ctx: Context[Any]
    step: StepWorkerContext
    call_id: str
    run_id: str
    running_id: str
    agent: str | None

    @property
    def event(self) -> ToolCallEvent:
        """The call, as the model made it."""
        event: ToolCallEvent = self.step.event  # type: ignore[assignment]  # `place_of` has looked
        return event

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the tool runs: what it calls in turn is another call."""
        token = _running.set((self.running_id, self.call_id))
        try:
            yield
        finally:
            _running.reset(token)

    def waits_for(self) -> str | None:
        """The request that the call has been paused for, before this step; None if it was not."""
        ours = self._waiters()
        return ours[-1].removeprefix(self._prefix) if ours else None

    async def answer(self) -> Answer | None:
        """What has woken the call; None if it was never paused.

        Raises:
            WaitingForEvent: Nothing has: after a restart the framework carries the step out to have its
                requirements again, which it does not keep.
        """
        approval_id = self.waits_for()
        if approval_id is None:
            return None
        event = await self.ctx.wait_for_event(
            HumanResponseEvent,
            waiter_id=self._prefix + approval_id,
            requirements={"approval_id": approval_id},
            timeout=None,
        )
        # Until the requirements are there again, the framework gives each answer to every call.
        mine = event.get("approval_id", None) == approval_id
        return Answer(approval_id, _no(event) if mine else None)

    async def pause(self, pending: ApprovalPending) -> None:
        """Stop the step until somebody answers; the framework carries it out again then.

        Raises:
            WaitingForEvent: Always.
        """
        shown: dict[str, Any] = {
            "prefix": f"{pending.action!r} waits for a person: {pending.reason}",
            "approval_id": pending.approval_id,
            "action": pending.action,
            "reason": pending.reason,
            "tool_name": self.event.tool_name,
            "tool_kwargs": self.event.tool_kwargs,
            "tool_id": self.event.tool_id,
        }
        asked = InputRequiredEvent(**shown)
        if self._prefix + pending.approval_id in self._waiters():
            # Answered, and still undecided: a second waiter would be woken beside this one, and the call run twice.
            self.ctx.write_event_to_stream(asked)
            raise self.halt(pending.approval_id)
        await self.ctx.wait_for_event(
            HumanResponseEvent,
            waiter_event=asked,
            waiter_id=self._prefix + pending.approval_id,
            requirements={"approval_id": pending.approval_id},
            timeout=None,
        )

    def halt(self, approval_id: str) -> WaitingForEvent[Any]:
        """What stops the step, unanswered, for the request that it has been paused for before."""
        return WaitingForEvent(
            AddWaiter(
                waiter_id=self._prefix + approval_id,
                requirements={"approval_id": approval_id},
                event_type=HumanResponseEvent,
            )
        )

    @property
    def _prefix(self) -> str:
        return f"toolgate:{self.call_id}:"

    def _waiters(self) -> list[str]:
        """What the framework remembers of this call's pauses, the newest last."""
        known = [each.waiter_id for each in self.step.state.collected_waiters]
        return [each for each in known if each.startswith(self._prefix)]


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
    tag = active_instrument_tags.get().get("llamaindex.run_id")
    if tag is None or step.state.work_item_id is None or _running.get() == (str(tag), call_id):
        return None
    ctx = Context.get_step_context()
    run_id = await ctx.store.get(_RUN_ID, default=None)
    if run_id is None:
        # All calls of a run write the same, whichever is the first.
        run_id = str(tag)
        await ctx.store.set(_RUN_ID, run_id)
    agent = await ctx.store.get("current_agent_name", default=None)
    return Place(ctx, step, call_id, str(run_id), str(tag), agent if isinstance(agent, str) else None)


@dataclass
class _Paused:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    done: bool = False


class Pausing:
    """Calls that can pause, one at a time each: two answers to one call have the framework carry it out twice."""

    def __init__(self) -> None:
        self._calls: OrderedDict[tuple[str, str], _Paused] = OrderedDict()

    @asynccontextmanager
    async def alone(self, place: Place) -> AsyncIterator[None]:
        """The call's turn.

        Raises:
            WaitingForEvent: It has been carried out to its end already.
        """
        # Of this very run: one that is gone on with once more from what was kept has the gateway say that it is over.
        one = self._calls.setdefault((place.running_id, place.call_id), _Paused())
        if len(self._calls) > _MOST:
            self._calls.popitem(last=False)
        async with one.lock:
            waited_for = place.waits_for()
            if one.done and waited_for is not None:
                raise place.halt(waited_for)
            try:
                yield
            except WaitingForEvent:
                raise
            except BaseException:
                one.done = True
                raise
            one.done = True


def _no(event: HumanResponseEvent) -> str | None:
    answer = event.get("response", None)
    if answer is not False and not (isinstance(answer, str) and answer.strip().lower() in _NOES):
        return None
    why = event.get("reason", None)
    return why[:_LONGEST] if isinstance(why, str) else ""


_RUN_ID: Final = "toolgate_run_id"
_NOES: Final = frozenset({"no", "n", "reject", "rejected", "deny", "denied", "decline", "declined", "false"})
_LONGEST: Final = 2000
# Far more than wait at once.
_MOST: Final = 4096
