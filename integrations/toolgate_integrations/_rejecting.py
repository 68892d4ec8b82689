"""A no that the framework was given: taken to the gateway, and into the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from toolgate import ConfigurationError, GatewayProtocolError, GatewayUnavailable, Guard, is_guarded
from toolgate_integrations._asking import Asking
from toolgate_integrations._naming import ToolCall, fitting

__all__ = ["Rejecting", "noes_of"]

logger = logging.getLogger("toolgate")


class Rejecting(Asking):
    """Takes rejections."""

    def reject(self, call: ToolCall, why: str, approval_id: str | None = None, *, final: bool = True) -> None:
        """Cancel the request of a call that a user of the framework rejected, and record the rejection.

        An approval that was already given is cancelled too. The call does not run in either case, so an unavailable
        gateway is logged and not raised. The request of a function that is guarded itself is found only if this
        bridge asked, or by its id.

        Args:
            call: The call.
            why: What was said.
            approval_id: Its request, where that is known.
            final: The call stays denied under its id, also where an earlier state of its run is resumed.
        """
        with self._as(call, (), bears_name=False):
            guard, action, call_id = self.guard, self.action_of(call), fitting(call.call_id)
            told = _tellable(call)
            approval_id = approval_id or self._held.forget(call)
            with _logged(action):
                known = approval_id is not None and _cancelled(guard, approval_id, rejected=final)
                # It may have expired since, and another one taken its place.
                if not known and told is not None and (found := self.look(call).approval_id) is not None:
                    _cancelled(guard, found, rejected=final)
            # Without the approval: rejected again, when that is gone, it is the same log entry.
            guard.record(action, "denied", told, call_id=call_id, reason=why)

    async def areject(
        self, call: ToolCall, why: str, approval_id: str | None = None, *, final: bool = True
    ) -> None:
        """As `reject`."""
        with self._as(call, (), bears_name=False):
            guard, action, call_id = self.guard, self.action_of(call), fitting(call.call_id)
            told = _tellable(call)
            approval_id = approval_id or self._held.forget(call)
            with _logged(action):
                known = approval_id is not None and await _acancelled(guard, approval_id, rejected=final)
                if (
                    not known
                    and told is not None
                    and (found := (await self.alook(call)).approval_id) is not None
                ):
                    await _acancelled(guard, found, rejected=final)
            # Without the approval: rejected again, when that is gone, it is the same log entry.
            guard.record(action, "denied", told, call_id=call_id, reason=why)


def _cancelled(guard: Guard, approval_id: str, *, rejected: bool) -> bool:
    """Cancel a request, or the one that an approver's edit put in its place; whether it is cancelled now."""
    approval = guard.cancel(approval_id, rejected=rejected)
    if approval.status == "replaced":
        newest = guard.approval(approval_id, newest=True)
        approval = guard.cancel(newest.approval_id or approval_id, rejected=rejected)
    return approval.status == "cancelled"


async def _acancelled(guard: Guard, approval_id: str, *, rejected: bool) -> bool:
    approval = await guard.acancel(approval_id, rejected=rejected)
    if approval.status == "replaced":
        newest = await guard.aapproval(approval_id, newest=True)
        approval = await guard.acancel(newest.approval_id or approval_id, rejected=rejected)
    return approval.status == "cancelled"


@contextmanager
def _logged(action: str) -> Iterator[None]:
    """Log why a request was not cancelled, where the gateway is unavailable or does not know it."""
    try:
        yield
    except (GatewayUnavailable, GatewayProtocolError, ConfigurationError) as error:
        if isinstance(error, ConfigurationError) and not isinstance(error.__cause__, GatewayProtocolError):
            raise
        logger.warning("the request of a rejected call of %r was not cancelled: %s", action, error)


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
    return None if is_guarded(call.function) else call.arguments
