"""What is told of calls that did not happen: to the model, to whoever goes on with the run, and to the operator."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from toolgate import ApprovalPending, GuardError
from toolgate_integrations._naming import ToolCall
from toolgate_integrations._rejecting import Rejecting
from toolgate_integrations._setup_errors import SETUP_ERRORS
from toolgate_integrations.refusals import refusal_text

__all__ = ["OtherArgumentsError", "areject", "refusal_or_raise", "reject", "shown"]

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


def refusal_or_raise(error: GuardError, *, paused: bool = False) -> str:
    """Return what the model reads of a call that did not run.

    Only for code whose exceptions keep the tool from running.

    Args:
        error: What the guard raised.
        paused: As for `refusal_text`.

    Raises:
        ConfigurationError: The error is one: it ends the run, since a model cannot repair the settings.
        GatewayProtocolError: As for `ConfigurationError`.
    """
    if isinstance(error, SETUP_ERRORS):
        raise error
    return refusal_text(error, paused=paused)


def shown(pending: ApprovalPending) -> dict[str, Any]:
    """What the framework's own request says of a call that waits."""
    return {"approval_id": pending.approval_id, "action": pending.action, "reason": pending.reason}


def reject(bridge: Rejecting, call: ToolCall, why: str, approval_id: str | None = None) -> None:
    """As `areject`, of a synchronous framework."""
    with _logged(call):
        bridge.reject(call, why, approval_id)


async def areject(bridge: Rejecting, call: ToolCall, why: str, approval_id: str | None = None) -> None:
    """Take a no that the framework was given, as `Bridge.areject`; the call does not run either way.

    Args:
        bridge: Takes it.
        call: The call.
        why: What was said.
        approval_id: Its request, where that is known.

    Raises:
        ConfigurationError: A setting is missing or wrong, or the gateway refuses the API key.
    """
    with _logged(call):
        await bridge.areject(call, why, approval_id)


@contextmanager
def _logged(call: ToolCall) -> Iterator[None]:
    try:
        yield
    except SETUP_ERRORS:
        raise
    except GuardError as error:
        logger.warning("the rejection of a call of %r was not recorded: %s", call.name, error)
