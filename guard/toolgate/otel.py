"""Spans and metrics of guarded calls, according to OpenTelemetry's semantic conventions for tools.

    execute_tool NAME        span of the whole call; the current span while the tool runs
      ├── toolgate.check     span of one check; the current span while the check is sent
      └── toolgate.wait      span of one wait for an approver

The SDK uses the OpenTelemetry providers that the application has set; the application need not use this module.
Spans and metrics never contain an argument, a result or an error message.

Metrics: `toolgate.calls`, `toolgate.checks`, `toolgate.check.duration` and `toolgate.hold.duration` by outcome,
`toolgate.outbox.entries`, `toolgate.entries.lost`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from toolgate import errors
from toolgate._call import Call
from toolgate._effects import (
    Effect,
    Flow,
    GetApproval,
    Interrupted,
    Raised,
    RunTool,
    SendCheck,
    Sleep,
    WriteEntry,
    WriteIntent,
)
from toolgate._models import Approval, Decision
from toolgate._telemetry import logger, lost_entries, pending_entries

__all__ = ["ObservedFlow", "Telemetry", "current_telemetry"]

_P = ParamSpec("_P")
# Maps classes of errors to the outcome in spans and metrics. The first matching class is used, so subclasses precede
# base classes.
_OUTCOMES: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (errors.ApprovalDenied, "denied"),
    (errors.ActionDenied, "blocked"),
    (errors.ApprovalPending, "pending"),
    (errors.ApprovalExpired, "expired"),
    (errors.GatewayUnavailable, "unavailable"),
    (errors.GatewayProtocolError, "protocol_error"),
    (errors.ConfigurationError, "misconfigured"),
)


class Telemetry:
    """Tracer and instruments (counters, histograms) that are created from one tracer and one meter provider.

    Args:
        tracer_provider: Provider of spans.
        meter_provider: Provider of metrics.

    Attributes:
        calls: Counter of guarded calls, by outcome.
        checks: Counter of checks, by outcome.
        check_duration: Histogram of the duration of a check in seconds, including retries.
        hold_duration: Histogram of the seconds that a call waited for an approver.
    """

    def __init__(self, tracer_provider: trace.TracerProvider, meter_provider: metrics.MeterProvider) -> None:
        self.providers = tracer_provider, meter_provider
        self.tracer = tracer_provider.get_tracer("toolgate")
        meter = meter_provider.get_meter("toolgate")
        self.calls = meter.create_counter("toolgate.calls", "{call}", "Guarded calls by outcome")
        self.checks = meter.create_counter("toolgate.checks", "{check}", "Checks by outcome")
        self.check_duration = meter.create_histogram(
            "toolgate.check.duration", "s", "Duration of a check, retries included"
        )
        self.hold_duration = meter.create_histogram(
            "toolgate.hold.duration", "s", "How long a call waited for an approver"
        )
        meter.create_observable_gauge(
            "toolgate.outbox.entries",
            [_pending],
            "{entry}",
            "Log entries that the gateway has not acknowledged yet",
        )
        meter.create_observable_counter(
            "toolgate.entries.lost", [_lost], "{entry}", "Log entries that were lost"
        )


_telemetry: Telemetry | None = None


def current_telemetry() -> Telemetry | None:
    """Return the tracer and instruments of the application's providers; None if the application has set no provider."""
    global _telemetry  # noqa: PLW0603 - there is one per process, like OpenTelemetry's providers
    tracer_provider, meter_provider = trace.get_tracer_provider(), metrics.get_meter_provider()
    if _is_default(tracer_provider) and _is_default(meter_provider):
        return None
    found = _telemetry
    if found is None or found.providers[0] is not tracer_provider or found.providers[1] is not meter_provider:
        found = _telemetry = Telemetry(tracer_provider, meter_provider)
    return found


def _is_default(provider: object) -> bool:
    return type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def _pending(_: CallbackOptions) -> Iterable[Observation]:
    return [Observation(pending_entries())]


def _lost(_: CallbackOptions) -> Iterable[Observation]:
    return [Observation(lost_entries())]


