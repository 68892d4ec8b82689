"""What the reference knows of: tenants, agents, permissions, approvals, log entries, and when two contexts are equal."""

import json
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

OPEN = ("pending", "approved")


class Tenant(NamedTuple):
    """One environment of one organization."""

    organization: str
    environment: str


@dataclass(slots=True)
class Permission:
    """What an agent may do, and under which conditions."""

    id: str
    action: str
    requires_approval: bool
    maximum: Decimal | None
    amount_required: bool
    required: int = 1
    separated: bool = False
    waits: int | None = None
    #: users who created the permission or loosened it
    makers: set[str] = field(default_factory=set)

    def is_looser_than(self, before: "Permission") -> bool:
        """Report whether a change made the permission less strict than it was."""
        raised = before.maximum is not None and (self.maximum is None or self.maximum > before.maximum)
        return (
            raised
            or self.required < before.required
            or (before.requires_approval and not self.requires_approval)
            or (before.amount_required and not self.amount_required)
            or (before.separated and not self.separated)
        )


@dataclass(frozen=True, slots=True)
class ApprovalTerms:
    """Terms that are stored with an approval request or a temporary approval (decisions §5).

    Attributes:
        required: Number of distinct users who must approve.
        separated: True if the makers may not approve.
        makers: Users who created the agent, or created or loosened the permission.
        maximum: Limit for the amount in an edited context; None means no limit.
        amount_required: True if a limited amount may not be missing from an edited context.
    """

    required: int
    separated: bool
    makers: frozenset[str]
    maximum: Decimal | None
    amount_required: bool

    def stricter(self, other: "ApprovalTerms") -> "ApprovalTerms":
        """Return the stricter value of each term."""
        return ApprovalTerms(
            max(self.required, other.required),
            self.separated or other.separated,
            self.makers | other.makers,
            min((one for one in (self.maximum, other.maximum) if one is not None), default=None),
            self.amount_required or other.amount_required,
        )


@dataclass(slots=True)
class Agent:
    """An agent with its permissions by action, the oldest first."""

    id: str
    tenant: Tenant
    name: str
    description: str | None
    active: bool = True
    deleted: bool = False
    #: the user who created the agent
    creator: str = ""
    permissions: dict[str, Permission] = field(default_factory=dict)

    def terms(self, permission: Permission) -> ApprovalTerms:
        """Return the current terms of one of the agent's permissions."""
        return ApprovalTerms(
            permission.required,
            permission.separated,
            frozenset({self.creator, *permission.makers}),
            permission.maximum,
            permission.amount_required,
        )


@dataclass(frozen=True, slots=True)
class Freeze:
    """Order to deny calls of an organization, in both environments.

    Attributes:
        agent_id: The agent whose calls are denied; None for all agents.
        action: Denied action, or a prefix and ``*``; None for all actions.
    """

    id: str
    organization: str
    agent_id: str | None
    action: str | None
    reason: str

    def covers(self, agent: Agent, action: str) -> bool:
        """Return whether a call is denied."""
        if self.organization != agent.tenant.organization or self.agent_id not in {None, agent.id}:
            return False
        if self.action is None or not self.action.endswith("*"):
            return self.action in {None, action}
        return action.startswith(self.action[:-1])


@dataclass(slots=True)
class Grant:
    """What was allowed for a while, with the request of that id. `id` is empty until the gateway has named it."""

    tenant: Tenant
    agent_id: str
    permission_id: str
    approval_id: str
    action: str
    facts: dict[str, object]
    free: tuple[str, ...]
    uses: int
    left: int
    seconds: int
    #: terms of the request when the grant was proposed
    terms: ApprovalTerms
    #: while proposed: until when its request waits
    until: datetime
    voters: list[str] = field(default_factory=list)
    status: str = "proposed"
    revoked_by: str | None = None
    id: str = ""

    def state(self, now: datetime) -> str:
        """Return its state by the clock and by what is left."""
        if self.status == "revoked":
            return "revoked"
        if self.left == 0:
            return "exhausted"
        return "expired" if self.until <= now else self.status


@dataclass(slots=True)
class Approval:
    """A held check. `id` is empty until the gateway has named it."""

    tenant: Tenant
    agent_id: str
    permission_id: str
    action: str
    run_id: str | None
    call_id: str | None
    context: Hashable
    created: datetime
    #: while pending: until when it waits; once approved: until when it may be used
    until: datetime
    #: strictest terms under which the request was asked
    terms: ApprovalTerms
    id: str = ""
    status: str = "pending"
    note: str | None = None
    decided: datetime | None = None
    consumed: datetime | None = None
    cancelled: datetime | None = None
    facts: dict[str, object] = field(default_factory=dict)
    #: what each user said
    votes: dict[str, str] = field(default_factory=dict)
    decided_by: str | None = None
    #: the edited request that took this one's place, and the request whose place this one took
    successor: "Approval | None" = None
    replaces: "Approval | None" = None
    #: by which it was approved or used, whose voters count then
    grant: Grant | None = None

    @property
    def voters(self) -> list[str]:
        """Whoever approved it, or gave what it was approved by."""
        if self.grant is not None:
            return self.grant.voters
        return [user for user, said in self.votes.items() if said == "approved"]

    def state(self, now: datetime) -> str:
        """Return its state by the clock: whatever is open beyond its time has expired."""
        return "expired" if self.status in OPEN and self.until <= now else self.status


@dataclass(slots=True)
class Entry:
    """A log entry, with the answer that acknowledged it."""

    tenant: Tenant
    agent_id: str
    action: str
    status: str
    context: Hashable | None
    created: datetime
    id: str = ""
    answer: bytes = b""


def read(text: str | bytes) -> object:
    """Read JSON, every number by its digits."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def meaning(value: object) -> Hashable:
    """Return what two equal JSON values share: members in no order, numbers by value, true no number."""
    match value:
        case dict():
            return ("object", frozenset((name, meaning(member)) for name, member in value.items()))
        case list():
            return ("list", tuple(meaning(member) for member in value))
        case Decimal():
            return ("number", value)
    return (type(value).__name__, value)


def digits(number: Decimal) -> str:
    """Write a number as people do: no exponent, no superfluous zeros, no minus before zero."""
    text = f"{abs(number):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
