"""Plans with their limits, and the parser of the plan file, with which the operator overrides the built-in plans.

A limit of -1 means unlimited. The plan file is TOML or JSON and has one table per plan, which contains the fields to
override::

    [pro]
    price = 49
    max_agents = 20
    provider_price_ids = ["price_1Q..."]
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from toolgate_service.core import strict_json

PlanName: TypeAlias = Literal["free", "pro", "business", "enterprise"]

#: names of the plans, from the smallest plan to the largest
PLAN_NAMES: tuple[PlanName, ...] = get_args(PlanName)

UNLIMITED = -1

#: percentages of a limit at which the gateway notifies the organization: first as a warning, then because the limit is
#: reached
WARN_AT = 80
FULL = 100

#: time for which the log retention of the old plan still applies after a change to a plan with a shorter retention
RETENTION_GRACE = timedelta(days=30)

#: interval at which every plan is billed
INTERVAL = "month"

#: names of all features that a plan may include
FEATURES = ("webhooks", "approval_workflows", "advanced_permissions", "priority_support")


@dataclass(frozen=True, slots=True)
class Plan:
    """Limits and features of a plan.

    Attributes:
        name: Name of the plan in the API.
        price: Price per month in the currency of the operator.
        requests_per_minute: Maximum number of requests with API keys per minute, per organization and environment.
        max_logs_per_month: Maximum number of log entries of the production environment per calendar month (UTC).
        log_retention_days: Number of days after which log entries are deleted.
        max_agents: Maximum number of agents in the production environment, including disabled agents.
        max_team_members: Maximum number of users of the organization.
        features: Included features, a subset of `FEATURES`.
        description: One line of text for the page that shows the plans.
        provider_price_ids: Ids of the prices at the payment provider with which a customer buys this plan.
        ip_allow_list: True if the organization may restrict its API keys to IP networks.
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


#: all plans by name, from the smallest plan to the largest
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
                "No limits; by agreement with the operator",
                ip_allow_list=True,
            ),
        )
    }
)


def describe_limits(plan: Plan) -> str:
    """Return the limits of a plan, and the features that it does not include, as text. Unlimited values are omitted."""
    limits = (
        ("agents", plan.max_agents),
        ("team members", plan.max_team_members),
        ("requests per minute", plan.requests_per_minute),
        ("log entries per month", plan.max_logs_per_month),
        ("days of log retention", plan.log_retention_days),
    )
    texts = [f"{name}: {limit:,}" for name, limit in limits if limit != UNLIMITED]
    texts += [f"no {feature.replace('_', ' ')}" for feature in FEATURES if feature not in plan.features]
    return ", ".join(texts)


def crosses(count: int, limit: int) -> int | None:
    """Return the percentage of a limit that a count has just reached: `WARN_AT`, `FULL`, or None for neither.

    `count` is the number after it was increased by 1.
    """
    if limit <= 0:
        return None
    if count == limit:
        return FULL
    return WARN_AT if 100 * (count - 1) < WARN_AT * limit <= 100 * count else None


def plan_name(text: str) -> PlanName:
    """Return the text as the name of a plan.

    Raises:
        ValueError: No plan has this name. The message lists all plan names.
    """
    if text not in PLAN_NAMES:
        raise ValueError(f"{text!r} is not a plan; choose one of {', '.join(PLAN_NAMES)}")
    return text


def longest(*days: int) -> int:
    """Return the longest of several retention periods in days; -1 means unlimited."""
    return UNLIMITED if UNLIMITED in days else max(days)


def shortest(*days: int) -> int:
    """Return the shortest of several retention periods in days; -1 means unlimited."""
    return min((limited for limited in days if limited != UNLIMITED), default=UNLIMITED)


#: upper bounds for values in the plan file, so that each value fits into its database column
MAX_LIMIT = 10**12
MAX_RATE = 10**9
MAX_DAYS = 36_500
MAX_TEXT = 1_000
MAX_ID = 255


class PlanFileError(ValueError):
    """Raised if the plan file is invalid. The message contains the file, the field, the value and the fix."""


def read_plans(path: Path) -> Plans:
    """Return the plans: the built-in plans with the changes from the operator's plan file.

    Raises:
        PlanFileError: The file cannot be read or is invalid.
    """
    try:
        return _overridden(_load(path))
    except PlanFileError as error:
        raise PlanFileError(f"the plan file {str(path)!r} cannot be used: {error}") from None


