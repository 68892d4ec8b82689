"""OpenTelemetry, where the application has set it up; nothing of it is loaded otherwise."""

from __future__ import annotations

import os
import sys
import weakref
from typing import TYPE_CHECKING, Final, Protocol

from toolgate.calls import Call, Flow

if TYPE_CHECKING:
    from toolgate.spans import ObservedFlow

__all__ = [
    "Backlogged",
    "Lossy",
    "abandoned",
    "lost",
    "observed",
    "remember_losses",
    "tool_goes_on",
    "waiting",
    "watch",
]


class Backlogged(Protocol):
    """Where log entries wait."""

    def __len__(self) -> int:
        """How many wait."""
        ...


class Lossy(Protocol):
    """What counts log entries that were given up."""

    count: int


_backlogs: Final = weakref.WeakSet[Backlogged]()
# Kept although their guards are gone: a counter never falls. Only guards that lost something have one here.
_losses: Final[list[Lossy]] = []
if hasattr(os, "register_at_fork"):
    # What the parent lost is the parent's to tell.
    os.register_at_fork(after_in_child=_losses.clear)


def watch(backlog: Backlogged) -> None:
    """Have `backlog` counted in the metrics for as long as it lives."""
    _backlogs.add(backlog)


def waiting() -> int:
    """How many log entries of this process the gateway has not acknowledged."""
    return sum(map(len, list(_backlogs)))


def remember_losses(losses: Lossy) -> None:
    """Have `losses` counted in the metrics for as long as the process lives."""
    _losses.append(losses)


def lost() -> int:
    """How many log entries of this process were given up."""
    return sum(each.count for each in list(_losses))


def observed(flow: Flow, call: Call, tool: str | None) -> Flow:
    """`flow`, told to OpenTelemetry if the application has a provider, and else the very same.

    Args:
        flow: The road of one call.
        call: The call.
        tool: The name of the function, or None for a block.
    """
    # Whoever has set a provider has loaded the API: it is not looked for otherwise.
    if "opentelemetry.trace" not in sys.modules and "opentelemetry.metrics" not in sys.modules:
        return flow
    try:
        from toolgate.spans import ObservedFlow, current_telemetry

        telemetry = current_telemetry()
    except Exception:  # noqa: BLE001 - a half-installed or foreign provider never stops a call
        return flow
    return flow if telemetry is None else ObservedFlow(flow, call, tool, telemetry)


def abandoned(flow: Flow, error: BaseException) -> None:
    """`error` ended the call of `flow`, or came out of it."""
    if (told := _told(flow)) is not None:
        told.abandoned(error)


def tool_goes_on(flow: Flow) -> None:
    """The tool has returned and is still to do its work, elsewhere: its span is no longer the current one."""
    if (told := _told(flow)) is not None:
        told.detach()


def _told(flow: Flow) -> ObservedFlow | None:
    spans = sys.modules.get("toolgate.spans")
    return flow if spans is not None and isinstance(flow, spans.ObservedFlow) else None
