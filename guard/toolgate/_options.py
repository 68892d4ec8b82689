"""Options of guarded functions and action blocks, and the permissions that `Guard.embedded` receives.

All of them are validated when the decorator, block or guard is created.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, cast

from toolgate._identity import valid_id
from toolgate._telemetry import warn_renamed
from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from decimal import Decimal

    from toolgate._call import OnHold, OnHoldWord
    from toolgate._capture.rules import Rules

__all__ = [
    "Actions",
    "Limits",
    "Options",
    "Permitted",
    "current_on_hold",
    "exact_action",
    "is_amount_required",
    "make_options",
    "read_amount",
    "read_limits",
    "read_permissions",
    "valid_action",
    "valid_answer",
]

_MAX_ACTION_LENGTH: Final = 255
_WILDCARDS: Final = "*?"
_WORDS: Final = ("pause", "wait", "raise")
_ANSWERS: Final = {"pause": "raise", "raise": "raise", "wait": "wait", "check": "check"}


@dataclass(frozen=True, slots=True)
class Options:
    """Validated options of one guarded function or action block.

    Attributes:
        action: Action of the call, such as `stripe.refund`.
        rules: Rules that decide which arguments are shown, hidden or omitted, and which values are computed.
        on_hold: Reaction to a required approval: raise `ApprovalPending`, wait, or call a function that decides.
        hold_timeout: Seconds to wait for an approver, or None for no limit.
        agent_id: Id of the agent that these options set, or None.
        fail_open: True if a tool may run when the gateway cannot be reached.
        at_call: True for an action block, whose `agent_id` takes precedence over `acting_as`. False for a decorated
            function, for which `acting_as` takes precedence over `agent_id`.
        tool: Name of the decorated function; None for an action block.
    """

    action: str
    rules: Rules
    on_hold: OnHold
    hold_timeout: float | None
    agent_id: str | None
    fail_open: bool = False
    at_call: bool = False
    tool: str | None = None


def make_options(
    action: str,
    rules: Rules,
    *,
    on_hold: OnHold = "raise",
    hold_timeout: float | None = None,
    agent_id: str | None = None,
    fail_open: bool = False,
    at_call: bool = False,
) -> Options:
    """Validate the options and return them.

    Raises:
        ConfigurationError: An option is wrong; the message names it, its value and the fix.
    """
    if not isinstance(fail_open, bool):
        raise ConfigurationError(f"fail_open is {fail_open!r}; use True or False")
    return Options(
        action=valid_action(action),
        rules=rules,
        on_hold=_valid_on_hold(on_hold),
        hold_timeout=_valid_hold_timeout(hold_timeout, on_hold),
        agent_id=None if agent_id is None else valid_id(agent_id, "agent_id"),
        fail_open=fail_open,
        at_call=at_call,
    )


def valid_action(action: object) -> str:
    """Return `action` if it is valid: 1 to 255 visible ASCII characters.

    Raises:
        ConfigurationError: The action is not valid; the message contains it and the fix.
    """
    if not isinstance(action, str):
        raise ConfigurationError(
            f"the action is {action!r}, but it must be a string; write it in parentheses: "
            "@guarded('service.operation')"
        )
    if not 0 < len(action) <= _MAX_ACTION_LENGTH or not all("!" <= char <= "~" for char in action):
        raise ConfigurationError(
            f"invalid action {action[:40]!r}: use 1 to {_MAX_ACTION_LENGTH} visible ASCII characters, "
            "like 'service.operation'"
        )
    return action


def exact_action(action: object) -> str:
    """Return `action` if a permission can contain it: it is valid and has no wildcards.

    Raises:
        ConfigurationError: The action is not valid or has a wildcard; the message contains it and the fix.
    """
    name = valid_action(action)
    found = next((char for char in name if char in _WILDCARDS), None)
    if found is not None:
        raise ConfigurationError(
            f"action {name[:40]!r} contains the wildcard {found!r}, but permissions match actions exactly; "
            "create one permission for each action"
        )
    return name


def valid_answer(on_hold: OnHold, answer: object) -> OnHoldWord:
    """Return `raise`, `wait` or `check` for the value that an `on_hold` function returned.

    Raises:
        ConfigurationError: The value is not one of those that the function may return.
    """
    if answer is None:
        return "raise"
    # Only a `str` is accepted, and it is converted to a plain `str`, because another class may define `==` so that its
    # instances equal any word.
    if isinstance(answer, str) and (word := _ANSWERS.get(str.__str__(answer))):
        return cast("OnHoldWord", word)
    raise ConfigurationError(
        f"on_hold {on_hold!r} returned {_described(answer)}; return 'pause', 'wait', 'check' or None. The "
        "function cannot allow the call: only the gateway can"
    )


def current_on_hold(on_hold: Any, *, stacklevel: int) -> Any:
    """Return the current name of an `on_hold` value of the ASGI middleware, with a warning if it is the former name.

    Raises:
        ConfigurationError: If the value is unknown.
    """
    if on_hold in (None, "notify_model", "wait"):
        return on_hold
    # The former name is accepted until 0.2.
    if on_hold != "tell":
        raise ConfigurationError(f"Invalid on_hold {on_hold!r}: expected 'notify_model' or 'wait'")
    warn_renamed("on_hold='tell'", "'notify_model'", stacklevel=stacklevel)
    return "notify_model"


def _valid_on_hold(on_hold: object) -> OnHold:
    if isinstance(on_hold, str) and on_hold in _WORDS:
        return cast("OnHold", on_hold)
    if callable(on_hold) and not isinstance(on_hold, type):
        return cast("OnHold", on_hold)
    raise ConfigurationError(
        f"on_hold is {on_hold!r}; use 'pause', 'wait', 'raise' or a function that accepts the ApprovalPending error"
    )


def _valid_hold_timeout(seconds: object, on_hold: OnHold) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ConfigurationError(
            f"hold_timeout is {seconds!r}; use seconds above 0, or None to wait without limit"
        )
    if isinstance(on_hold, str) and on_hold != "wait":
        raise ConfigurationError(
            f"hold_timeout is {seconds!r}, but it has an effect only with on_hold='wait'; add "
            "on_hold='wait' or remove hold_timeout"
        )
    return float(seconds)


def _described(answer: object) -> str:
    try:
        from toolgate._capture.context import clip

        return clip(repr(answer)[:200])
    except Exception:  # noqa: BLE001 - the `__repr__` of an application's object may raise anything
        return f"an object of {type(answer).__name__!r}"


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
                    f"Duplicate action {action!r}: list it only once, either in allow or in require_approval"
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
    amount = read_amount(maximum)
    if amount is None:
        raise ConfigurationError(f"max_amount of action {action!r} is {maximum!r}; use a number from 0")
    return amount


def read_amount(number: object) -> Decimal | None:
    """Return `number` as an exact decimal number, or None if it is not a finite number from 0."""
    # The import is not at the top of the module, so that decorating a function does not load the imported module.
    from decimal import Decimal

    if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
        return None
    # `repr` returns the digits that the caller wrote; Decimal(0.1) would be 0.1000000000000000055….
    amount = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    return amount if amount.is_finite() and amount >= 0 else None
