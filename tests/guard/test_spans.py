"""What OpenTelemetry is told of guarded calls: what happened, and never an argument."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.waiting import until

from toolgate import Guard, GuardError, acting_as, otel, tool_call

ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
BLOCKED = {"allowed": False, "requires_approval": False, "reason": "no permission", "approval_id": None}
HELD = {"allowed": False, "requires_approval": True, "reason": "needs a person", "approval_id": "appr-1"}
SECRET = "sesame-open-sesame"


class Seen:
    """Spans and figures of one test."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {each.name: each for each in self.exporter.get_finished_spans()}

    @property
    def tool(self) -> dict[str, Any]:
        return dict(
            next(each for name, each in self.spans.items() if "execute_tool" in name).attributes or {}
        )

    def figures(self, name: str) -> dict[tuple[Any, ...], Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            tuple(sorted((point.attributes or {}).items())): getattr(
                point, "value", getattr(point, "count", 0)
            )
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        }


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    found = Seen()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: found.traces)
    monkeypatch.setattr(otel.metrics, "get_meter_provider", lambda: found.meters)
    yield found
    found.traces.shutdown()
    found.meters.shutdown()


@pytest.fixture(params=["sync", "async", "block", "async block"])
def call(request: pytest.FixtureRequest, make_guard: Callable[..., Any]) -> Callable[..., Any]:
    """Run a guarded body once, in each of the ways there are."""

    async def run(body: Callable[[], Any], **options: Any) -> Any:
        guard = make_guard(timeout=1)
        if request.param == "sync":
            return guard.guarded("mail.send", **options)(_named(lambda password, note: body()))(
                SECRET, SECRET
            )
        if request.param == "block":
            with guard.action("mail.send", {"password": SECRET, "note": SECRET}, **options):
                return body()
        if request.param == "async block":
            async with guard.action("mail.send", {"password": SECRET, "note": SECRET}, **options):
                return body()

        async def send(password: str, note: str) -> Any:
            await asyncio.sleep(0)
            return body()

        return await guard.guarded("mail.send", **options)(send)(SECRET, SECRET)

    return run


def _named(function: Any) -> Any:
    function.__name__ = "send"
    return function


def current() -> str:
    return getattr(trace.get_current_span(), "name", "")


def boom() -> None:
    raise ValueError(SECRET)


async def test_a_call_that_runs(call: Any, gateway: Any, seen: Seen) -> None:
    """One span holds the check and what the tool does itself, after the conventions for tools."""
    gateway.check = [httpx.Response(200, headers={"X-Decision-ID": "d-1"}, json=ALLOWED)]
    with acting_as("agent-7", run_id="run-7"):
        inside = await call(current)
    assert inside.startswith("execute_tool ")
    assert current() == ""
    tool, check = seen.spans[inside], seen.spans["toolgate.check"]
    name = "mail.send" if inside.endswith("mail.send") else "send"
    found = seen.tool
    assert found.pop("gen_ai.tool.type", "function") == "function"
    assert found == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "toolgate.action": "mail.send",
        "toolgate.agent_id": "agent-7",
        "toolgate.run_id": "run-7",
        "toolgate.outcome": "success",
        "toolgate.decision_id": "d-1",
    }
    assert check.parent is not None
    assert tool.context is not None
    assert check.parent.span_id == tool.context.span_id
    assert check.kind is trace.SpanKind.CLIENT
    assert tool.kind is trace.SpanKind.INTERNAL
    assert tool.status.is_unset
    key = (("toolgate.action", "mail.send"), ("toolgate.outcome", "success"))
    allowed = (("toolgate.action", "mail.send"), ("toolgate.outcome", "allowed"))
    assert seen.figures("toolgate.calls") == {key: 1}
    assert seen.figures("toolgate.checks") == {allowed: 1}
    assert seen.figures("toolgate.check.duration") == {allowed: 1}


OUTCOMES = [
    ([BLOCKED], [], {}, "blocked", "ActionDenied"),
    ([HELD], [], {}, "pending", "ApprovalPending"),
    ([HELD], ["denied"], {"on_hold": "wait"}, "denied", "ApprovalDenied"),
    ([HELD], ["expired"], {"on_hold": "wait"}, "expired", "ApprovalExpired"),
    ([httpx.ConnectError("refused")] * 9, [], {}, "unavailable", "GatewayUnavailable"),
    ([httpx.Response(200, content=b"no")] * 9, [], {}, "protocol_error", "GatewayProtocolError"),
]


