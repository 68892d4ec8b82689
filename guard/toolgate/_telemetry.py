"""Switch to OpenTelemetry: `otel` is imported only if the application has set a provider."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from toolgate._call import Call
    from toolgate._effects import Flow
    from toolgate.otel import ObservedFlow

__all__ = [
    "Backlog",
    "Losses",
    "count_backlog",
    "count_losses",
    "detach_span",
    "flow_failed",
    "lost_entries",
    "observe",
    "pending_entries",
    "trace_headers",
]


class Backlog(Protocol):
    """Store of log entries that the gateway has not acknowledged."""

    def __len__(self) -> int:
        """Return the number of entries."""
        ...


class Losses(Protocol):
    """Counter of log entries that were lost."""

    count: int


_backlogs: Final = weakref.WeakSet[Backlog]()
# Strong references: a counter never decreases, also when its guard is gone. Only guards that lost entries are here.
_losses: Final[list[Losses]] = []
if hasattr(os, "register_at_fork"):
    # The parent reports its own losses.
    os.register_at_fork(after_in_child=_losses.clear)


def observe(flow: Flow, call: Call, tool: str | None) -> Flow:
    """Return `flow`, with spans and metrics if the application has set a provider of OpenTelemetry.

    Args:
        flow: The flow of one call.
        call: The call.
        tool: Name of the function, or None for a block.
    """
    # An application that has set a provider has imported the API.
    if "opentelemetry.trace" not in sys.modules and "opentelemetry.metrics" not in sys.modules:
        return flow
    try:
        from toolgate.otel import ObservedFlow, current_telemetry

        telemetry = current_telemetry()
    except Exception:  # noqa: BLE001 - an incomplete installation or another library's provider never stops a call
        return flow
    return flow if telemetry is None else ObservedFlow(flow, call, tool, telemetry)


def flow_failed(flow: Flow, error: BaseException) -> None:
    """Report that `error` ended the call of `flow`."""
    if (observed := _observed(flow)) is not None:
        observed.failed(error)


def detach_span(flow: Flow) -> None:
    """Make the span of a tool that continues after its call no longer the current one."""
    if (observed := _observed(flow)) is not None:
        observed.detach()


def trace_headers() -> Mapping[str, str]:
    """Return the headers `traceparent` and `tracestate` (W3C Trace Context) of the current span; empty without one.

    Neither baggage, which may contain anything, nor the propagators that the application chose for its own requests.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    headers: dict[str, str] = {}
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(headers)
    except Exception:  # noqa: BLE001 - an incomplete installation or another library's provider never stops a call
        return {}
    return headers


def count_backlog(backlog: Backlog) -> None:
    """Include `backlog` in the metrics for as long as it exists."""
    _backlogs.add(backlog)


def pending_entries() -> int:
    """Return the number of log entries of this process that the gateway has not acknowledged."""
    return sum(map(len, list(_backlogs)))


def count_losses(losses: Losses) -> None:
    """Include `losses` in the metrics for as long as the process runs."""
    _losses.append(losses)


def lost_entries() -> int:
    """Return the number of log entries of this process that were lost."""
    return sum(each.count for each in list(_losses))


def _observed(flow: Flow) -> ObservedFlow | None:
    otel = sys.modules.get("toolgate.otel")
    return flow if otel is not None and isinstance(flow, otel.ObservedFlow) else None
