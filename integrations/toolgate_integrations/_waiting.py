"""Whether a call waits for a person, or has passed: found out without carrying it out."""

from __future__ import annotations

from typing import Any, NoReturn

from toolgate import Approval, ApprovalPending, Decision, GatewayUnavailable, GuardError, is_guarded
from toolgate_integrations._carrying import Carrying
from toolgate_integrations._naming import ToolCall

__all__ = ["Waiting"]


class Waiting(Carrying):
    """Looks whether calls wait."""

    def waiting(self, call: ToolCall) -> ApprovalPending | None:
        """Look whether a call waits for a person, and carry nothing out; its request is made if there is none.

        A function that is guarded itself is not looked at: what it would ask only its own call knows.

        Raises:
            GatewayUnavailable: Nobody can say.
        """
        if is_guarded(call.function):
            return None
        try:
            asked = self.look(call)
            if not asked.held:
                return None
            if asked.approval_id is not None:
                newest = self.guard.approval(asked.approval_id, newest=True)
                return self._still(call, asked, newest)
            with self._as(call, (_NotYetError,)), self._requested(call):
                _not_yet()
        except ApprovalPending as pending:
            return pending
        except GatewayUnavailable:
            raise
        except (GuardError, _NotYetError):
            # Decided one way or the other: its own check says how.
            return None
        return None

    async def awaiting(self, call: ToolCall) -> ApprovalPending | None:
        """As `waiting`."""
        if is_guarded(call.function):
            return None
        try:
            asked = await self.alook(call)
            if not asked.held:
                return None
            if asked.approval_id is not None:
                newest = await self.guard.aapproval(asked.approval_id, newest=True)
                return self._still(call, asked, newest)
            with self._as(call, (_NotYetError,)):
                async with self._requested(call):
                    _not_yet()
        except ApprovalPending as pending:
            return pending
        except GatewayUnavailable:
            raise
        except (GuardError, _NotYetError):
            # Decided one way or the other: its own check says how.
            return None
        return None

    def passed(self, call: ToolCall) -> bool:
        """Whether an approval has let a call through, now or before; True also where nobody can say."""
        try:
            return self.look(call).blocked
        except GuardError:
            return True

    async def apassed(self, call: ToolCall) -> bool:
        """As `passed`."""
        try:
            return (await self.alook(call)).blocked
        except GuardError:
            return True

    def _requested(self, call: ToolCall) -> Any:
        # Not by `run`: where held calls wait for the person, this one must not.
        return self.guard.action(self.action_of(call), call.arguments, on_hold=_held, edits=True)

    def _still(self, call: ToolCall, asked: Decision, newest: Approval) -> ApprovalPending | None:
        if newest.status != "pending":
            return None
        return ApprovalPending(
            action=self.action_of(call),
            agent_id=newest.agent_id or "",
            approval_id=asked.approval_id or "",
            reason=asked.reason,
        )


class _NotYetError(Exception):
    """A call that would have run where it was only looked at."""


def _held(pending: ApprovalPending) -> NoReturn:
    # Asked for by `raise`, a call by name is looked at once more: approved in between, that would use it up.
    raise pending


def _not_yet() -> None:
    raise _NotYetError