@pytest.mark.parametrize(
    ("checks", "approvals", "options", "outcome", "kind"), OUTCOMES, ids=lambda x: str(x)[:20]
)
async def test_a_call_that_does_not_run(
    call: Any,
    gateway: Any,
    seen: Seen,
    checks: Any,
    approvals: list[str],
    options: dict[str, Any],
    outcome: str,
    kind: str,
) -> None:
    """The span says why, its status is an error of that class, and nothing stays current."""
    gateway.check = list(checks)
    gateway.approval = [{"id": "appr-1", "status": status, "note": SECRET} for status in approvals]
    with pytest.raises(GuardError):
        await call(lambda: pytest.fail("ran"), **options)
    assert seen.tool["toolgate.outcome"] == outcome
    assert seen.tool["error.type"] == kind
    assert current() == ""
    assert ("toolgate.wait" in seen.spans) == bool(approvals)
    if approvals:
        assert seen.tool["toolgate.approval_id"] == "appr-1"
        assert sum(seen.figures("toolgate.hold.duration").values()) == 1
    assert sum(seen.figures("toolgate.calls").values()) == 1
    gateway.log = [httpx.Response(200, content=b"no")]


async def test_a_tool_that_fails(call: Any, gateway: Any, seen: Seen) -> None:
    """A failed tool is told by its error's class, and no span tells an argument or a message."""
    with pytest.raises(ValueError, match=SECRET):
        await call(boom)
    assert seen.tool["toolgate.outcome"] == "failed"
    assert seen.tool["error.type"] == "ValueError"
    for span in seen.spans.values():
        assert SECRET not in span.to_json()
        assert not span.events
    assert SECRET not in str(seen.reader.get_metrics_data())


async def test_a_cancelled_call(make_guard: Any, gateway: Any, seen: Seen) -> None:
    """A task that is cancelled while it asks ends its spans as interrupted."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        started.set()
        await ended.wait()
        raise AssertionError(request)

    guard = make_guard(transport=httpx.MockTransport(answer))

    @guard.guarded("mail.send")
    async def send() -> None:
        pytest.fail("ran")

    task = asyncio.create_task(send())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen.tool["toolgate.outcome"] == "interrupted"
    assert (seen.spans["toolgate.check"].attributes or {})["error.type"] == "CancelledError"
    ended.set()


async def test_a_provider_that_fails_stops_no_call(
    call: Any, gateway: Any, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever telemetry does, the tool's value goes through."""

    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError(SECRET)

    seen.traces.add_span_processor(Broken())
    with caplog.at_level(logging.DEBUG, "toolgate"):
        assert await call(lambda: 5) == 5
    assert "telemetry failed: RuntimeError" in caplog.text
    assert SECRET not in caplog.text


