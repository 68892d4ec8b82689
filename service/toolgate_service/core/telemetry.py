"""OpenTelemetry spans of the gateway, which are exported over OTLP if the operator enables traces.

Spans contain only names, identifiers and outcomes, never arguments, keys or error messages. If traces are disabled,
every function that would record a span returns a context manager that does nothing.
"""

import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from functools import wraps
from importlib import import_module
from importlib.metadata import version
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from toolgate_service.core.errors import ApiError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_NOTHING: AbstractContextManager[None] = nullcontext()
_tracer: "Tracer | None" = None


def trace_with(tracer: "Tracer | None") -> None:
    """Set the tracer that records all further spans. None disables the recording."""
    global _tracer  # noqa: PLW0603 - a process has one tracer
    _tracer = tracer


def is_recording() -> bool:
    """Return whether spans are recorded."""
    return _tracer is not None


def span(name: str, attributes: Mapping[str, str] | None = None) -> "AbstractContextManager[Span | None]":
    """Return a context manager that records a child span of the current span or, without one, a root span.

    The name must be a constant: tracing backends group spans by name, and too many different names overload them.
    """
    return _NOTHING if _tracer is None else _Open(_tracer, name, attributes)


def span_below(name: str) -> "AbstractContextManager[Span | None]":
    """Return a context manager that records a child span of the current span, if there is one.

    Without a current span, for example in a background job, nothing is recorded.
    """
    if _tracer is None:
        return _NOTHING
    from opentelemetry import trace

    return span(name) if trace.get_current_span().get_span_context().is_valid else _NOTHING


def span_of_entry(entry: object) -> "AbstractContextManager[Span | None]":
    """Return a context manager that records a span for one log entry in a request.

    If the entry contains a `traceparent`, the span belongs to the trace of the tool call.
    """
    if _tracer is None:
        return _NOTHING
    trace = entry.get("traceparent") if isinstance(entry, dict) else None
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
                # A request can contain log entries from several traces. The span of each entry therefore belongs to the
                # trace of its tool call, and has a link to the span of the request.
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

    # Record only the class of the error, because its message may contain tool arguments.
    span.set_attribute("error.type", type(error).__qualname__)
    # Do not mark the span as failed for an `ApiError`, which is a rejected request and not a failure of the gateway.
    if not isinstance(error, ApiError):
        span.set_status(Status(StatusCode.ERROR))


P = ParamSpec("P")
T = TypeVar("T")

#: function that returns an asynchronous context manager, for example one that opens a transaction
Opens: TypeAlias = Callable[P, AbstractAsyncContextManager[T]]


def traced(name: str) -> Callable[[Opens[P, T]], Opens[P, T]]:
    """Return a decorator for a function that returns an asynchronous context manager.

    Each use of the context manager is recorded as a span. For a transaction, the span includes the wait for locks and
    the commit.
    """

    def decorate(opens: Opens[P, T]) -> Opens[P, T]:
        @asynccontextmanager
        async def with_span(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
            with span_below(name):
                async with opens(*args, **kwargs) as opened:
                    yield opened

        @wraps(opens)
        def chosen(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
            return with_span(*args, **kwargs) if is_recording() else opens(*args, **kwargs)

        return chosen

    return decorate


SERVICE = "toolgate-gateway"
#: maximum time in seconds for sending the remaining spans at shutdown
GRACE = 2.0


def require_exporter() -> None:
    """Raise an error if the packages of the OTLP exporter are not installed.

    Raises:
        ModuleNotFoundError: A package is missing.
    """
    import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    import_module("opentelemetry.sdk.trace")


def begin_traces() -> "Tracer":
    """Start recording and exporting spans, and return the tracer.

    Call this function after a fork, because a child process does not inherit the thread of the exporter. If a tracer
    provider already exists, for example from `opentelemetry-instrument`, the gateway uses it.
    """
    from opentelemetry import trace

    provider: Any = trace.get_tracer_provider()
    if type(provider).__module__.startswith("opentelemetry.trace"):
        provider = _provider()
        trace.set_tracer_provider(provider)
    tracer: Tracer = provider.get_tracer("toolgate.gateway", version("toolgate"))
    trace_with(tracer)
    return tracer


def end_traces() -> None:
    """Stop recording spans, and send the remaining ones within at most `GRACE` seconds."""
    from opentelemetry import trace

    trace_with(None)
    provider: Any = trace.get_tracer_provider()
    if hasattr(provider, "force_flush"):
        # Use a daemon thread, because it can be abandoned after `GRACE` seconds. The exporter itself ignores a shorter
        # timeout and retries for ten seconds.
        sending = threading.Thread(target=provider.force_flush, name="last-spans", daemon=True)
        sending.start()
        sending.join(GRACE)


def _provider() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if named else {"service.name": SERVICE})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
