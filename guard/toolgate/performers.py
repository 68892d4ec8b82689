"""Perform the steps of one call: the flow's hands, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from toolgate._capture.context import Captured
from toolgate._capture.jsontext import Json
from toolgate._outbox.entries import Intent
from toolgate._outbox.recorder import Recorder
from toolgate.calls import OnHold
from toolgate.clients import Arguments, AsyncClient, Client
from toolgate.decision import Decision
from toolgate.errors import GatewayProtocolError, GatewayUnavailable
from toolgate.failing import forgiven
from toolgate.holding import aask, ask
from toolgate.patience import Patience
from toolgate.steps import (
    Approval,
    AskCaller,
    AwaitApproval,
    Check,
    Edit,
    Inapplicable,
    Intend,
    Look,
    Recapture,
    Record,
    Unanswered,
    Verify,
)
from toolgate.telling import (
    entry_of,
    intended,
    not_known,
    tell_approval,
    tell_decision,
    tell_waiting,
)
from toolgate.waiters import Waiter, Waiters
from toolgate.withdrawing import given_up, take_back, taking_back, withdraw, withdrawal

__all__ = ["AsyncPerformer", "Performer"]


class _Gone:
    """No arguments."""

    def capture(self) -> Captured:
        return Captured({})

    def edit(self, asked: dict[str, Json], approved: dict[str, Json]) -> str | None:  # noqa: ARG002 - the contract's
        return "the tool has begun"

    def difference(self) -> str | None:
        return None

    def as_given(self) -> None:
        """Nothing to forget."""


_GONE: Final = _Gone()


class _Hands:
    def __init__(
        self,
        recorder: Recorder,
        arguments: Arguments,
        on_hold: OnHold,
        waiters: Waiters | None,
        hold_timeout: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._recorder = recorder
        self._arguments = arguments
        self._on_hold = on_hold
        self._waiter = Waiter(Waiters() if waiters is None else waiters)
        self._hold_timeout = hold_timeout
        self._clock = clock
        self._patience: Patience | None = None

    def arguments(self, step: Recapture | Edit | Verify) -> Captured | Inapplicable | str | None:
        """Capture the arguments again, put an approver's edit into them, or find out what changed in them."""
        if isinstance(step, Verify):
            return self._difference()
        if isinstance(step, Recapture):
            if step.as_given:
                self._arguments.as_given()
            return self._arguments.capture()
        try:
            why = self._arguments.edit(step.asked, step.approved)
        except Exception as error:  # noqa: BLE001 - whatever the arguments' classes do, the tool does not run
            why = f"{type(error).__name__} while converting"
        if why is not None:
            return Inapplicable(why)
        return self._arguments.capture()

    def _difference(self) -> str | None:
        """Return why the tool may not run with the arguments as they are now, or None."""
        try:
            name = self._arguments.difference()
        except Exception as error:  # noqa: BLE001 - the tool does not run with arguments that cannot be read
            return f"the arguments cannot be read again: {type(error).__name__}"
        return None if name is None else f"{name!r} changed while the gateway was asked"

    def keep(self, step: Record) -> None:
        """Hand what happened to the recorder."""
        self._recorder.record(entry_of(step), step.intent)

    def let_go(self) -> None:
        """Forget the arguments, once the tool has them and nobody asks again."""
        self._arguments = _GONE

    def _would_wait(self, step: Check) -> bool:
        """Whether a call that is given up while it asks leaves a request that nobody comes back to."""
        return self._on_hold == "wait" and step.approval_id is None and not step.dry_run

    def _patient(self) -> Patience:
        if self._patience is None:
            # One time for the whole call, also when it is held a second time.
            self._patience = Patience(self._hold_timeout, self._clock)
        return self._patience


class Performer(_Hands):
    """Performs the steps of one call on this thread.

    Args:
        client: Asks the gateway.
        recorder: Takes the log entries.
        arguments: The call's arguments.
        on_hold: What to do when the call is held.
        waiters: Who else of this process waits.
        hold_timeout: Seconds to wait for a person; None waits as long as it takes.
        clock: Monotonic seconds; default the client's.
        sleep: Pauses, in seconds; default the client's.
    """

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        arguments: Arguments,
        *,
        on_hold: OnHold = "raise",
        waiters: Waiters | None = None,
        hold_timeout: float | None = None,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(recorder, arguments, on_hold, waiters, hold_timeout, clock or _clock_of(client))
        self._client = client
        self._sleep: Callable[[float], None] = (
            getattr(client, "sleep", time.sleep) if sleep is None else sleep
        )

    def check(self, step: Check) -> Decision | Unanswered:
        """Ask the gateway; nobody's answer is one only where the call fails open."""
        try:
            decision = self._client.check(step)
        except GatewayUnavailable as error:
            if unanswered := forgiven(step, error):
                return unanswered
            raise
        except Exception:
            raise
        except BaseException:
            if self._would_wait(step):
                take_back(self._client, self._waiter, step)
            raise
        return tell_decision(step, decision)

    def ask_caller(self, step: AskCaller) -> Literal["raise", "wait", "check"]:
        """Ask the caller's `on_hold`."""
        return ask(self._on_hold, step.pending)

    def approval(self, step: AwaitApproval | Look) -> Approval | None:
        """See what became of an approval, at once or once a person decided."""
        return self.look(step) if isinstance(step, Look) else self.await_approval(step)

    def look(self, step: Look) -> Approval | None:
        """See what became of an approval; for a patient step also after an outage."""
        try:
            if step.patient:
                return self._polled(step, once=True)
            return tell_approval(step, self._client.approval(step.approval_id, 0))
        except GatewayUnavailable:
            if step.forgiving:
                return None
            raise
        except GatewayProtocolError as error:
            if mistaken := not_known(step, error):
                raise mistaken from error
            raise

    def await_approval(self, step: AwaitApproval) -> Approval | None:
        """Ask until a person decided or the time is up; given up by force, the request is withdrawn."""
        tell_waiting(step)
        self._waiter.begin(step.approval_id)
        try:
            approval = self._polled(step)
        except Exception:
            self._waiter.end()
            raise
        except BaseException:
            withdraw(self._client, self._waiter, step)
            raise
        self._waiter.end()
        return approval

    def intend(self, step: Intend) -> Intent | None:
        """Write down that the tool is about to run."""
        return self._recorder.intend(intended(step), may_be_lost=step.record.may_be_lost)

    def record(self, step: Record) -> None:
        """Record what happened; never fails."""
        if not step.waits or step.approval_id is None:
            return self.keep(step)
        # The waiting begins here: a call that is given up while it records must not leave its request behind.
        self._waiter.begin(step.approval_id)
        try:
            return self.keep(step)
        except BaseException:
            withdraw(self._client, self._waiter, step)
            raise

    def _polled(self, step: AwaitApproval | Look, *, once: bool = False) -> Approval | None:
        patience = self._patient()
        while (wait := patience.next_poll()) is not None:
            try:
                approval = self._client.approval(step.approval_id, 0 if once else wait)
            except GatewayUnavailable as error:
                self._sleep(patience.pause_after(error))
                continue
            patience.heard()
            if once or approval.status != "pending":
                return tell_approval(step, approval)
            self._sleep(patience.pause())
        return None


