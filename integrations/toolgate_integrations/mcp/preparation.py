"""Preparation of a tool call that needs the permission of several checks.

A check that allows a call consumes its approval and its part of a budget. Before the first check, dry runs therefore find
out whether a later check would deny the call or needs an approval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import anyio

from toolgate import Approval, ApprovalPending
from toolgate._drivers import adrive
from toolgate_integrations.base import Bridge, ToolCall

__all__ = ["prepare"]

_POLL: Final = 1.0


async def prepare(
    bridge: Bridge, calls: Sequence[ToolCall], hold_timeout: float | None, *, waits: bool
) -> None:
    """Return when each call is allowed, approved or denied by a dry run.

    The first check of a denied call denies it again, so a denied call is checked and logged before the others.

    Args:
        bridge: Sends the checks.
        calls: The calls that must all be allowed.
        hold_timeout: Seconds to wait for the approvers; None for no limit.
        waits: True to wait for the approvers even if the bridge's `on_hold` has another value than `wait`.

    Raises:
        ApprovalPending: A call is pending.
        GuardError: A call is denied, or the gateway does not respond.
    """
    for call in calls:
        if (await adrive(bridge.preview_steps(call))).blocked:
            # The check denies the call and logs it. If it is allowed after all, it is released again.
            (await bridge.abegin(call)).not_run(_NotCheckedError("the dry run of this call was denied"))
            break
    # All requests are created before the first one is waited for, so that approvers see all of them.
    found = [await adrive(bridge.find_pending_steps(call)) for call in calls]
    seconds = None if not waits and bridge.on_hold != "wait" else hold_timeout or math.inf
    deadline = None if seconds is None else anyio.current_time() + seconds
    for pending in found:
        if pending is not None and not await _is_decided(bridge, pending, deadline):
            raise pending


async def _is_decided(bridge: Bridge, pending: ApprovalPending, deadline: float | None) -> bool:
    """Wait until an approval request is decided or the deadline passes, and return whether it is decided."""
    while True:
        approval: Approval = await bridge.guard.aapproval(pending.approval_id, newest=True)
        if approval.status != "pending":
            return True
        if deadline is None or anyio.current_time() >= deadline:
            return False
        await anyio.sleep(_POLL)


class _NotCheckedError(Exception):
    """Reason of a log entry for a call that did not run, because its permission changed during its checks."""
