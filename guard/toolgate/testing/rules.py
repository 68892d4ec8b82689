"""The decision about a check, in the real gateway's order and words. A test holds the two equal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from toolgate._capture.jsontext import exact
from toolgate.permitted import Permitted

__all__ = ["excess", "needs_approval", "why_blocked"]

_SHOWN: Final = 40
_UNKNOWN_AGENT: Final = "Agent not found: no agent of this organization has the agent_id given"
_ID: Final = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def why_blocked(
    permitted: Permitted | None,
    action: str,
    context: Mapping[str, Any],
    *,
    agent_id: str,
    known: bool,
    active: bool,
) -> str | None:
    """Why an agent may not do an action with a context; None when it may, or may once a person has approved.

    Args:
        permitted: What it may do there, if anything.
        action: The action.
        context: The arguments.
        agent_id: The agent.
        known: Whether there is such an agent.
        active: Whether it is switched on.
    """
    if not known:
        return _unknown_agent(agent_id)
    if not active:
        return "Agent is inactive"
    if permitted is None:
        return f"Agent has no permission for action '{action}'"
    return excess(permitted, context)


def needs_approval(action: str) -> str:
    """Why a check is held."""
    return f"Action '{action}' needs human approval"


def excess(permitted: Permitted, context: Mapping[str, Any]) -> str | None:
    """Why a context's amount is not within the maximum; None when it is, or there is none."""
    if permitted.max_amount is None:
        return None
    limit = f"the maximum of {exact(permitted.max_amount)} for action '{permitted.action}'"
    if "amount" not in context:
        return f"context.amount is required because of {limit}" if permitted.amount_required else None
    amount = context["amount"]
    if isinstance(amount, bool) or not isinstance(amount, int | Decimal) or amount < 0:
        return f"context.amount must be a non-negative number, not {_shown(amount)}, because of {limit}"
    if amount > permitted.max_amount:
        return f"Amount {exact(amount)} is above {limit}"
    return None


def _unknown_agent(agent_id: str) -> str:
    if _ID.fullmatch(agent_id.lower()):
        return _UNKNOWN_AGENT
    return f"{_UNKNOWN_AGENT}; {agent_id[:_SHOWN]!r} is not an agent id: expected a UUID, see 'toolgate agents list'"


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return exact(value)
    if isinstance(value, int | Decimal):
        return exact(value)[:_SHOWN]
    if isinstance(value, str):
        return repr(value[:_SHOWN])
    return "a list" if isinstance(value, list) else "an object"
