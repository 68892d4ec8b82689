"""What is told of calls that did not happen: to the model, to whoever goes on with the run, and to the operator."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from toolgate import ApprovalPending, ConfigurationError, GuardError
from toolgate_integrations._naming import ToolCall
from toolgate_integrations._rejecting import Rejecting
from toolgate_integrations.refusals import refusal_text

__all__ = ["OtherArgumentsError", "areject", "refused", "reject", "shown"]

logger = logging.getLogger("toolgate")


class OtherArgumentsError(Exception):
    """A tool may not run with these arguments; what it says is told to the model.

    Args:
        text: What it says; as it comes, that they are others than those that were approved.
    """

    def __init__(
        self,
        text: str = "Not done: another part of the agent changed the arguments after they were approved. "
        "Asking again will not help; tell the operator.",
    ) -> None:
        super().__init__(text)


def refused(name: str, error: GuardError) -> str:
    """What a model reads in place of a tool's result; what only the operator can mend is logged, too.

    Args:
        name: The tool's.
        error: Why it did not run.
    """
    if isinstance(error, ConfigurationError):
        logger.warning("a call of the tool %r was refused: %s", name, error)
    return refusal_text(error)


def shown(pending: ApprovalPending) -> dict[str, Any]:
    """What the framework's own request says of a call that waits."""
    return {"approval_id": pending.approval_id, "action": pending.action, "reason": pending.reason}


def reject(bridge: Rejecting, call: ToolCall, why: str, approval_id: str | None = None) -> None:
    """As `areject`, of a synchronous framework."""
    with _logged(call):
        bridge.reject(call, why, approval_id)


async def areject(bridge: Rejecting, call: ToolCall, why: str, approval_id: str | None = None) -> None:
    """Take a no that the framework was given, as `Bridge.areject`; never raises, as the call does not run either way.

    Args:
        bridge: Takes it.
        call: The call.
        why: What was said.
        approval_id: Its request, where that is known.
    """
    with _logged(call):
        await bridge.areject(call, why, approval_id)


@contextmanager
def _logged(call: ToolCall) -> Iterator[None]:
    try:
        yield
    except GuardError as error:
        logger.warning("the rejection of a call of %r was not recorded: %s", call.name, error)
