"""Spans, where the operator asks for traces; everywhere else a block that does nothing.

Never an argument, a context, a key or an error's words: names, identifiers and outcomes only.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING

from toolgate_service.errors import ApiError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_NOTHING: AbstractContextManager[None] = nullcontext()
_tracer: "Tracer | None" = None


def trace_with(tracer: "Tracer | None") -> None:
    """Have spans told to a tracer from now on, or to nobody.

    Args:
        tracer: of whatever provider.
    """
    global _tracer  # noqa: PLW0603 - a provider is the process's own as well
    _tracer = tracer


def is_on() -> bool:
    """Say whether spans are told to anybody."""
    return _tracer is not None


def span(name: str, attributes: Mapping[str, str] | None = None) -> "AbstractContextManager[Span | None]":
    """Return a block that is a span below the current one.

    Args:
        name: a word of a short list.
        attributes: by OpenTelemetry's names.
    """
    return _NOTHING if _tracer is None else _Open(_tracer, name, attributes)


def span_below(name: str) -> "AbstractContextManager[Span | None]":
    """Return a block that is a span where one is under way: what the gateway does by itself every second is none.

    Args:
        name: a word of a short list.
    """
    if _tracer is None:
        return _NOTHING
    from opentelemetry import trace

    return span(name) if trace.get_current_span().get_span_context().is_valid else _NOTHING


def span_of_entry(given: object) -> "AbstractContextManager[Span | None]":
    """Return a block that is a span about one log entry, below the call that it is about if the entry names its trace.

    Args:
        given: the entry as it came.
    """
    if _tracer is None:
        return _NOTHING
    trace = given.get("traceparent") if isinstance(given, dict) else None
    return _Open(_tracer, "toolgate.gateway.record", None, trace if isinstance(trace, str) else None)


class _Open(AbstractContextManager["Span | None"]):
    def __init__(
        self,
        tracer: "Tracer",
        name: str,
        attributes: Mapping[str, str] | None,
        traceparent: str | None = None,
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._attributes = attributes
        self._traceparent = traceparent

    def __enter__(self) -> "Span | None":
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        above, links = None, list[trace.Link]()
        if self._traceparent is not None:
            named = TraceContextTextMapPropagator().extract({"traceparent": self._traceparent})
            if trace.get_current_span(named).get_span_context().is_valid:
                # The request that brought it may bring those of others too, and is in a trace of its own.
                above, links = named, [trace.Link(trace.get_current_span().get_span_context())]
        self._span = self._tracer.start_span(self._name, above, attributes=self._attributes, links=links)
        self._use = trace.use_span(self._span, record_exception=False, set_status_on_exception=False)
        self._use.__enter__()
        return self._span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._use.__exit__(None, None, None)
        if error is not None:
            _fail(self._span, error)
        self._span.end()


def _fail(span: "Span", error: BaseException) -> None:
    from opentelemetry.trace import Status, StatusCode

    # Its class alone: a message may tell a value.
    span.set_attribute("error.type", type(error).__qualname__)
    # A refusal is an answer like others.
    if not isinstance(error, ApiError):
        span.set_status(Status(StatusCode.ERROR))
