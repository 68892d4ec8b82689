"""The operator's plan file: TOML or JSON that overrides the built-in plans (decisions §7).

A table per plan, with the fields that differ::

    [pro]
    price = 49
    max_agents = 20
    provider_price_ids = ["price_1Q..."]
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolgate_service import exact_json
from toolgate_service.plans import BUILT_IN, FEATURES, PLAN_NAMES, UNLIMITED, Plans

#: no limit is larger, so that every count fits where it is kept
MAX_LIMIT = 10**12
MAX_RATE = 10**9
MAX_DAYS = 36_500
MAX_TEXT = 1_000
MAX_ID = 255


class PlanFileError(ValueError):
    """The plan file cannot be used; the message names the file, the place in it, the value and the cure."""


def read_plans(path: Path) -> Plans:
    """Return the built-in plans, overridden by a file.

    Raises:
        PlanFileError: the file cannot be read, or says something that no plan has.
    """
    try:
        return _overridden(_load(path))
    except PlanFileError as error:
        raise PlanFileError(f"the plan file {str(path)!r} cannot be used: {error}") from None


def _overridden(content: Mapping[str, object]) -> Plans:
    plans = dict(BUILT_IN)
    for name, fields in content.items():
        if name not in PLAN_NAMES:
            raise PlanFileError(f"{name!r} is no plan; the plans are {', '.join(PLAN_NAMES)}")
        if not isinstance(fields, dict):
            raise PlanFileError(f"plan {name!r} is {_shown(fields)}; write its fields as a table")
        values = {field: _read(name, field, value) for field, value in fields.items()}
        plans[name] = replace(plans[name], **values)
    _refuse_shared_prices(plans)
    return MappingProxyType(plans)


def _load(path: Path) -> Mapping[str, object]:
    readers: dict[str, Callable[[bytes], object]] = {".json": exact_json.loads, ".toml": _toml}
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
        raise PlanFileError("it must hold one table or object, keyed by plan")
    return content


def _toml(raw: bytes) -> object:
    return tomllib.loads(raw.decode("utf-8"), parse_float=Decimal)


def _read(plan: str, field: str, value: object) -> Any:
    reader = _READERS.get(field)
    if reader is None:
        raise PlanFileError(
            f"plan {plan!r} has no field {field!r}; what a file may set is {', '.join(_READERS)}"
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
            raise ValueError(rule)  # noqa: TRY004 - one kind of error for a field that cannot be used
        if not (smallest <= value <= largest or (or_unlimited and value == UNLIMITED)):
            raise ValueError(rule)
        return value

    return read


def _price(value: object) -> int | Decimal:
    # TOML has nan and inf, which compare with nothing.
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
    raise ValueError("write a list of the provider's price ids, for instance ['price_1Q...']")


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
                    "a price buys one plan"
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
