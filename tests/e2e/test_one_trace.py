"""One guarded call is one trace, from the tool's span in the agent's process to the commit in the gateway's."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.gateway import LiveGateway, Owner
from support.receiver import Answer, Receiver
from support.waiting import until

from toolgate import Guard
from toolgate_service.core.errors import StartError
from toolgate_service.core.settings import load_settings

SECRET = "sesame-open-sesame"


class Told(NamedTuple):
    """A span of the gateway's, as its collector gets it."""

    name: str
    trace: str
    id: str
    above: str
    attributes: dict[str, Any]
    links: list[str]
    service: str
    failed: bool


class Collector(Receiver):
    """Takes spans over OTLP."""

    @property
    def spans(self) -> list[Told]:
        """What has come so far."""
        return [
            Told(
                one.name,
                one.trace_id.hex(),
                one.span_id.hex(),
                one.parent_span_id.hex(),
                {each.key: each.value.string_value or each.value.int_value for each in one.attributes},
                [link.trace_id.hex() for link in one.links],
                next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name"),
                one.status.code == one.status.STATUS_CODE_ERROR,
            )
            for got in list(self.got)
            for resource in ExportTraceServiceRequest.FromString(got.body).resource_spans
            for scope in resource.scope_spans
            for one in scope.spans
        ]

    def one(self, name: str, **where: str) -> Told:
        """Return the one span of a name, once it has come."""

        def found() -> list[Told]:
            return [
                one
                for one in self.spans
                if one.name == name and all(getattr(one, k) == v for k, v in where.items())
            ]

        until(lambda: bool(found()))
        assert len(found()) == 1, found()
        [only] = found()
        return only


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """Where the gateway sends its spans."""
    with Collector() as one:
        yield one


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[LiveGateway]:
    """A gateway that traces."""
    env = {
        "TOOLGATE_TRACES": "true",
        "TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    with LiveGateway(tmp_path_factory.mktemp("traced"), env=env) as running:
        yield running


@pytest.fixture(scope="module")
def owner(gateway: LiveGateway) -> Iterator[Owner]:
    """An admin."""
    with Owner(gateway.url) as one:
        yield one


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], dict[str, ReadableSpan]]]:
    """What this process, the agent's, tells of itself: spans by name."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield lambda: {each.name: each for each in exporter.get_finished_spans()}
    provider.shutdown()


def test_a_guarded_call_is_one_trace(
    owner: Owner, collector: Collector, spans: Callable[[], dict[str, ReadableSpan]], tmp_path: Path
) -> None:
    """The tool, its check, the gateway's answer and what it asked of the database, and the entry, each below the right one."""
    agent = owner.agent()
    owner.permit(agent, "mail.send")
    with Guard(owner.url, owner.key, agent, outbox=tmp_path / "outbox") as guard:

        @guard.guarded("mail.send")
        def send(password: str, note: str) -> str:
            return f"{password} {note}"

        assert send(SECRET, SECRET)
        assert guard.flush(30)
    tool, check = spans()["execute_tool send"], spans()["toolgate.check"]
    identity = f"{tool.context.trace_id:032x}"
    assert check.parent is not None
    assert check.parent.span_id == tool.context.span_id

    asked = collector.one("POST /sdk/check", trace=identity)
    assert asked.above == f"{check.context.span_id:016x}"
    assert asked.attributes["toolgate.outcome"] == "allowed"
    assert asked.attributes["toolgate.decision_id"] == dict(check.attributes or {})["toolgate.decision_id"]
    assert asked.attributes["http.response.status_code"] == 200
    assert asked.service == "toolgate-gateway"
    assert collector.one("toolgate.gateway.arrive", trace=identity).above == asked.id
    assert collector.one("toolgate.gateway.decide", trace=identity).above == asked.id

    recorded = collector.one("toolgate.gateway.record", trace=identity)
    assert recorded.above == f"{tool.context.span_id:016x}"
    # Many entries go together, in a request that is in none of their traces.
    [linked] = recorded.links
    assert collector.one("POST /sdk/logs", trace=linked).above == ""
    assert {one.name for one in collector.spans if one.trace == identity} == {
        "POST /sdk/check",
        "toolgate.gateway.arrive",
        "toolgate.gateway.decide",
        "toolgate.gateway.record",
    }


def test_a_held_check_shows_its_transaction(owner: Owner, collector: Collector, gateway: LiveGateway) -> None:
    """What is decided in a write transaction has a span of it, commit included."""
    agent = owner.agent()
    owner.permit(agent, "money.send", requires_approval=True)
    identity, above = "ab" * 16, "cd" * 8
    body = {"agent_id": agent, "action": "money.send"}
    headers = {"X-API-Key": owner.key, "traceparent": f"00-{identity}-{above}-01", "tracestate": "a=b"}
    assert owner.http.post("/sdk/check", json=body, headers=headers).json()["requires_approval"]
    asked = collector.one("POST /sdk/check", trace=identity)
    assert asked.above == above
    assert asked.attributes["toolgate.outcome"] == "held"
    assert collector.one("toolgate.gateway.write", trace=identity).above == asked.id


