"""Standard logging (logger `toolgate`), deprecation warnings, and the switch to OpenTelemetry.

The functions for spans and trace headers call `toolgate.otel` only if the application uses OpenTelemetry, and otherwise
do nothing. This module also counts queued and lost log entries for the metrics of `toolgate.otel`.

Extra fields of each log record:

toolgate_event        decision | waiting | approved | edited | cancelled | cancel_failed | record | record_failed |
                      record_resumed | outbox_fills | entries_lost | fail_open | request_failed
toolgate_action       the action
toolgate_agent_id     the agent
toolgate_outcome      allowed | blocked (denied) | held (approval required) | unasked (run without a decision), or the
                      status of the log entry
toolgate_reason       explanation by the gateway, the approver or the SDK, or None
toolgate_approval_id  the approval request, or None
toolgate_entries      number of log entries that are queued or lost
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

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
    "log_event",
    "logger",
    "lost_entries",
    "observe",
    "pending_entries",
    "report_setup_error",
    "set_setup_error_listener",
    "trace_headers",
    "warn_renamed",
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


logger: Final = logging.getLogger("toolgate")

Event: TypeAlias = Literal[
    "decision",
    "waiting",
    "approved",
    "edited",
    "cancelled",
    "cancel_failed",
    "record",
    "record_failed",
    "fail_open",
    "request_failed",
]

_setup_error_listener: Callable[[Exception], None] | None = None


def log_event(
    event: Event,
    action: object,
    agent_id: object,
    outcome: object,
    *,
    reason: object = None,
    approval_id: object = None,
    level: int = logging.INFO,
) -> None:
    """Write one record to the logger `toolgate`. The record never contains an argument of a call."""
    if not logger.isEnabledFor(level):
        return
    if reason:
        from toolgate._capture.redaction import scrub

        # The reason is redacted, because a text of an approver or of the gateway may contain a secret.
        reason = scrub(str(reason), ())
    logger.log(
        level,
        # %r escapes line breaks in a reason, so that the record is one line.
        "%s: action %r of agent %r: %s%s",
        event,
        action,
        agent_id,
        outcome,
        f" ({reason!r})" if reason else "",
        extra={
            "toolgate_event": event,
            "toolgate_action": action,
            "toolgate_agent_id": agent_id,
            "toolgate_outcome": outcome,
            "toolgate_reason": reason,
            "toolgate_approval_id": approval_id,
        },
    )


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that `old` is the deprecated name of `new`; `stacklevel` makes the warning show the code that uses `old`."""
    warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=stacklevel)


def set_setup_error_listener(
    listener: Callable[[Exception], None] | None,
) -> Callable[[Exception], None] | None:
    """Register the function to call with each setup error of this process; None removes the registered function.

    The pytest plugin uses the listener to fail a test in which an agent framework catches a setup error.

    Returns:
        The previous listener.
    """
    global _setup_error_listener
    previous, _setup_error_listener = _setup_error_listener, listener
    return previous


def report_setup_error(error: Exception) -> None:
    """Pass a setup error to the listener, if there is one.

    Args:
        error: Missing or invalid setting, rejected API key, or response from a server that is not a Toolgate gateway.
    """
    if _setup_error_listener is not None:
        _setup_error_listener(error)
