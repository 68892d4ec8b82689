"""A guarded call as OpenTelemetry's spans, after its semantic conventions for tools.

    execute_tool NAME        the whole call; current while the tool runs
      ├── toolgate.check     one question to the gateway; current while it is asked
      └── toolgate.wait      one wait for a person

No argument, no result and no message of an error is ever an attribute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec

from opentelemetry import context as contexts
from opentelemetry import metrics, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from toolgate import errors
from toolgate.calls import Call, Flow
from toolgate.decision import Decision
from toolgate.events import logger
from toolgate.meters import Meters
from toolgate.steps import Approval, AwaitApproval, Check, Intend, Raised, Record, Run, Step, Unanswered

__all__ = ["ObservedFlow", "Telemetry", "current_telemetry"]

_P = ParamSpec("_P")
# The narrower before the wider.
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
    """What one pair of providers is told.

    Args:
        traces: Where spans go.
        meters: Where figures go.
    """

    def __init__(self, traces: trace.TracerProvider, meters: metrics.MeterProvider) -> None:
        self.of = traces, meters
        self.tracer = traces.get_tracer("toolgate")
        self.meters = Meters(meters)


_telemetry: Telemetry | None = None


def current_telemetry() -> Telemetry | None:
    """What the application's providers are told; None while it has set neither."""
    global _telemetry  # noqa: PLW0603 - providers are the process's own as well
    traces, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    # The API's own providers stand for none.
    if _is_empty(traces) and _is_empty(meters):
        return None
    found = _telemetry
    if found is None or found.of[0] is not traces or found.of[1] is not meters:
        found = _telemetry = Telemetry(traces, meters)
    return found


def _is_empty(provider: object) -> bool:
    return type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def _quietly(
    tell: Callable[Concatenate[ObservedFlow, _P], None],
) -> Callable[Concatenate[ObservedFlow, _P], None]:
    """Whatever a provider does, the call goes on."""

    def told(flow: ObservedFlow, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            tell(flow, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - as it says
            logger.debug("telemetry failed: %s", type(error).__name__)

    return told


class ObservedFlow(Generator[Step, Any, None]):
    """A flow that tells what happens to it.

    Args:
        flow: The road of one call.
        call: The call.
        tool: The name of the function, or None for a block.
        telemetry: Whom to tell.
    """

    def __init__(self, flow: Flow, call: Call, tool: str | None, telemetry: Telemetry) -> None:
        self._flow = flow
        self._call = call
        self._tool = tool
        self._telemetry = telemetry
        self._span: Span | None = None
        self._child: tuple[Span, Step, float] | None = None
        self._attached: tuple[Any, contexts.Context] | None = None
        self._outcome: tuple[str, BaseException | None] = ("success", None)

    def send(self, value: Any) -> Step:
        """Hand `value` on, and tell what was answered and what is asked next."""
        self._answered(value)
        try:
            step = self._flow.send(value)
        except StopIteration:
            self._end(*self._outcome)
            raise
        self._asked(step)
        return step

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Step:
        """As a generator's own."""
        return self._flow.throw(kind, value, traceback)  # type: ignore[arg-type]  # likewise

    def close(self) -> None:
        """As a generator's own; a call that is dropped on its way was interrupted."""
        self._end("interrupted", None)
        self._flow.close()

    @_quietly
    def abandoned(self, error: BaseException) -> None:
        """`error` ended the call."""
        outcome = next((name for kind, name in _OUTCOMES if isinstance(error, kind)), "interrupted")
        self._end_child(outcome, error)
        self._end(outcome, error)

    def detach(self) -> None:
        """Whatever was made the current span is so no longer."""
        attached, self._attached = self._attached, None
        # Elsewhere than where it was attached there is nothing to take back.
        if attached is not None and contexts.get_current() is attached[1]:
            contexts.detach(attached[0])

    @_quietly
    def _answered(self, value: Any) -> None:
        if self._span is None:
            self._begin()
        self.detach()
        if isinstance(value, Decision):
            self._identify(value.approval_id, value.decision_id)
            self._end_child(value.outcome, None, value)
        elif isinstance(value, Approval):
            self._end_child(value.status, None)
        elif isinstance(value, Raised):
            self._outcome = ("failed", value.error)
        elif isinstance(value, Unanswered):
            self._end_child("unanswered", None)
        elif value is None:
            # The time to wait for a person is over.
            self._end_child("pending", None)

    @_quietly
    def _asked(self, step: Step) -> None:
        span = self._span
        if span is None:
            return
        if isinstance(step, Check):
            self._attach(self._start_child("toolgate.check", step, SpanKind.CLIENT))
        elif isinstance(step, AwaitApproval):
            self._attach(self._start_child("toolgate.wait", step, SpanKind.INTERNAL))
        elif isinstance(step, Run | Intend):
            self._attach(span)
        elif isinstance(step, Record):
            self._identify(step.approval_id, step.decision_id)
            # The log entry belongs to the call, whenever it is sent.
            self._attach(span)

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

    def _start_child(self, name: str, step: Step, kind: SpanKind) -> Span:
        parent = None if self._span is None else trace.set_span_in_context(self._span)
        attributes = {"toolgate.action": self._call.action}
        span = self._telemetry.tracer.start_span(name, parent, kind, attributes)
        self._child = span, step, time.perf_counter()
        return span

    def _end_child(self, outcome: str, error: BaseException | None, decision: Decision | None = None) -> None:
        if self._child is None:
            return
        (span, step, began), self._child = self._child, None
        seconds = time.perf_counter() - began
        told = {"toolgate.action": self._call.action, "toolgate.outcome": outcome}
        meters = self._telemetry.meters
        if isinstance(step, Check):
            meters.checks.add(1, told)
            meters.check_duration.record(seconds, told)
        else:
            meters.hold_duration.record(seconds, told)
        if decision is not None:
            _set_ids(span, decision.approval_id, decision.decision_id)
        _finish(span, outcome, error)

    def _attach(self, span: Span) -> None:
        context = trace.set_span_in_context(span)
        self._attached = contexts.attach(context), context

    def _identify(self, approval_id: str | None, decision_id: str | None) -> None:
        if self._span is not None:
            _set_ids(self._span, approval_id, decision_id)

    @_quietly
    def _end(self, outcome: str, error: BaseException | None) -> None:
        span, self._span = self._span, None
        self.detach()
        if span is None:
            return
        self._end_child(outcome, error)
        told = {"toolgate.action": self._call.action, "toolgate.outcome": outcome}
        self._telemetry.meters.calls.add(1, told)
        _finish(span, outcome, error)


def _set_ids(span: Span, approval_id: str | None, decision_id: str | None) -> None:
    if approval_id is not None:
        span.set_attribute("toolgate.approval_id", approval_id)
    if decision_id is not None:
        span.set_attribute("toolgate.decision_id", decision_id)


def _finish(span: Span, outcome: str, error: BaseException | None) -> None:
    span.set_attribute("toolgate.outcome", outcome)
    if error is not None:
        # Its class alone: a message may tell an argument.
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR))
    span.end()
