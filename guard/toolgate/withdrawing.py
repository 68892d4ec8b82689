"""Withdraw the request of a call that is given up by force: while it waits for a person, or while it is being asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from toolgate.clients import AsyncClient, Client
from toolgate.decision import Decision
from toolgate.errors import GatewayProtocolError
from toolgate.steps import AwaitApproval, Check, Record
from toolgate.telling import tell_not_known, tell_withdrawn
from toolgate.waiters import Waiter

__all__ = ["Withdrawal", "given_up", "take_back", "taking_back", "withdraw", "withdrawal"]

# Seconds a call that is given up may take to say so, and before it, twice, to learn what there is to withdraw.
_TO_WITHDRAW: Final = 2.0
_TO_LEARN: Final = 1.0
# A loop that ends cancels once; a caller may have done so before.
_RESTARTS: Final = 3


def withdraw(client: Client, waiter: Waiter, step: AwaitApproval | Record) -> None:
    """Withdraw the request a call waits for, unless another call of this process waits for the same."""
    approval_id = step.approval_id
    if approval_id is None or not waiter.end():
        return
    try:
        client.cancel(approval_id, _TO_WITHDRAW)
    except Exception as error:  # noqa: BLE001 - what ends the call goes on, whatever becomes of this
        tell_withdrawn(step, error)
    else:
        tell_withdrawn(step, None)


def take_back(client: Client, waiter: Waiter, check: Check) -> None:
    """Withdraw what a check may have left whose answer nobody waits for any more.

    Only looked at first: what is allowed by now would spend an approval for nobody. Asked again with its key the gateway
    names the request that it made of it, or makes the one that is withdrawn.
    """
    try:
        if not client.check(_looked_at(check), _TO_LEARN).held:
            return
        decision = client.check(check, _TO_LEARN)
    except Exception as error:  # noqa: BLE001 - likewise
        tell_not_known(check, error)
        return
    if step := _left(check, decision, waiter):
        withdraw(client, waiter, step)


class Withdrawal:
    """The withdrawal of a request, in a task that outlives the cancellation of the call.

    Args:
        withdraw: Withdraws it.
    """

    def __init__(self, withdraw: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._withdraw = withdraw
        self._task = self._begun()

    async def ended(self) -> None:
        """Wait a moment until the gateway has answered.

        An event loop that ends cancels every task, this one and the withdrawal too, and waits for them: what it
        cancelled begins once more. The caller goes on with the first cancellation.
        """
        left = _RESTARTS
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.wait({self._task}, timeout=2 * _TO_LEARN + _TO_WITHDRAW)
                if not self._task.cancelled():
                    return
            if left == 0:
                return
            left -= 1
            if self._task.cancelled():
                self._task = self._begun()

    def _begun(self) -> asyncio.Task[None]:
        task = asyncio.create_task(self._withdraw())
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)
        return task


def withdrawal(client: AsyncClient, waiter: Waiter, step: AwaitApproval | Record) -> Withdrawal | None:
    """As `withdraw`, in a task that outlives the cancellation of this one; None if there is nothing to do."""
    approval_id = step.approval_id
    if approval_id is None or not waiter.end() or not _is_running():
        return None
    return Withdrawal(lambda: _cancel(client, step, approval_id))


def taking_back(client: AsyncClient, waiter: Waiter, check: Check) -> Withdrawal | None:
    """As `take_back`, in a task that outlives the cancellation of this one; None if there is no loop."""
    return Withdrawal(lambda: _take_back(client, waiter, check)) if _is_running() else None


async def given_up(sent: Withdrawal | None, error: BaseException) -> None:
    """Wait a moment until the gateway was told; a coroutine that is being closed may not wait."""
    if sent is not None and not isinstance(error, GeneratorExit):
        await sent.ended()


async def _cancel(client: AsyncClient, step: AwaitApproval | Record, approval_id: str) -> None:
    try:
        await client.cancel(approval_id, _TO_WITHDRAW)
    except Exception as error:  # noqa: BLE001 - what ends the call goes on, whatever becomes of this
        closed = isinstance(error, GatewayProtocolError) and error.status == HTTPStatus.CONFLICT
        # The first of two attempts may have arrived although its answer did not.
        tell_withdrawn(step, None if closed else error)
    else:
        tell_withdrawn(step, None)


async def _take_back(client: AsyncClient, waiter: Waiter, check: Check) -> None:
    try:
        if not (await client.check(_looked_at(check), _TO_LEARN)).held:
            return
        decision = await client.check(check, _TO_LEARN)
    except Exception as error:  # noqa: BLE001 - likewise
        tell_not_known(check, error)
        return
    if (step := _left(check, decision, waiter)) and waiter.end():
        await _cancel(client, step, step.approval_id)


def _looked_at(check: Check) -> Check:
    return Check(check.action, check.who, check.context, dry_run=True)


def _left(check: Check, decision: Decision, waiter: Waiter) -> AwaitApproval | None:
    """The request that a check has left, which the call would have begun to wait for."""
    if not decision.held or decision.approval_id is None:
        return None
    waiter.begin(decision.approval_id)
    return AwaitApproval(check.action, check.who, decision.approval_id)


def _is_running() -> bool:
    # A coroutine that is closed after its loop can send nothing any more.
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# A loop holds its tasks weakly.
_under_way: Final = set[asyncio.Task[None]]()
