"""Options that all plugins share, and their validation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal, TypeAlias, TypeVar

from toolgate import ConfigurationError, Guard

__all__ = [
    "OnHold",
    "OnHoldWithoutPause",
    "set_context",
    "text_or_none",
    "valid_on_hold",
    "valid_options",
    "valid_rejections",
]

T = TypeVar("T")
OnHold: TypeAlias = Literal["pause", "wait", "raise", "notify_model"]
#: Values of `on_hold` for frameworks that cannot pause a run.
OnHoldWithoutPause: TypeAlias = Literal["wait", "raise", "notify_model"]

# Former names of `on_hold` values, with their current names. The former names are accepted until version 0.2.
_DEPRECATED: Final = dict.fromkeys(
    ("approval", "confirmation", "defer", "elicit", "event", "interrupt", "stop", "terminate"), "pause"
) | {"tell": "notify_model"}


def valid_options(guard: object, agents: object, hold_timeout: object) -> None:
    """Validate the options that every plugin accepts.

    Raises:
        ConfigurationError: An option is invalid; the message contains its name, its value and the fix.
    """
    if guard is not None and not isinstance(guard, Guard):
        raise ConfigurationError(
            f"guard is {guard!r}; pass a toolgate.Guard, or None to use the settings in the environment variables"
        )
    if agents is not None and not isinstance(agents, Mapping):
        raise ConfigurationError(f"agents is {agents!r}; pass a mapping of agent names to agent ids")
    if hold_timeout is not None and not _is_positive(hold_timeout):
        raise ConfigurationError(
            f"hold_timeout is {hold_timeout!r}; use seconds above 0, or None to wait without limit"
        )


def valid_on_hold(on_hold: object, *, can_pause: bool = False) -> OnHold:
    """Validate the option `on_hold` and return its value. A deprecated value is replaced by the current one.

    Raises:
        ConfigurationError: The value is unknown, or it is `pause` and the framework cannot pause a run.
    """
    words: dict[object, OnHold] = {"wait": "wait", "raise": "raise", "notify_model": "notify_model"}
    if can_pause:
        words = {"pause": "pause", **words}
    renamed = _DEPRECATED.get(on_hold) if isinstance(on_hold, str) else None
    if renamed in words:
        warnings.warn(f"on_hold={on_hold!r} is deprecated; use {renamed!r}", DeprecationWarning, stacklevel=4)
        return words[renamed]
    if on_hold not in words:
        *others, last = map(repr, words)
        raise ConfigurationError(f"on_hold is {on_hold!r}; use {', '.join(others)} or {last}")
    return words[on_hold]


def text_or_none(value: object, name: str) -> str | None:
    """Return `value` if it is a string or None.

    Raises:
        ConfigurationError: `value` has another type; the message contains the option's `name`.
    """
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{name} is {value!r}; pass a string, or remove the option")
    return value


def valid_rejections(rejected: object, waiting: Iterable[str]) -> dict[str, str]:
    """Validate the rejected calls, and return the reasons by call id.

    Raises:
        ConfigurationError: `rejected` is not a mapping of call ids to texts, or contains a call that is not in
            `waiting`.
    """
    if rejected is None:
        return {}
    if not isinstance(rejected, Mapping) or not all(
        isinstance(each, str) for pair in rejected.items() for each in pair
    ):
        raise ConfigurationError(
            f"rejected is {rejected!r}; pass a mapping from ids of tool calls to the reasons of their rejection"
        )
    if unknown := rejected.keys() - set(waiting):
        raise ConfigurationError(
            f"rejected contains the tool call {min(unknown)!r}, which is not waiting for approval; remove it"
        )
    return dict(rejected)


@contextmanager
def set_context(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a context variable inside the `with` block, and restore its previous value afterwards."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def _is_positive(seconds: object) -> bool:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return is_number and 0 < float(seconds) < math.inf  # type: ignore[arg-type]  # `is_number` is True here
