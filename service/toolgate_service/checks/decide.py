"""The decision: agent, permission, amount, approval, in this order (decisions §4). No I/O, no clock."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from toolgate_service.agents.models import ACTIVE
from toolgate_service.checks.steps import Step
from toolgate_service.exact_json import plain_number
from toolgate_service.hotpath.standing import Standing
from toolgate_service.ids import is_id

UNKNOWN_AGENT = "Agent not found: no agent of this organization has the agent_id given"
#: how much of an odd amount, or of an agent_id, a reason repeats
SHOWN = 40


@dataclass(frozen=True, slots=True)
class Permitted:
    """The action may happen now."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The action may not happen, as was found `at` a step; `let_through` if the very call did before, by an approval."""

    reason: str
    at: Step
    let_through: bool = False


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """The action may happen once a person has approved it."""

    reason: str


PERMITTED = Permitted()


def decide(
    standing: Standing, agent_id: str, action: str, context: Mapping[str, object]
) -> Permitted | Blocked | NeedsApproval:
    """Say whether an agent may do an action with a context.

    An unknown and a foreign agent look the same: nobody learns which ids exist elsewhere.
    """
    if standing.key_agent_id is not None and standing.key_agent_id != agent_id:
        return Blocked(
            f"This API key acts only as its own agent, and not as the one named by agent_id{_not_an_id(agent_id)}",
            Step.AGENT,
        )
    if standing.agent_id is None:
        return Blocked(f"{UNKNOWN_AGENT}{_not_an_id(agent_id)}", Step.AGENT)
    if standing.agent_status != ACTIVE:
        return Blocked("Agent is inactive", Step.SWITCHED_ON)
    if standing.permission_id is None:
        return Blocked(f"Agent has no permission for action '{action}'", Step.PERMISSION)
    maximum = None if standing.max_amount is None else Decimal(standing.max_amount)
    if maximum is not None:
        too_much = _excess(maximum, bool(standing.amount_required), action, context)
        if too_much is not None:
            return too_much
    if standing.requires_approval:
        return NeedsApproval(f"Action '{action}' needs human approval")
    return PERMITTED


def _not_an_id(agent_id: str) -> str:
    """Return what to add to a reason about an agent_id that cannot be one, such as a name; which leaks nothing."""
    if is_id(agent_id.lower()):
        return ""
    return f"; {agent_id[:SHOWN]!r} is not an agent id: expected a UUID, see 'toolgate agents list'"


def excess(
    maximum: Decimal | None,
    required: bool,  # noqa: FBT001 - a permission's two columns, in their order
    action: str,
    context: Mapping[str, object],
) -> str | None:
    """Say why a context's amount is not within a permission's maximum; None when it is, or there is no maximum."""
    blocked = None if maximum is None else _excess(maximum, required, action, context)
    return None if blocked is None else blocked.reason


def _excess(
    maximum: Decimal,
    required: bool,  # noqa: FBT001 - as above
    action: str,
    context: Mapping[str, object],
) -> Blocked | None:
    limit = f"the maximum of {plain_number(maximum)} for action '{action}'"
    if "amount" not in context:
        return (
            Blocked(f"context.amount is required because of {limit}", Step.AMOUNT_NAMED) if required else None
        )
    amount = context["amount"]
    if isinstance(amount, bool) or not isinstance(amount, int | Decimal) or amount < 0:
        reason = f"context.amount must be a non-negative number, not {_shown(amount)}, because of {limit}"
        return Blocked(reason, Step.AMOUNT_READ)
    if amount > maximum:
        return Blocked(f"Amount {plain_number(Decimal(amount))} is above {limit}", Step.AMOUNT_WITHIN)
    return None


def _shown(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return plain_number(Decimal(value))[:SHOWN]
        case str():
            return repr(value[:SHOWN])
    return "a list" if isinstance(value, list) else "an object"
