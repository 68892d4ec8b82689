"""Functions that call `toolgate.otel` only if the application uses OpenTelemetry, and otherwise do nothing.

This module also counts queued and lost log entries for the metrics of `toolgate.otel`.
"""

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
    """Interface of an outbox, which contains log entries that the gateway has not acknowledged."""

    def __len__(self) -> int:
        """Return the number of entries."""
        ...


class Losses(Protocol):
    """Interface of an object that counts lost log entries."""

    count: int


_backlogs: Final = weakref.WeakSet[Backlog]()
# The list keeps the counters alive, because their sum must not decrease when a guard is garbage-collected. It stays
# short, because only guards that have lost entries add their counter.
_losses: Final[list[Losses]] = []
if hasattr(os, "register_at_fork"):
    # A forked child starts from 0, because the parent process reports its own lost entries.
    os.register_at_fork(after_in_child=_losses.clear)


def observe(flow: Flow, call: Call, tool: str | None) -> Flow:
    """Wrap `flow` so that it creates spans and metrics, if the application has set an OpenTelemetry provider.

    Args:
        flow: The generator that checks and logs one call.
        call: State of the call.
        tool: Name of the function, or None for a block.
    """
    # If neither module is imported, the application cannot have set an OpenTelemetry provider.
    if "opentelemetry.trace" not in sys.modules and "opentelemetry.metrics" not in sys.modules:
        return flow
    try:
        from toolgate.otel import ObservedFlow, current_telemetry

        telemetry = current_telemetry()
    except Exception:  # noqa: BLE001 - errors of OpenTelemetry or a provider must not stop a call
        return flow
    return flow if telemetry is None else ObservedFlow(flow, call, tool, telemetry)


def flow_failed(flow: Flow, error: BaseException) -> None:
    """Report to OpenTelemetry that the guarded call that `flow` handles ended with `error`."""
    if (observed := _observed(flow)) is not None:
        observed.failed(error)


def detach_span(flow: Flow) -> None:
    """Restore the OpenTelemetry span that was current before a guarded call.

    This is needed for a call that returns before its tool has ended, such as a call that returns a generator.
    """
    if (observed := _observed(flow)) is not None:
        observed.detach()


def trace_headers() -> Mapping[str, str]:
    """Return the headers `traceparent` and `tracestate` (W3C Trace Context) of the current span; without a span, none.

    OpenTelemetry baggage is not sent, because it may contain any data. The propagators that the application has
    configured for its own requests are not used.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    headers: dict[str, str] = {}
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(headers)
    except Exception:  # noqa: BLE001 - errors of OpenTelemetry or a provider must not stop a call
        return {}
    return headers


def count_backlog(backlog: Backlog) -> None:
    """Include an outbox's entries in the metric `toolgate.outbox.entries` for as long as the outbox object exists."""
    _backlogs.add(backlog)


def pending_entries() -> int:
    """Return the number of log entries of this process that the gateway has not acknowledged."""
    return sum(map(len, list(_backlogs)))


def count_losses(losses: Losses) -> None:
    """Include a counter of lost entries in the metric `toolgate.entries.lost` for as long as the process runs."""
    _losses.append(losses)


def lost_entries() -> int:
    """Return the number of log entries of this process that were lost."""
    return sum(each.count for each in list(_losses))


def _observed(flow: Flow) -> ObservedFlow | None:
    otel = sys.modules.get("toolgate.otel")
    return flow if otel is not None and isinstance(flow, otel.ObservedFlow) else None
