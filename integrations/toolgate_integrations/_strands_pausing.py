"""Pauses of a run of Strands for a person, and what the run was told when it went on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

from strands.middleware import ExecuteToolContext

from toolgate import ApprovalPending
from toolgate_integrations._telling import shown

__all__ = ["can_pause", "pause", "rejected"]


def can_pause(context: ExecuteToolContext) -> bool:
    """Whether a run stands behind a call that can stop for it: not where no model made it, nor in the background."""
    return type(context) is ExecuteToolContext and "event_loop_cycle_id" in context.invocation_state


def pause(context: ExecuteToolContext, pending: ApprovalPending) -> None:
    """Stop the run for a held call.

    Raises:
        InterruptException: Always; the framework takes it.
    """
    asked = {
        "type": "tool_approval",
        "tool_use_id": context.tool_use["toolUseId"],
        "name": context.tool_use["name"],
        "input": context.tool_use["input"],
        **shown(pending),
    }
    # An answer ends one pause only: whoever was woken too early stops anew, under another name.
    for name in _names():
        context.interrupt(name, reason=asked)


def rejected(context: ExecuteToolContext) -> str | None:
    """Why a person rejected a call in the framework; None if nobody did."""
    if not can_pause(context):
        return None
    for name in _names():
        answer = context.interrupt(name, response=_NONE).response
        if answer is _NONE:
            return None
        if (why := _no(answer)) is not None:
            return why
    return None


def _no(answer: object) -> str | None:
    """The reason that an answer gives, if it is a no; nothing else is taken for one."""
    if answer is False or (isinstance(answer, str) and answer.strip().lower() in _NOES):
        return ""
    if isinstance(answer, Mapping) and answer.get("approved") is False:
        said: Any = answer.get("message")
        return said if isinstance(said, str) else ""
    return None


def _names() -> Iterator[str]:
    yield "toolgate"
    for number in count(2):
        yield f"toolgate-{number}"


_NONE: Final = object()
_NOES: Final = frozenset({"n", "no", "reject", "rejected", "deny", "denied", "decline", "declined"})
