"""A span for each request, in the trace that the caller began (W3C Trace Context)."""

import logging
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolgate_service.checks.endpoint import OUTCOME
from toolgate_service.metrics.figures import route_of
from toolgate_service.web.edge import REQUEST_ID

_PROPAGATOR = TraceContextTextMapPropagator()
_CONTEXT_HEADERS = (b"traceparent", b"tracestate")
#: they write down what is wrong with a caller's headers, word for word: nobody may fill the operator's log with them
_TALKATIVE = ("opentelemetry.trace.span", "opentelemetry.trace.propagation.tracecontext")
_DECISION = b"x-decision-id"
_FAULT = 500
#: the raw road, where no router leaves its templates
_RAW = ("/sdk/check", "/sdk/log", "/sdk/logs")


class Traced:
    """The gateway, its requests told as spans.

    Args:
        inner: the gateway's application.
        tracer: whom to tell.
    """

    def __init__(self, inner: ASGIApp, tracer: Tracer) -> None:
        self._inner = inner
        self._tracer = tracer
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.ERROR)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
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
                _tell(span, scope, message)
            await send(message)

        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                await self._inner(scope, receive, sending)
        finally:
            span.end()


def _tell(span: Any, scope: Scope, message: Message) -> None:
    # A word or a template, never the path itself: identifiers in it would make a name of each request.
    route = scope["path"] if scope["path"] in _RAW else getattr(scope.get("route"), "path", None)
    span.update_name(f"{scope['method']} {route or route_of(scope['path'])}")
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
    decision = next((value for name, value in message["headers"] if name == _DECISION), None)
    if decision is not None:
        span.set_attribute("toolgate.decision_id", decision.decode())