def _overridden(content: Mapping[str, object]) -> Plans:
    plans = dict(BUILT_IN)
    for name, fields in content.items():
        if name not in PLAN_NAMES:
            raise PlanFileError(f"{name!r} is not a plan; the plans are {', '.join(PLAN_NAMES)}")
        if not isinstance(fields, dict):
            raise PlanFileError(
                f"plan {name!r} is {_shown(fields)}; write a table with the fields of the plan instead"
            )
        values = {field: _read(name, field, value) for field, value in fields.items()}
        plans[name] = replace(plans[name], **values)
    _refuse_shared_prices(plans)
    return MappingProxyType(plans)


def _load(path: Path) -> Mapping[str, object]:
    readers: dict[str, Callable[[bytes], object]] = {".json": strict_json.loads, ".toml": _toml}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise PlanFileError("its name must end in .toml or .json")
    try:
        content = reader(path.read_bytes())
    except OSError as error:
        raise PlanFileError(
            f"{error.strerror}; name a readable file, or unset TOOLGATE_PLANS_FILE"
        ) from error
    except ValueError as error:
        raise PlanFileError(str(error)) from error
    if not isinstance(content, dict):
        raise PlanFileError("it must contain a table or object with one member per plan")
    return content


def _toml(raw: bytes) -> object:
    return tomllib.loads(raw.decode("utf-8"), parse_float=Decimal)


def _read(plan: str, field: str, value: object) -> Any:
    reader = _READERS.get(field)
    if reader is None:
        raise PlanFileError(
            f"plan {plan!r} has no field {field!r}; the possible fields are {', '.join(_READERS)}"
        )
    try:
        return reader(value)
    except ValueError as error:
        raise PlanFileError(f"{field!r} of plan {plan!r} is {_shown(value)}; {error}") from None


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Decimal) else repr(value)


def _whole(smallest: int, largest: int, *, or_unlimited: bool) -> Callable[[object], int]:
    rule = f"write a whole number from {smallest} to {largest}" + (
        ", or -1 for unlimited" if or_unlimited else ""
    )

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(rule)  # noqa: TRY004 - all invalid values raise ValueError
        if not (smallest <= value <= largest or (or_unlimited and value == UNLIMITED)):
            raise ValueError(rule)
        return value

    return read


def _price(value: object) -> int | Decimal:
    # Reject `nan` and `inf`, which TOML allows, because the comparison below raises an error for `nan`.
    if isinstance(value, Decimal) and not value.is_finite():
        value = None
    if isinstance(value, int | Decimal) and not isinstance(value, bool) and 0 <= value <= MAX_LIMIT:
        return value
    raise ValueError(f"write a number from 0 to {MAX_LIMIT}")


def _features(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(feature in FEATURES for feature in value):
        return tuple(dict.fromkeys(value))
    raise ValueError(f"write a list of some of {', '.join(FEATURES)}")


def _text(value: object) -> str:
    if isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable():
        return value
    raise ValueError(f"write one line of at most {MAX_TEXT} printable characters")


def _ids(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(_is_price_id(one) for one in value):
        return tuple(dict.fromkeys(value))
    raise ValueError("write a list of the provider's price ids, for example ['price_1Q...']")


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("write true or false")


def _is_price_id(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= MAX_ID and value.isascii() and value.isprintable()


def _refuse_shared_prices(plans: Plans) -> None:
    owners: dict[str, str] = {}
    for plan in plans.values():
        for price_id in plan.provider_price_ids:
            other = owners.setdefault(price_id, plan.name)
            if other != plan.name:
                raise PlanFileError(
                    f"the price {price_id!r} is in 'provider_price_ids' of {other!r} and of {plan.name!r}; "
                    "remove it from one of them, because each price belongs to one plan"
                )


_READERS: Mapping[str, Callable[[object], object]] = {
    "price": _price,
    "requests_per_minute": _whole(1, MAX_RATE, or_unlimited=False),
    "max_logs_per_month": _whole(0, MAX_LIMIT, or_unlimited=True),
    "log_retention_days": _whole(1, MAX_DAYS, or_unlimited=True),
    "max_agents": _whole(0, MAX_LIMIT, or_unlimited=True),
    "max_team_members": _whole(1, MAX_LIMIT, or_unlimited=True),
    "features": _features,
    "description": _text,
    "provider_price_ids": _ids,
    "ip_allow_list": _switch,
}