def _suppress_errors(
    method: Callable[Concatenate[ObservedFlow, _P], None],
) -> Callable[Concatenate[ObservedFlow, _P], None]:
    """Return a wrapper of `method` that logs exceptions and does not raise them, so that they cannot stop a call."""

    def safe(flow: ObservedFlow, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(flow, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - an error of telemetry must not stop the call
            logger.debug("telemetry failed: %s", type(error).__name__)

    return safe


class ObservedFlow(Generator[Effect, Any, None]):
    """Wrapper of a call's flow (a generator) that reports checks, waits and the outcome as spans and metrics.

    It observes the effects (requests for I/O, see `_effects`) that the flow yields, and the replies to them.

    Args:
        flow: The generator that checks and logs one call.
        call: State of the call.
        tool: Name of the function, or None for a `with` block.
        telemetry: Tracer and instruments.
    """

    def __init__(self, flow: Flow, call: Call, tool: str | None, telemetry: Telemetry) -> None:
        self._flow = flow
        self._call = call
        self._tool = tool
        self._telemetry = telemetry
        self._span: Span | None = None
        self._child: tuple[Span, Effect, float] | None = None
        self._attached: tuple[Any, contexts.Context] | None = None
        self._outcome: tuple[str, BaseException | None] = ("success", None)

    def send(self, value: Any) -> Effect:
        """Send the reply to the last effect (request for I/O) into the flow; report the reply and the next effect."""
        self._received(value)
        # The span of the call is current while the flow runs, so that log entries contain the id of this span.
        self._attach_call()
        try:
            effect = self._flow.send(value)
        except StopIteration:
            self._end(*self._outcome)
            raise
        self.detach()
        self._yielded(effect)
        return effect

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Effect:
        """Throw an error of the gateway, or `Interrupted`, into the flow; return the next effect (request for I/O)."""
        self.detach()
        if isinstance(kind, Interrupted):
            return self._flow.throw(kind)
        # If the flow handles the error, `throw` returns: the flow continues without a decision (`fail_open`) or polls
        # the approval request again.
        effect = self._flow.throw(kind, value, traceback)  # type: ignore[arg-type]  # no overload takes these unions
        if self._child is not None and isinstance(self._child[1], SendCheck):
            self._end_child("unanswered", None)
        self._yielded(effect)
        return effect

    def close(self) -> None:
        """Close the flow (generator of the call) and end its spans; called if the call is abandoned before its end."""
        self._end("interrupted", None)
        self._flow.close()

    @_suppress_errors
    def failed(self, error: BaseException) -> None:
        """Report that `error` ended the call."""
        outcome = next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "interrupted")
        self._end_child(outcome, error)
        self._end(outcome, error)

    def detach(self) -> None:
        """Restore the span that was current before the span of this call."""
        attached, self._attached = self._attached, None
        # If the call continues in another context, such as another task, its span is not current there. The previous
        # span then need not be restored.
        if attached is not None and contexts.get_current() is attached[1]:
            contexts.detach(attached[0])

    @_suppress_errors
    def _received(self, value: Any) -> None:
        if self._span is None:
            self._begin()
        self.detach()
        if isinstance(value, Decision):
            self._identify(value.approval_id, value.decision_id)
            self._end_child(value.outcome, None, value)
        elif isinstance(value, Approval):
            if value.status != "pending":
                self._end_child(value.status, None)
        elif isinstance(value, Raised):
            self._outcome = ("failed", value.error)

    @_suppress_errors
    def _yielded(self, effect: Effect) -> None:
        span = self._span
        if span is None:
            return
        if self._child is not None and not isinstance(effect, GetApproval | Sleep):
            # The flow (generator of the call) has stopped polling, because the deadline for the approver's decision has
            # passed.
            self._end_child("pending", None)
        if isinstance(effect, SendCheck):
            self._attach(self._start_child("toolgate.check", effect, SpanKind.CLIENT))
        elif isinstance(effect, GetApproval) and effect.polls:
            child = self._child
            self._attach(
                self._start_child("toolgate.wait", effect, SpanKind.INTERNAL) if child is None else child[0]
            )
        elif isinstance(effect, RunTool | WriteIntent):
            self._attach(span)
        elif isinstance(effect, WriteEntry):
            self._identify(self._call.approval_id, self._call.decision_id)

    def _begin(self) -> None:
        call, name = self._call, self._tool or self._call.action
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "toolgate.action": call.action,
            "toolgate.agent_id": call.who.agent_id,
        }
        if self._tool is not None:
            attributes["gen_ai.tool.type"] = "function"
        if call.who.run_id is not None:
            attributes["toolgate.run_id"] = call.who.run_id
        self._span = self._telemetry.tracer.start_span(f"execute_tool {name}", attributes=attributes)

    def _start_child(self, name: str, effect: Effect, kind: SpanKind) -> Span:
        parent = None if self._span is None else trace.set_span_in_context(self._span)
        attributes = {"toolgate.action": self._call.action}
        span = self._telemetry.tracer.start_span(name, parent, kind, attributes)
        self._child = span, effect, time.perf_counter()
        return span

    def _end_child(self, outcome: str, error: BaseException | None, decision: Decision | None = None) -> None:
        if self._child is None:
            return
        (span, effect, began), self._child = self._child, None
        seconds = time.perf_counter() - began
        attributes = {"toolgate.action": self._call.action, "toolgate.outcome": outcome}
        if isinstance(effect, SendCheck):
            self._telemetry.checks.add(1, attributes)
            self._telemetry.check_duration.record(seconds, attributes)
        else:
            self._telemetry.hold_duration.record(seconds, attributes)
        if decision is not None:
            _set_ids(span, decision.approval_id, decision.decision_id)
        _finish(span, outcome, error)

    @_suppress_errors
    def _attach_call(self) -> None:
        if self._span is not None:
            self._attach(self._span)

    def _attach(self, span: Span) -> None:
        context = trace.set_span_in_context(span)
        self._attached = contexts.attach(context), context

    def _identify(self, approval_id: str | None, decision_id: str | None) -> None:
        if self._span is not None:
            _set_ids(self._span, approval_id, decision_id)

    @_suppress_errors
    def _end(self, outcome: str, error: BaseException | None) -> None:
        span, self._span = self._span, None
        self.detach()
        if span is None:
            return
        self._end_child(outcome, error)
        attributes = {"toolgate.action": self._call.action, "toolgate.outcome": outcome}
        self._telemetry.calls.add(1, attributes)
        _finish(span, outcome, error)


def _set_ids(span: Span, approval_id: str | None, decision_id: str | None) -> None:
    if approval_id is not None:
        span.set_attribute("toolgate.approval_id", approval_id)
    if decision_id is not None:
        span.set_attribute("toolgate.decision_id", decision_id)


def _finish(span: Span, outcome: str, error: BaseException | None) -> None:
    span.set_attribute("toolgate.outcome", outcome)
    if error is not None:
        # Only the class of the exception is reported, because its message may contain an argument.
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR))
    span.end()
