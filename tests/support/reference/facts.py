"""What the reference knows of: tenants, agents, permissions, approvals, log entries, and when two contexts are equal."""

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
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
        approvers: The only users who may approve; None if every user with the right may.
    """

    required: int
    separated: bool
    makers: frozenset[str]
    maximum: Decimal | None
    amount_required: bool
    approvers: frozenset[str] | None = None

    def stricter(self, other: "ApprovalTerms") -> "ApprovalTerms":
        """Return the stricter value of each term."""
        return ApprovalTerms(
            max(self.required, other.required),
            self.separated or other.separated,
            self.makers | other.makers,
            min((one for one in (self.maximum, other.maximum) if one is not None), default=None),
            self.amount_required or other.amount_required,
            _both(self.approvers, other.approvers),
        )


#: what stands for the permission of a request that only rules require
NO_PERMISSION = "00000000-0000-0000-0000-000000000000"


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


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


#: conditions of rules, as CEL and as what they mean: None stands for an error
CONDITIONS = ("args.amount > 50", "args.n == 1", "has(args.to)", "action.startsWith('pay') || args.n == 1")


def condition_holds(text: str, action: str, facts: Mapping[str, object]) -> bool | None:
    """Return the result of one of `CONDITIONS`; None for an error."""
    match text:
        case "args.amount > 50":
            amount = facts.get("amount")
            return amount > 50 if isinstance(amount, Decimal) else None
        case "args.n == 1":
            return facts["n"] == 1 if "n" in facts else None
        case "has(args.to)":
            return "to" in facts
        case _:
            return True if action.startswith("pay") else condition_holds("args.n == 1", action, facts)


@dataclass(slots=True)
class Rule:
    """Rule of an environment; `agents` is None for all agents, `condition` one of `CONDITIONS`."""

    id: str
    tenant: Tenant
    name: str
    effect: str
    agents: frozenset[str] | None
    actions: tuple[str, ...]
    condition: str | None
    required: int | None = None
    waits: int | None = None
    approvers: frozenset[str] | None = None
    enabled: bool = True

    def matches(self, agent: Agent, action: str, facts: Mapping[str, object]) -> bool:
        """Report whether the rule applies to a call."""
        if not self.enabled or self.tenant != agent.tenant:
            return False
        if self.agents is not None and agent.id not in self.agents:
            return False
        if not any(action == one or (one[-1] == "*" and action.startswith(one[:-1])) for one in self.actions):
            return False
        holds = True if self.condition is None else condition_holds(self.condition, action, facts)
        # What cannot be decided allows nothing.
        return bool(holds) if self.effect == "allow" else holds is not False

    @property
    def terms(self) -> ApprovalTerms:
        """Terms that the rule adds to those of the permission."""
        return ApprovalTerms(self.required or 1, False, frozenset(), None, False, self.approvers)


@dataclass(slots=True)
class Budget:
    """Limit of an environment for what its calls sum up to in a window.

    `agents` is None for all agents; `argument` is None if calls are counted; `window` is ``hour`` or a number of seconds.
    """

    id: str
    tenant: Tenant
    name: str
    scope: str
    agents: frozenset[str] | None
    action: str
    argument: str | None
    window: str | int
    limit: Decimal
    at_limit: str
    enabled: bool = True

    def counts(self, agent: Agent, action: str) -> bool:
        """Report whether a call counts."""
        of_agent = self.agents is None or agent.id in self.agents
        return self.enabled and self.tenant == agent.tenant and of_agent and self.action in {"*", action}

    def amount(self, facts: Mapping[str, object]) -> Decimal | None:
        """Return what a call adds; None if its arguments do not say."""
        amount = Decimal(1) if self.argument is None else facts.get(self.argument)
        return amount if isinstance(amount, Decimal) and amount >= 0 else None

    def subject(self, agent: Agent, run_id: str | None) -> str:
        """Return whose total a call adds to."""
        return {"organization": "", "agent": agent.id, "run": run_id or ""}[self.scope]

    def contains(self, moment: datetime, now: datetime) -> bool:
        """Report whether an earlier moment lies in the window of this one."""
        if isinstance(self.window, int):
            return moment > now - timedelta(seconds=self.window)
        return f"{moment:%F %H}" == f"{now:%F %H}"


@dataclass(slots=True)
class Reservation:
    """What an allowed call added to the total of a budget."""

    budget: Budget
    subject: str
    agent_id: str
    action: str
    amount: Decimal
    created: datetime
    decision_id: str = ""
    state: str = "unsettled"

    @property
    def counted(self) -> Decimal:
        """Return what it adds now."""
        return Decimal(0) if self.state == "released" else self.amount


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
    #: whether a budget did not cover the call when it was asked
    over_budget: bool = False
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