def test_a_management_request_is_named_by_its_template(owner: Owner, collector: Collector) -> None:
    """An identifier in a path makes no name of its own; a refusal is no failure, and what no route takes has a word."""
    identity = "12" * 16
    headers = {"traceparent": f"00-{identity}-{'34' * 8}-01"}
    assert owner.http.get(f"/api/agents/{owner.agent()}", headers=headers).status_code == 200
    asked = collector.one("GET /api/agents/{agent_id}", trace=identity)
    assert collector.one("toolgate.gateway.read", trace=identity).above == asked.id
    assert asked.attributes["http.route"] == "/api/agents/{agent_id}"
    other = "56" * 16
    headers = {"traceparent": f"00-{other}-{'34' * 8}-01"}
    assert httpx.get(f"{owner.url}/sdk/nowhere/at-all", headers=headers).status_code == 404
    assert not collector.one("GET other", trace=other).failed


@pytest.mark.parametrize("sent", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "é" * 40])
def test_what_is_no_trace_begins_a_new_one(owner: Owner, collector: Collector, sent: str) -> None:
    """In a header and in an entry: neither an error nor a trace of that name."""
    agent, request_id = owner.agent(), os.urandom(8).hex()
    headers = {"X-API-Key": owner.key, "X-Request-ID": request_id}
    entry = {"agent_id": agent, "action": "a.b", "status": "success", "traceparent": sent}
    answer = owner.http.post(
        "/sdk/log", json=entry, headers={**headers, "traceparent": sent.encode("latin-1")}
    )
    assert answer.status_code == 200
    assert "traceparent" not in answer.json()
    until(lambda: any(one.attributes.get("toolgate.request_id") == request_id for one in collector.spans))
    [asked] = [one for one in collector.spans if one.attributes.get("toolgate.request_id") == request_id]
    assert asked.above == ""
    assert len(asked.trace) == 32


def test_a_delivery_has_a_span(owner: Owner, collector: Collector) -> None:
    """Of its own: which event, of what kind, and what came of it."""
    with Receiver() as receiver:
        hook = {"url": receiver.url, "events": ["agent.created"]}
        assert owner.http.post("/api/webhooks", json=hook).status_code == 201
        owner.agent()
        [got] = receiver.wait()
    until(lambda: any(one.attributes.get("toolgate.event_id") == got.id for one in collector.spans))
    [told] = [one for one in collector.spans if one.attributes.get("toolgate.event_id") == got.id]
    assert (told.name, told.above) == ("toolgate.gateway.deliver", "")
    assert told.attributes["toolgate.event"] == "agent.created"
    assert told.attributes["toolgate.outcome"] == "delivered"


def test_no_value_is_in_any_span(owner: Owner, collector: Collector) -> None:
    """Neither argument nor context, key, token or query, whatever was asked, and whatever failed."""
    agent, key = owner.agent(), {"X-API-Key": owner.key}
    owner.check(agent, "mail.send", {"to": SECRET})
    owner.log(agent, "mail.send", context={"to": SECRET})
    owner.http.post("/sdk/log", json={"agent_id": SECRET, "status": SECRET}, headers=key)
    owner.http.get("/api/logs", params={"action": SECRET})
    identity = "78" * 16
    httpx.get(f"{owner.url}/health", headers={"traceparent": f"00-{identity}-{'34' * 8}-01"})
    collector.one("GET /health", trace=identity)
    sent = b"".join(got.body for got in collector.got)
    for secret in (SECRET, owner.key, owner.token, owner.email):
        assert secret.encode() not in sent


def test_what_the_gateway_does_by_itself_makes_no_spans(collector: Collector, gateway: LiveGateway) -> None:
    """Looking once a second for what is due is nobody's trace: each transaction stands below a request."""
    answer = httpx.get(f"{gateway.url}/health/ready")
    assert answer.status_code == 200
    alone = [one for one in collector.spans if not one.above and one.name.startswith("toolgate.gateway.")]
    assert {one.name for one in alone} <= {"toolgate.gateway.deliver"}


def test_the_last_spans_are_sent_at_the_end(tmp_path: Path) -> None:
    """What was told just before the gateway ended has reached the collector when it has."""
    with Collector() as collector:
        env = {
            "TOOLGATE_TRACES": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
            "OTEL_SERVICE_NAME": "mine",
            "OTEL_BSP_SCHEDULE_DELAY": "60000",
        }
        with LiveGateway(tmp_path, env=env) as gateway:
            assert httpx.get(f"{gateway.url}/health").status_code == 200
            assert not collector.spans
        [told] = [one for one in collector.spans if one.name == "GET /health"]
        assert told.service == "mine"


def test_a_collector_that_is_silent_keeps_nobody(tmp_path: Path) -> None:
    """Requests are answered, and the end comes soon, though whoever takes spans takes none."""
    held = threading.Event()
    with Collector(default=Answer(after=held)) as collector:
        env = {
            "TOOLGATE_TRACES": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
            "OTEL_BSP_SCHEDULE_DELAY": "10",
        }
        with LiveGateway(tmp_path, env=env) as gateway:
            assert httpx.get(f"{gateway.url}/health").status_code == 200
            collector.wait()
            assert httpx.get(f"{gateway.url}/health").status_code == 200
            began = time.monotonic()
        # The exporter's own patience is ten seconds.
        assert time.monotonic() - began < 9
        held.set()


def test_without_the_packages_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At start, with what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(StartError, match=r"TOOLGATE_TRACES: needs the extra 'traces'; .*toolgate\[traces\]"):
        load_settings({"traces": "true"})
