"""Perform the steps of one call: the flow's hands, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from toolgate.capture.context import Captured
from toolgate.decision import Decision
from toolgate.errors import GatewayUnavailable
from toolgate.events import tell
from toolgate.patience import Patience
from toolgate.recording.entries import Entry, new_entry
from toolgate.recording.recorder import Recorder
from toolgate.steps import Approval, AwaitApproval, Check, Record

__all__ = ["AsyncClient", "AsyncPerformer", "Client", "Performer"]


class Client(Protocol):
    """What asks the gateway."""

    def check(self, check: Check) -> Decision:
        """Ask whether an action is allowed."""
        ...

    def approval(self, approval_id: str, wait: int) -> Approval:
        """Ask what became of an approval request."""
        ...


class AsyncClient(Protocol):
    """What asks the gateway, asynchronously."""

    async def check(self, check: Check) -> Decision:
        """Ask whether an action is allowed."""
        ...

    async def approval(self, approval_id: str, wait: int) -> Approval:
        """Ask what became of an approval request."""
        ...


class _Hands:
    def __init__(
        self,
        recorder: Recorder,
        recapture: Callable[[], Captured],
        hold_timeout: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._recorder = recorder
        self._recapture = recapture
        self._hold_timeout = hold_timeout
        self._clock = clock
        self._patience: Patience | None = None

    def recapture(self) -> Captured:
        """Look at the arguments again."""
        return self._recapture()

    def _patient(self, step: AwaitApproval) -> Patience:
        tell("waiting", step.action, step.who.agent_id, "held", approval_id=step.approval_id)
        if self._patience is None:
            # One time for the whole call, also when it is held a second time.
            self._patience = Patience(self._hold_timeout, self._clock)
        return self._patience


class Performer(_Hands):
    """Performs the steps of one call on this thread.

    Args:
        client: Asks the gateway.
        recorder: Takes the log entries.
        recapture: Captures the call's arguments again.
        hold_timeout: Seconds to wait for a person; None waits as long as it takes.
        clock: Monotonic seconds.
        sleep: Pauses, in seconds.
    """

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        recapture: Callable[[], Captured],
        *,
        hold_timeout: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(recorder, recapture, hold_timeout, clock)
        self._client = client
        self._sleep = sleep

    def check(self, step: Check) -> Decision:
        """Ask the gateway."""
        return tell_decision(step, self._client.check(step))

    def await_approval(self, step: AwaitApproval) -> Approval | None:
        """Ask until a person decided or the time is up."""
        patience = self._patient(step)
        while (wait := patience.next_poll()) is not None:
            try:
                approval = self._client.approval(step.approval_id, wait)
            except GatewayUnavailable as error:
                self._sleep(patience.pause_after(error))
                continue
            if approval.status != "pending":
                return _tell_approval(step, approval)
            self._sleep(patience.pause())
        return None

    def record(self, step: Record) -> None:
        """Record what happened; never fails."""
        self._recorder.record(_entry(step))


class AsyncPerformer(_Hands):
    """Performs the steps of one call in this task.

    Args:
        client: Asks the gateway.
        recorder: Takes the log entries.
        recapture: Captures the call's arguments again.
        hold_timeout: Seconds to wait for a person; None waits as long as it takes.
        clock: Monotonic seconds.
        sleep: Pauses, in seconds.
    """

    def __init__(
        self,
        client: AsyncClient,
        recorder: Recorder,
        recapture: Callable[[], Captured],
        *,
        hold_timeout: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(recorder, recapture, hold_timeout, clock)
        self._client = client
        self._sleep = sleep

    async def check(self, step: Check) -> Decision:
        """Ask the gateway."""
        return tell_decision(step, await self._client.check(step))

    async def await_approval(self, step: AwaitApproval) -> Approval | None:
        """Ask until a person decided or the time is up."""
        patience = self._patient(step)
        while (wait := patience.next_poll()) is not None:
            try:
                approval = await self._client.approval(step.approval_id, wait)
            except GatewayUnavailable as error:
                await self._sleep(patience.pause_after(error))
                continue
            if approval.status != "pending":
                return _tell_approval(step, approval)
            await self._sleep(patience.pause())
        return None

    async def record(self, step: Record) -> None:
        """Record what happened; never fails."""
        await self._recorder.arecord(_entry(step))

    def keep(self, step: Record) -> None:
        """Have what happened recorded later, without awaiting anything now."""
        self._recorder.keep(_entry(step))


def tell_decision(check: Check, decision: Decision) -> Decision:
    """Write the decision to the standard logging and hand it on."""
    tell(
        "decision",
        check.action,
        check.who.agent_id,
        decision.outcome,
        reason=decision.reason,
        approval_id=decision.approval_id or check.approval_id,
    )
    return decision


def _tell_approval(step: AwaitApproval, approval: Approval) -> Approval:
    if approval.status == "approved":
        tell(
            "approved",
            step.action,
            step.who.agent_id,
            "approved",
            reason=approval.note,
            approval_id=step.approval_id,
        )
    return approval


def _entry(step: Record) -> Entry:
    tell(
        "record",
        step.action,
        step.who.agent_id,
        step.status,
        reason=step.reason,
        approval_id=step.approval_id,
    )
    return new_entry(
        action=step.action,
        agent_id=step.who.agent_id,
        status=step.status,
        context=step.context,
        approval_id=step.approval_id,
        decision_id=step.decision_id,
        run_id=step.who.run_id,
    )
