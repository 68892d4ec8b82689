"""Middleware that records an OpenTelemetry span for each request, in the client's trace (W3C Trace Context)."""

import logging
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolgate_service.api.middleware import route_group
from toolgate_service.checks.headers import OUTCOME
from toolgate_service.http.responses import HEADER_BAG, REQUEST_ID

_PROPAGATOR = TraceContextTextMapPropagator()
_CONTEXT_HEADERS = (b"traceparent", b"tracestate")
#: Loggers that log a warning with the header's text for each invalid trace header. They are limited to errors, so that
#: clients cannot fill the operator's log.
_QUOTING_LOGGERS = ("opentelemetry.trace.span", "opentelemetry.trace.propagation.tracecontext")
_DECISION = b"x-decision-id"
_FAULT = 500
#: Paths of the plain ASGI endpoints. Their scope contains no `route`, because no FastAPI router handles them.
_RAW = ("/sdk/check", "/sdk/log", "/sdk/logs")


class TracingMiddleware:
    """Middleware that records an OpenTelemetry span for each request."""

    def __init__(self, inner: ASGIApp, tracer: Tracer) -> None:
        self._inner = inner
        self._tracer = tracer
        for name in _QUOTING_LOGGERS:
            logging.getLogger(name).setLevel(logging.ERROR)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        given = {
            name.decode(): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in _CONTEXT_HEADERS
        }
        method = scope["method"]
        span = self._tracer.start_span(
            method, _PROPAGATOR.extract(given), SpanKind.SERVER, {"http.request.method": method}
        )

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                _record_response(span, scope, message)
            await send(message)

        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                await self._inner(scope, receive, sending)
        finally:
            span.end()


def _record_response(span: Any, scope: Scope, message: Message) -> None:
    # Name the span after the route's template or group, not the path: paths contain ids, and span names must be few.
    route = scope["path"] if scope["path"] in _RAW else getattr(scope.get("route"), "path", None)
    span.update_name(f"{scope['method']} {route or route_group(scope['path'])}")
    if route:
        span.set_attribute("http.route", route)
    status = message["status"]
    span.set_attribute("http.response.status_code", status)
    if status >= _FAULT:
        span.set_status(Status(StatusCode.ERROR))
    if REQUEST_ID in scope:
        span.set_attribute("toolgate.request_id", scope[REQUEST_ID])
    if OUTCOME in scope:
        span.set_attribute("toolgate.outcome", scope[OUTCOME])
    decision = scope.get(HEADER_BAG, {}).get(_DECISION)
    if decision is not None:
        span.set_attribute("toolgate.decision_id", decision.decode())
