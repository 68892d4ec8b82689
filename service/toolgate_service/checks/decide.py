"""Decision about a tool call, without I/O and without the current time.

The decision depends on the agent, the permission, the amount, and whether the permission requires an approval. They are
examined in this order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

from toolgate_service.agents.models import ACTIVE
from toolgate_service.context import AuthContext
from toolgate_service.core.ids import is_id
from toolgate_service.permissions.models import AmountCheck, find_amount_violation

UNKNOWN_AGENT = "Agent not found: no agent of this organization has the agent_id given"
#: maximum number of characters of an invalid `agent_id` that a denial's reason quotes
MAX_SHOWN = 40


class Step(StrEnum):
    """Steps of a check, in order. Every decision names the step that produced it.

    A check performs all steps up to `APPROVAL`, unless one of them denies the call. After `APPROVAL`, the check
    performs only the steps that apply to the call, and calls a `StepObserver` for each of these that is passed.
    """

    KEY = "key"
    ORGANIZATION = "organization"
    RATE = "rate"
    AGENT = "agent"
    SWITCHED_ON = "switched on"
    PERMISSION = "permission"
    AMOUNT_NAMED = "amount named"
    AMOUNT_READ = "amount read"
    AMOUNT_WITHIN = "amount within"
    APPROVAL = "approval"
    #: tests whether the check is a retry of an allowed check with the same Idempotency-Key
    ATTEMPT = "attempt"
    #: tests whether the approval request with the check's `approval_id` matches the check
    NAMED = "named"
    #: tests whether the call with this `call_id` has consumed an approval before
    CALL = "call"
    #: tests whether an approved request exists that the check can consume
    APPROVED = "approved"
    #: tests whether an approver has edited the arguments of this call
    CHANGED = "changed"
    #: tests whether the approval request with the check's `approval_id` is still pending or approved
    OPEN = "open"
    #: tests whether an approver has recently rejected the same call
    DENIED = "denied"
    #: tests whether a denial block is active for the action
    DENIALS = "denials"
    #: tests whether a temporary approval covers the call
    ALLOWED = "allowed"
    #: tests whether an approval request for the same call is already pending
    WAITING = "waiting"
    #: tests whether the agent has fewer pending approval requests than the limit
    ROOM = "room"
    #: creates a new approval request
    ASKED = "asked"


#: callback for each passed step; its arguments are the step and a detail for the explanation, such as an id
StepObserver: TypeAlias = Callable[[Step, str], None]


def ignore_step(_step: Step, _found: str) -> None:
    """Default `StepObserver`, which does nothing."""


@dataclass(frozen=True, slots=True)
class Permitted:
    """Decision that the call is allowed without an approval."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Decision that the call is denied.

    Attributes:
        reason: Reason for the agent.
        at: Step that denied the call.
        call_consumed: True if a call with the same `call_id` consumed an approval before.
    """

    reason: str
    at: Step
    call_consumed: bool = False


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """Decision that the call needs an approval."""

    reason: str


PERMITTED = Permitted()

_AMOUNT_STEPS = {
    AmountCheck.PRESENT: Step.AMOUNT_NAMED,
    AmountCheck.NUMBER: Step.AMOUNT_READ,
    AmountCheck.WITHIN_LIMIT: Step.AMOUNT_WITHIN,
}


def decide(
    auth: AuthContext, agent_id: str, action: str, context: Mapping[str, object]
) -> Permitted | Blocked | NeedsApproval:
    """Decide whether an agent may run an action with a context.

    A denial has the same reason for an unknown agent and for an agent of another organization. So the reason does not
    disclose which ids other organizations use.
    """
    if auth.key_agent_id is not None and auth.key_agent_id != agent_id:
        reason = f"This API key acts only as its own agent, and not as the one named by agent_id{_id_hint(agent_id)}"
        return Blocked(reason, Step.AGENT)
    if auth.agent_id is None:
        return Blocked(f"{UNKNOWN_AGENT}{_id_hint(agent_id)}", Step.AGENT)
    if auth.agent_status != ACTIVE:
        return Blocked("Agent is inactive", Step.SWITCHED_ON)
    if auth.permission_id is None:
        return Blocked(f"Agent has no permission for action '{action}'", Step.PERMISSION)
    if auth.max_amount is not None:
        maximum, required = Decimal(auth.max_amount), bool(auth.amount_required)
        violation = find_amount_violation(maximum, required, action, context)
        if violation is not None:
            return Blocked(violation.reason, _AMOUNT_STEPS[violation.failed])
    if auth.requires_approval:
        return NeedsApproval(f"Action '{action}' needs human approval")
    return PERMITTED


def _id_hint(agent_id: str) -> str:
    """Return a hint for the denial's reason if `agent_id` is not a UUID but, for example, a name; otherwise ''."""
    if is_id(agent_id.lower()):
        return ""
    return f"; {agent_id[:MAX_SHOWN]!r} is not an agent id: expected a UUID, see 'toolgate agents list'"
