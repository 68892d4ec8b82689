"""Where spans go: by OpenTelemetry's own settings (`OTEL_*`), over OTLP."""

import os
import threading
from importlib import import_module
from importlib.metadata import version
from typing import Any

from opentelemetry import trace

from toolgate_service.tracing.spans import trace_with

SERVICE = "toolgate-gateway"
#: seconds that the last spans have
GRACE = 2.0


def demand_exporter() -> None:
    """Look whether traces can be sent.

    Raises:
        ModuleNotFoundError: what is needed is not installed.
    """
    import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    import_module("opentelemetry.sdk.trace")


def begin_traces() -> trace.Tracer:
    """Send spans from this process; called after a fork, which would leave the sending thread behind.

    A provider that whoever started the process has set, `opentelemetry-instrument` for instance, stays.
    """
    provider: Any = trace.get_tracer_provider()
    if type(provider).__module__.startswith("opentelemetry.trace"):
        provider = _provider()
        trace.set_tracer_provider(provider)
    tracer: trace.Tracer = provider.get_tracer("toolgate.gateway", version("toolgate"))
    trace_with(tracer)
    return tracer


def end_traces() -> None:
    """Send what is left, and stop telling; a collector that is away keeps nobody for longer than `GRACE`."""
    trace_with(None)
    provider: Any = trace.get_tracer_provider()
    if hasattr(provider, "force_flush"):
        # By a thread that dies with the process: the exporter tries again for ten seconds, whatever time it is given.
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
