"""Permissions that an application passes to `Guard.embedded`: actions, or actions with limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias, TypedDict

from toolgate._options import exact_action
from toolgate.errors import ConfigurationError

__all__ = ["Actions", "Limits", "Permitted", "is_amount_required", "read_limits", "read_permissions"]


class Limits(TypedDict, total=False):
    """Limits of an action.

    Attributes:
        max_amount: The largest `amount` that a call may have.
        amount_required: True if a call without an amount is denied. Applies only with `max_amount`; default True.
    """

    max_amount: float | Decimal
    amount_required: bool


Actions: TypeAlias = Iterable[str] | Mapping[str, Limits | None]

_KNOWN: Final = ("max_amount", "amount_required")


@dataclass(frozen=True, slots=True)
class Permitted:
    """Permission for one action.

    Attributes:
        action: Action of the call, such as `stripe.refund`.
        held: True if each call requires an approval.
        max_amount: The largest amount that a call may have; None for no limit.
        amount_required: True if a call without an amount is denied.
    """

    action: str
    held: bool
    max_amount: Decimal | None = None
    amount_required: bool = False


def read_permissions(allow: Actions, require_approval: Actions) -> list[Permitted]:
    """Return the permissions of the arguments `allow` and `require_approval`.

    Raises:
        ConfigurationError: An action or limit is wrong; the message names it and the fix.
    """
    found: dict[str, Permitted] = {}
    for name, actions, held in (("allow", allow, False), ("require_approval", require_approval, True)):
        for action, limits in _pairs(name, actions):
            if action in found:
                raise ConfigurationError(
                    f"Duplicate action {action!r}: name it once, in allow or in require_approval"
                )
            found[action] = read_limits(action, limits, held=held)
    return list(found.values())


def read_limits(action: str, limits: Mapping[str, Any] | None, *, held: bool) -> Permitted:
    """Return the permission for `action` with these limits.

    Raises:
        ConfigurationError: An action or limit is wrong; the message names it and the fix.
    """
    exact_action(action)
    if limits is not None and not isinstance(limits, Mapping):
        raise ConfigurationError(
            f"the limits of action {action!r} are {limits!r}; write {{'max_amount': 100}} or None"
        )
    given = dict(limits or {})
    for name in given:
        if name not in _KNOWN:
            raise ConfigurationError(
                f"action {action!r} has an unknown limit {name!r}; use {' or '.join(_KNOWN)}"
            )
    maximum = given.get("max_amount")
    wanted = given.get("amount_required")
    if "amount_required" in given and not isinstance(wanted, bool):
        raise ConfigurationError(f"amount_required of action {action!r} is {wanted!r}; use True or False")
    if wanted and maximum is None:
        raise ConfigurationError(
            f"action {action!r} has amount_required=True without a maximum; add max_amount, "
            "or remove amount_required"
        )
    required = is_amount_required(has_maximum=maximum is not None, wanted=wanted)
    return Permitted(action, held, None if maximum is None else _amount(action, maximum), required)


def is_amount_required(*, has_maximum: bool, wanted: bool | None) -> bool:
    """Return True if calls without an amount are denied. This is the default for actions with a maximum amount.

    Args:
        has_maximum: True if the action has a `max_amount`.
        wanted: Value that the application passed as `amount_required`; None if it passed none.
    """
    return has_maximum and wanted is not False


def _pairs(name: str, actions: object) -> list[tuple[str, Any]]:
    if isinstance(actions, Mapping):
        return list(actions.items())
    if isinstance(actions, str) or not isinstance(actions, Iterable):
        raise ConfigurationError(
            f"{name} is {actions!r}; pass a list of actions, like {name}=['service.operation'], or a mapping "
            "from actions to their limits"
        )
    return [(action, None) for action in actions]


def _amount(action: str, maximum: object) -> Decimal:
    amount = _decimal(maximum)
    if amount is None or not amount.is_finite() or amount < 0:
        raise ConfigurationError(f"max_amount of action {action!r} is {maximum!r}; use a number from 0")
    return amount


def _decimal(number: object) -> Decimal | None:
    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        return None
    # `repr` returns the digits that the caller wrote; Decimal(0.1) would be 0.1000000000000000055….
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
