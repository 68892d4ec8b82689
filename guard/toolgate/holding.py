"""What `on_hold` may be, and what may come of asking it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Literal, cast

from toolgate.errors import ApprovalPending, ConfigurationError
from toolgate.tools import is_async

if TYPE_CHECKING:
    from toolgate.calls import OnHold

__all__ = ["aask", "ask", "refuse_async", "valid_on_hold"]

_ANSWERS = ("raise", "wait", "check")


def valid_on_hold(on_hold: object) -> OnHold:
    """Return `on_hold` if it can be one.

    Raises:
        ConfigurationError: Naming it and the cure.
    """
    if (isinstance(on_hold, str) and on_hold in ("raise", "wait")) or _is_holder(on_hold):
        return cast("OnHold", on_hold)
    raise ConfigurationError(
        f"on_hold is {on_hold!r}; use 'raise', 'wait' or a function that is given the ApprovalPending"
    )


def refuse_async(on_hold: OnHold, what: str) -> None:
    """Refuse an asynchronous `on_hold` where nothing can await it.

    Raises:
        ConfigurationError: Naming it and `what` is synchronous.
    """
    if not isinstance(on_hold, str) and is_async(on_hold):
        raise ConfigurationError(
            f"on_hold is the coroutine function {on_hold!r}, but {what} is synchronous; use a plain function"
        )


def ask(on_hold: OnHold, pending: ApprovalPending) -> Literal["raise", "wait", "check"]:
    """Ask `on_hold` about a held call; what it raises goes through.

    Raises:
        ConfigurationError: If it answers anything that means nothing.
    """
    answer: object = _called(on_hold, pending)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ConfigurationError(
            f"on_hold {on_hold!r} gave something to await, but the call is synchronous; use a plain function"
        )
    return _meant(on_hold, answer)


async def aask(on_hold: OnHold, pending: ApprovalPending) -> Literal["raise", "wait", "check"]:
    """As `ask`; what can be awaited is."""
    answer: object = _called(on_hold, pending)
    if inspect.isawaitable(answer):
        answer = await cast("Awaitable[object]", answer)
    return _meant(on_hold, answer)


def _called(on_hold: OnHold, pending: ApprovalPending) -> object:
    return on_hold if isinstance(on_hold, str) else on_hold(pending)


def _meant(on_hold: OnHold, answer: object) -> Literal["raise", "wait", "check"]:
    if answer is None:
        return "raise"
    # Text and nothing else: whatever compares equal to everything must not mean something.
    if isinstance(answer, str) and str.__str__(answer) in _ANSWERS:
        return cast("Literal['raise', 'wait', 'check']", str.__str__(answer))
    raise ConfigurationError(
        f"on_hold {on_hold!r} answered {_shown(answer)}; return 'raise', 'wait', 'check' or None. "
        "No answer lets the tool run: only the gateway does"
    )


def _is_holder(on_hold: object) -> bool:
    return callable(on_hold) and not isinstance(on_hold, type)


def _shown(answer: object) -> str:
    try:
        from toolgate._capture.facts import clip

        return clip(repr(answer)[:200])
    except Exception:  # noqa: BLE001 - other people's __repr__ may do anything
        return f"an object of {type(answer).__name__!r}"
