"""The plans: what each allows, and the built-in table (spec §8, decisions §7). A limit of -1 means unlimited."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

PlanName: TypeAlias = Literal["free", "pro", "business", "enterprise"]

#: from the smallest to the largest
PLAN_NAMES: tuple[PlanName, ...] = get_args(PlanName)

UNLIMITED = -1

#: percent of a limit from which on there is a warning
WARN_AT = 80
FULL = 100

#: how long a shorter retention waits after a change of the plan before it acts (decisions §7)
RETENTION_GRACE = timedelta(days=30)

#: every plan is paid by the month
INTERVAL = "month"

#: everything that a plan may be said to have
FEATURES = ("webhooks", "approval_workflows", "advanced_permissions", "priority_support")


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
        features: what it includes; `webhooks` is gated by it.
        description: one line for whoever chooses.
        provider_price_ids: the payment provider's prices that buy it.
        ip_allow_list: whether API keys may be bound to networks (spec §5).
    """

    name: PlanName
    price: int | Decimal
    requests_per_minute: int
    max_logs_per_month: int
    log_retention_days: int
    max_agents: int
    max_team_members: int
    features: tuple[str, ...]
    description: str
    provider_price_ids: tuple[str, ...] = ()
    ip_allow_list: bool = False


#: every plan by its name, always all four, in order
Plans: TypeAlias = Mapping[str, Plan]

_PRO = FEATURES[:2]
_BUSINESS = FEATURES[:3]

BUILT_IN: Plans = MappingProxyType(
    {
        plan.name: plan
        for plan in (
            Plan("free", 0, 100, 1_000, 7, 2, 1, (), "For trying things out"),
            Plan("pro", 29, 1_000, 50_000, 30, 10, 5, _PRO, "For small teams with agents in production"),
            Plan("business", 199, 10_000, 500_000, 90, 50, 25, _BUSINESS, "For companies with many agents"),
            Plan(
                "enterprise",
                0,
                1_000_000,
                UNLIMITED,
                UNLIMITED,
                UNLIMITED,
                UNLIMITED,
                FEATURES,
                "Without limits; arranged with the operator",
                ip_allow_list=True,
            ),
        )
    }
)


def crosses(count: int, limit: int) -> int | None:
    """Return the threshold in percent that a count has just reached, counting one by one; None when none.

    Args:
        count: how many there are, the new one included.
        limit: how many there may be.
    """
    if limit <= 0:
        return None
    if count == limit:
        return FULL
    return WARN_AT if 100 * (count - 1) < WARN_AT * limit <= 100 * count else None


def plan_name(text: str) -> PlanName:
    """Return the plan's name that a text is.

    Raises:
        ValueError: it is none; the message names those that exist.
    """
    if text not in PLAN_NAMES:
        raise ValueError(f"{text!r} is no plan; choose one of {', '.join(PLAN_NAMES)}")
    return text


def longest(*days: int) -> int:
    """Return the longest of several retentions."""
    return UNLIMITED if UNLIMITED in days else max(days)


def shortest(*days: int) -> int:
    """Return the shortest of several retentions."""
    return min((limited for limited in days if limited != UNLIMITED), default=UNLIMITED)