class AsyncPerformer(_Hands):
    """Performs the steps of one call in this task.

    Args:
        client: Asks the gateway.
        recorder: Takes the log entries.
        arguments: The call's arguments.
        on_hold: What to do when the call is held.
        waiters: Who else of this process waits.
        hold_timeout: Seconds to wait for a person; None waits as long as it takes.
        clock: Monotonic seconds; default the client's.
        sleep: Pauses, in seconds; default the client's.
    """

    def __init__(
        self,
        client: AsyncClient,
        recorder: Recorder,
        arguments: Arguments,
        *,
        on_hold: OnHold = "raise",
        waiters: Waiters | None = None,
        hold_timeout: float | None = None,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(recorder, arguments, on_hold, waiters, hold_timeout, clock or _clock_of(client))
        self._client = client
        self._sleep: Callable[[float], Awaitable[None]] = (
            getattr(client, "sleep", asyncio.sleep) if sleep is None else sleep
        )

    async def check(self, step: Check) -> Decision | Unanswered:
        """Ask the gateway; nobody's answer is one only where the call fails open."""
        try:
            decision = await self._client.check(step)
        except GatewayUnavailable as error:
            if unanswered := forgiven(step, error):
                return unanswered
            raise
        except Exception:
            raise
        except BaseException as error:
            if self._would_wait(step):
                await given_up(taking_back(self._client, self._waiter, step), error)
            raise
        return tell_decision(step, decision)

    async def ask_caller(self, step: AskCaller) -> Literal["raise", "wait", "check"]:
        """Ask the caller's `on_hold`, and await its answer."""
        return await aask(self._on_hold, step.pending)

    async def approval(self, step: AwaitApproval | Look) -> Approval | None:
        """See what became of an approval, at once or once a person decided."""
        return await self.look(step) if isinstance(step, Look) else await self.await_approval(step)

    async def look(self, step: Look) -> Approval | None:
        """See what became of an approval; for a patient step also after an outage."""
        try:
            if step.patient:
                return await self._polled(step, once=True)
            return tell_approval(step, await self._client.approval(step.approval_id, 0))
        except GatewayUnavailable:
            if step.forgiving:
                return None
            raise
        except GatewayProtocolError as error:
            if mistaken := not_known(step, error):
                raise mistaken from error
            raise

    async def await_approval(self, step: AwaitApproval) -> Approval | None:
        """Ask until a person decided or the time is up; a cancelled task withdraws the request."""
        tell_waiting(step)
        self._waiter.begin(step.approval_id)
        try:
            approval = await self._polled(step)
        except Exception:
            self._waiter.end()
            raise
        except BaseException as error:
            await given_up(withdrawal(self._client, self._waiter, step), error)
            raise
        self._waiter.end()
        return approval

    async def intend(self, step: Intend) -> Intent | None:
        """Write down that the tool is about to run."""
        return await self._recorder.aintend(intended(step), may_be_lost=step.record.may_be_lost)

    async def record(self, step: Record) -> None:
        """Record what happened; never fails, and awaits nothing."""
        if not step.waits or step.approval_id is None:
            return self.keep(step)
        # The waiting begins here: a call that is given up while it records must not leave its request behind.
        self._waiter.begin(step.approval_id)
        try:
            return self.keep(step)
        except BaseException as error:
            await given_up(withdrawal(self._client, self._waiter, step), error)
            raise

    async def _polled(self, step: AwaitApproval | Look, *, once: bool = False) -> Approval | None:
        patience = self._patient()
        while (wait := patience.next_poll()) is not None:
            try:
                approval = await self._client.approval(step.approval_id, 0 if once else wait)
            except GatewayUnavailable as error:
                await self._sleep(patience.pause_after(error))
                continue
            patience.heard()
            if once or approval.status != "pending":
                return tell_approval(step, approval)
            await self._sleep(patience.pause())
        return None


def _clock_of(client: Client | AsyncClient) -> Callable[[], float]:
    # A gateway in this process may have a clock of its own.
    clock: Callable[[], float] = getattr(client, "clock", time.monotonic)
    return clock
