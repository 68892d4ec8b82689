"""The plan table (spec §8, decisions §7). A limit of -1 means unlimited."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

PlanName: TypeAlias = Literal["free", "pro", "business", "enterprise"]

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class Plan:
    """What a plan allows.

    Attributes:
        name: its identifier on the wire.
        price: a month's price in the operator's currency.
        requests_per_minute: API-key requests per organization and environment.
        max_logs_per_month: production log entries in a UTC calendar month.
        log_retention_days: after which entries are removed.
        max_agents: production agents, inactive ones included.
        max_team_members: users of the organization.
        features: gated features.
    """

    name: PlanName
    price: int
    requests_per_minute: int
    max_logs_per_month: int
    log_retention_days: int
    max_agents: int
    max_team_members: int
    features: tuple[str, ...]


_PRO = ("webhooks", "approval_workflows")
_BUSINESS = (*_PRO, "advanced_permissions")

PLANS: dict[str, Plan] = {
    plan.name: plan
    for plan in (
        Plan("free", 0, 100, 1_000, 7, 2, 1, ()),
        Plan("pro", 29, 1_000, 50_000, 30, 10, 5, _PRO),
        Plan("business", 199, 10_000, 500_000, 90, 50, 25, _BUSINESS),
        Plan(
            "enterprise",
            0,
            1_000_000,
            UNLIMITED,
            UNLIMITED,
            UNLIMITED,
            UNLIMITED,
            (*_BUSINESS, "priority_support"),
        ),
    )
}
