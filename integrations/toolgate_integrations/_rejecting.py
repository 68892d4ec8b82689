"""A no that the framework was given: taken to the gateway, and into the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from toolgate import ConfigurationError, GatewayProtocolError, GatewayUnavailable, guarded_action
from toolgate_integrations._asking import Asking
from toolgate_integrations._naming import ToolCall, fitting

__all__ = ["Rejecting", "noes_of"]

logger = logging.getLogger("toolgate")


class Rejecting(Asking):
    """Takes rejections."""

    def reject(self, call: ToolCall, why: str, approval_id: str | None = None) -> None:
        """Take a no that the framework was given: the call's request is withdrawn, and the log says so.

        Never raises for a gateway that is away: the call does not run either way. The request of a function that is
        guarded itself is found only if this bridge asked, or by its id: otherwise it stays, and lets nothing through
        but this very call.

        Args:
            call: The call.
            why: What was said.
            approval_id: Its request, where that is known.
        """
        with self._as(call, (), bears_name=False):
            guard, action, call_id = self.guard, self.action_of(call), fitting(call.call_id)
            told = _tellable(call)
            approval_id = approval_id or self._held.forget(call)
            try:
                if approval_id is None and told is not None:
                    approval_id = self.look(call).approval_id
                if approval_id is not None:
                    guard.cancel(approval_id)
            except (GatewayUnavailable, GatewayProtocolError) as error:
                logger.warning("the request of a rejected call of %r was not withdrawn: %s", action, error)
            # Without the approval: rejected again, when that is gone, it is the same log entry.
            guard.record(action, "denied", told, call_id=call_id, reason=why)

    async def areject(self, call: ToolCall, why: str, approval_id: str | None = None) -> None:
        """As `reject`."""
        with self._as(call, (), bears_name=False):
            guard, action, call_id = self.guard, self.action_of(call), fitting(call.call_id)
            told = _tellable(call)
            approval_id = approval_id or self._held.forget(call)
            try:
                if approval_id is None and told is not None:
                    approval_id = (await self.alook(call)).approval_id
                if approval_id is not None:
                    await guard.acancel(approval_id)
            except (GatewayUnavailable, GatewayProtocolError) as error:
                logger.warning("the request of a rejected call of %r was not withdrawn: %s", action, error)
            # Without the approval: rejected again, when that is gone, it is the same log entry.
            guard.record(action, "denied", told, call_id=call_id, reason=why)


def noes_of(rejected: object, waiting: Iterable[str]) -> dict[str, str]:
    """Why calls are not to run, as it is said where a run is gone on with.

    Args:
        rejected: Reasons, by the ids of calls.
        waiting: The ids of the calls that wait.

    Raises:
        ConfigurationError: It is no mapping of ids to texts, or names a call that does not wait.
    """
    if rejected is None:
        return {}
    if not isinstance(rejected, Mapping) or not all(
        isinstance(each, str) for pair in rejected.items() for each in pair
    ):
        raise ConfigurationError(f"rejected is {rejected!r}; pass a mapping of the ids of calls to why")
    if unknown := rejected.keys() - set(waiting):
        raise ConfigurationError(f"the call {min(unknown)!r} was rejected, and does not wait")
    return dict(rejected)


def _tellable(call: ToolCall) -> Mapping[str, Any] | None:
    """What may be told of a call; of a function that is guarded itself only that one knows."""
    return None if guarded_action(call.function) is not None else call.arguments
