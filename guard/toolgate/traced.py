"""The trace that is under way, in the words in which the gateway goes on with it (W3C Trace Context)."""

from __future__ import annotations

import sys
from collections.abc import Mapping

__all__ = ["trace_headers"]


def trace_headers() -> Mapping[str, str]:
    """`traceparent`, and `tracestate` if there is one, of OpenTelemetry's current span; nothing where there is none.

    No baggage, which may hold anything, and not what the application chose for its own requests.
    """
    # Whoever traces has loaded the API: it is not looked for otherwise.
    if "opentelemetry.trace" not in sys.modules:
        return {}
    headers: dict[str, str] = {}
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(headers)
    except Exception:  # noqa: BLE001 - a half-installed or foreign provider never stops a call
        return {}
    return headers
