"""Withdraw the request of a call that is given up by force: while it waits for a person, or while it is being asked."""

from __future__ import annotations

import asyncio
from typing import Final

from toolgate.clients import AsyncClient, Client
from toolgate.decision import Decision
from toolgate.steps import AwaitApproval, Check, Record
from toolgate.telling import tell_not_known, tell_withdrawn
from toolgate.waiters import Waiter

__all__ = ["given_up", "take_back", "taking_back", "withdraw", "withdrawal"]

# Seconds a call that is given up may take to say so, and before it, twice, to learn what there is to withdraw.
_TO_WITHDRAW: Final = 2.0
_TO_LEARN: Final = 1.0


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


def withdrawal(
    client: AsyncClient, waiter: Waiter, step: AwaitApproval | Record
) -> asyncio.Task[None] | None:
    """As `withdraw`, in a task that outlives the cancellation of this one; None if there is nothing to do."""
    approval_id = step.approval_id
    if approval_id is None or not waiter.end() or not _is_running():
        return None
    return _kept(asyncio.create_task(_cancel(client, step, approval_id)))


def taking_back(client: AsyncClient, waiter: Waiter, check: Check) -> asyncio.Task[None] | None:
    """As `take_back`, in a task that outlives the cancellation of this one; None if there is no loop."""
    return _kept(asyncio.create_task(_take_back(client, waiter, check))) if _is_running() else None


async def given_up(sent: asyncio.Task[None] | None, error: BaseException) -> None:
    """Wait a moment until the gateway was told; a coroutine that is being closed may not wait."""
    if sent is not None and not isinstance(error, GeneratorExit):
        await asyncio.wait({sent}, timeout=2 * _TO_LEARN + _TO_WITHDRAW)


async def _cancel(client: AsyncClient, step: AwaitApproval | Record, approval_id: str) -> None:
    try:
        await client.cancel(approval_id, _TO_WITHDRAW)
    except Exception as error:  # noqa: BLE001 - what ends the call goes on, whatever becomes of this
        tell_withdrawn(step, error)
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


def _kept(task: asyncio.Task[None]) -> asyncio.Task[None]:
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return task


# A loop holds its tasks weakly.
_under_way: Final = set[asyncio.Task[None]]()