def test_the_outbox_is_counted(
    seen: Seen, make_guard: Any, gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits and what is lost is read when the figures are."""
    gc.collect()
    monkeypatch.setenv("TOOLGATE_OUTBOX_ROWS", "3")
    guard = make_guard()
    tool = guard.guarded("a.b", fail_open=True)(lambda: 1)
    tool()
    assert guard.flush()
    before = sum(seen.figures("toolgate.outbox.entries").values())
    lost = sum(seen.figures("toolgate.entries.lost").values())
    gateway.log = [httpx.Response(503)] * 100
    for _ in range(5):
        tool()
    assert sum(seen.figures("toolgate.outbox.entries").values()) == before + 3
    assert sum(seen.figures("toolgate.entries.lost").values()) == lost + 2 == lost + guard.entries_lost


def test_what_is_lost_stays_counted(seen: Seen, gateway: Any) -> None:
    """A counter never falls, not even when the guard is closed or gone; what was lost by closing counts."""
    transport = httpx.MockTransport(gateway)
    guard = Guard("http://127.0.0.1:9", "ak_" + "a" * 37, "agent-1", transport=transport, outbox="memory")
    gateway.log = [httpx.Response(503)] * 100
    guard.guarded("a.b")(lambda: 1)()
    lost = sum(seen.figures("toolgate.entries.lost").values())
    guard.close()
    assert sum(seen.figures("toolgate.entries.lost").values()) == lost + 1
    gone = weakref.ref(guard._guard_state.recorder.sender())
    del guard

    def collected() -> bool:
        gc.collect()
        return gone() is None

    until(collected)
    assert sum(seen.figures("toolgate.entries.lost").values()) == lost + 1


def test_what_waits_is_counted_while_somebody_writes(seen: Seen, make_guard: Any, gateway: Any) -> None:
    """Where the outbox cannot be read for a moment the figure is what it was."""
    guard = make_guard()
    gateway.log = [httpx.Response(503)] * 100
    guard.guarded("a.b")(lambda: 1)()
    before = sum(seen.figures("toolgate.outbox.entries").values())
    assert before >= 1
    outbox = guard._guard_state.recorder.sender().outbox
    with outbox._lock:
        outbox._inside = True
        try:
            assert sum(seen.figures("toolgate.outbox.entries").values()) == before
        finally:
            outbox._inside = False


def test_without_a_provider_nothing_is_told() -> None:
    """With the API loaded and no provider, and without the API, calls are told to nobody and load nothing."""
    code = (
        "import sys, httpx, toolgate\n"
        "{more}\n"
        "allowed = {{'allowed': True, 'requires_approval': False, 'reason': None, 'approval_id': None}}\n"
        "guard = toolgate.Guard('http://127.0.0.1:9', 'ak_' + 'a' * 37, 'agent', transport=httpx.MockTransport(\n"
        "    lambda request: httpx.Response(200, json=allowed)))\n"
        "guard.guarded('a.b')(lambda: 1)()\n"
        "print('toolgate.otel' in sys.modules and sys.modules['toolgate.otel']._telemetry, \n"
        "      any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    for more, expected in (("", "False False"), ("import opentelemetry.trace", "None True")):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code.format(more=more)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize("twin", ["sync", "async", "later"])
async def test_a_tool_that_goes_on(make_guard: Callable[..., Any], seen: Seen, twin: str) -> None:
    """The span of a generator, or of a result still to come, ends with it, and is nobody's current one meanwhile."""
    guard_it = make_guard().guarded("mail.list")

    @guard_it
    def numbers() -> Iterator[int]:
        yield 1

    @guard_it
    async def anumbers() -> AsyncIterator[int]:
        yield 1

    @guard_it
    def later() -> Any:
        return asyncio.sleep(0, 1)

    outside = []
    if twin == "sync":
        for _ in numbers():
            outside.append((current(), len(seen.spans)))
    elif twin == "async":
        async for _ in anumbers():
            outside.append((current(), len(seen.spans)))
    else:
        result = later()
        outside.append((current(), len(seen.spans)))
        await result
    # Only the check has ended.
    assert outside == [("", 1)]
    assert seen.tool["toolgate.outcome"] == "success"
    assert current() == ""


async def test_requests_and_entries_carry_the_trace(call: Any, gateway: Any, seen: Seen) -> None:
    """A check that of its own span, in a header; an entry that of the call, in itself, for it goes with others, later."""
    await call(lambda: None)
    assert all(guard.flush(10) for guard in gateway.guards)
    spans = seen.spans
    tool = next(each for name, each in spans.items() if name.startswith("execute_tool "))
    [check] = [each for each in gateway.requests if each.url.path == "/sdk/check"]
    assert check.headers["traceparent"] == traceparent(spans["toolgate.check"])
    assert [entry["traceparent"] for entry in gateway.taken] == [traceparent(tool)]
    assert not [each for each in gateway.requests if "baggage" in each.headers]


async def test_without_a_span_nothing_is_carried(call: Any, gateway: Any) -> None:
    """OpenTelemetry is loaded, and nobody has begun a trace: no header, no member."""
    await call(lambda: None)
    assert all(guard.flush(10) for guard in gateway.guards)
    assert not [each for each in gateway.requests if "traceparent" in each.headers]
    assert ["traceparent" in entry for entry in gateway.taken] == [False]


def test_the_entry_of_a_named_call_carries_none(make_guard: Any, gateway: Any, seen: Seen) -> None:
    """It is word for word the same the next time, in whatever trace that is."""
    gateway.check = [BLOCKED, BLOCKED]
    guard = make_guard()
    for _ in range(2):
        with pytest.raises(GuardError), tool_call("call-1"), guard.action("mail.send", {}):
            pass
    assert guard.flush(10)
    first, second = gateway.taken
    assert first == second
    assert "traceparent" not in first


def traceparent(span: ReadableSpan) -> str:
    """Return how W3C Trace Context names a span that is kept."""
    assert span.context is not None
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"
