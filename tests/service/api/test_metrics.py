"""`GET /metrics`: served on its own address, without organizations, agents or actions in labels."""

import re
import socket
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.gateway import LiveGateway, Owner
from support.insight import execute
from support.readme import ROOT
from support.waiting import until

from toolgate_service.api.middleware import ROUTE_GROUPS, route_group
from toolgate_service.core.addresses import ListenAddress
from toolgate_service.core.errors import StartError
from toolgate_service.core.ids import new_id
from toolgate_service.core.settings import Settings, load_settings
from toolgate_service.server.metrics import MetricsServer

PAGE = (ROOT / "docs/operate/monitoring.md").read_text()
#: a figure's name and its labels
Figure = tuple[str, frozenset[tuple[str, str]]]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """Gateway with metrics, an unreachable mail server, and webhooks allowed to local addresses."""
    env = {
        "TOOLGATE_METRICS_ADDRESS": "127.0.0.1:0",
        "TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true",
        "TOOLGATE_SMTP_URL": "smtp://127.0.0.1:9",
        "TOOLGATE_MAIL_FROM": "toolgate@example.test",
        "TOOLGATE_PUBLIC_URL": "https://toolgate.example.test",
    }
    with LiveGateway(tmp_path_factory.mktemp("counted"), env=env) as running:
        yield running


@pytest.fixture
def owner(gateway: LiveGateway) -> Iterator[Owner]:
    """Admin of a new organization."""
    with Owner(gateway.url) as one:
        yield one


def page(gateway: LiveGateway) -> str:
    """Return the response text of `GET /metrics`."""
    answer = httpx.get(gateway.metrics_url, timeout=30)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return answer.text


def figures(gateway: LiveGateway) -> dict[Figure, float]:
    """Return the current value of each sample."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page(gateway))
        for sample in family.samples
    }


def grown(before: Mapping[Figure, float], after: Mapping[Figure, float], name: str) -> dict[str, float]:
    """Return the increase of the samples of a metric, by their label values."""
    return {
        "/".join(value for _, value in sorted(labels)): value - before.get((found, labels), 0)
        for (found, labels), value in after.items()
        if found == name and value != before.get((found, labels), 0)
    }


def one(figures: Mapping[Figure, float], name: str) -> float:
    """Return the value of a metric without labels."""
    return figures[name, frozenset()]


def test_the_public_surface_has_no_metrics(gateway: LiveGateway) -> None:
    """The public address returns 404 for /metrics, and the metrics' address for everything else."""
    assert httpx.get(f"{gateway.url}/metrics").status_code == 404
    other = gateway.metrics_url.removesuffix("/metrics")
    assert httpx.get(f"{other}/elsewhere").status_code == 404
    assert httpx.post(f"{other}/metrics").status_code == 405


def test_checks_are_counted_by_their_outcome(gateway: LiveGateway, owner: Owner) -> None:
    """Allowed, blocked, held and refused checks are each counted once."""
    agent = owner.agent()
    owner.permit(agent, "mail.send")
    owner.permit(agent, "money.send", requires_approval=True)
    before = figures(gateway)
    for _ in range(3):
        assert owner.check(agent, "mail.send").json()["allowed"]
    # With two headers of a name it takes the road of all requests.
    twice = [("X-API-Key", owner.key), ("X-Any", "1"), ("X-Any", "2")]
    body = {"agent_id": agent, "action": "mail.send"}
    assert owner.http.post("/sdk/check", json=body, headers=twice).json()["allowed"]
    for _ in range(2):
        assert not owner.check(agent, "mail.delete").json()["allowed"]
    assert owner.check(agent, "money.send").json()["requires_approval"]
    assert owner.http.post("/sdk/check", json=body).status_code == 401
    assert owner.check(agent, "not an action").status_code == 400
    after = figures(gateway)
    counted = grown(before, after, "toolgate_checks_total")
    assert counted == {"allowed/200": 4, "blocked/200": 2, "held/200": 1, "refused/401": 1, "refused/400": 1}
    answers = grown(before, after, "toolgate_requests_total")
    assert {name: n for name, n in answers.items() if name.startswith("check/")} == {
        "check/200": 7,
        "check/400": 1,
        "check/401": 1,
    }
    assert grown(before, after, "toolgate_request_duration_seconds_count")["check"] == 9
    took = grown(before, after, "toolgate_request_duration_seconds_sum")["check"]
    assert 0 < took < 9 * 30


def test_log_entries_are_counted_by_what_became_of_them(gateway: LiveGateway, owner: Owner) -> None:
    """Stored, replayed and refused entries, single and in batches, and the sizes of commits."""
    agent, key = owner.agent(), {"X-API-Key": owner.key}
    before = figures(gateway)
    entry = {"agent_id": agent, "action": "mail.send", "status": "success"}
    for _ in range(2):
        answer = owner.http.post("/sdk/log", json=entry, headers={**key, "Idempotency-Key": "one"})
        assert answer.status_code == 200
    many = [entry, entry, {**entry, "agent_id": new_id()}]
    answer = owner.http.post("/sdk/logs", json={"entries": many}, headers=key)
    assert [result["status"] for result in answer.json()["results"]] == [200, 200, 404]
    after = figures(gateway)
    counted = grown(before, after, "toolgate_log_entries_total")
    assert counted == {"stored": 3, "replayed": 1, "refused": 1}
    assert grown(before, after, "toolgate_log_batch_entries_sum") == {"": 5}
    commits = grown(before, after, "toolgate_log_batch_entries_count")
    assert commits == grown(before, after, "toolgate_log_commit_duration_seconds_count")
    assert grown(before, after, "toolgate_requests_total")["log/200"] == 3


def test_requests_beyond_the_rate_are_counted(gateway: LiveGateway, owner: Owner) -> None:
    """Responses with 429 are counted by status, for requests and for checks."""
    statement = "UPDATE organizations SET requests_per_minute = 1 WHERE id = "
    assert execute(gateway, f"{statement}'{owner.user['organization_id']}'") == 1
    before, agent = figures(gateway), new_id()
    # Three: two of them may stand in two minutes.
    statuses = [owner.check(agent, "mail.send").status_code for _ in range(3)]
    refused = statuses.count(429)
    assert refused
    after = figures(gateway)
    assert grown(before, after, "toolgate_requests_total")["check/429"] == refused
    assert grown(before, after, "toolgate_checks_total")["refused/429"] == refused


def test_deliveries_are_counted_and_their_lag_is_told(gateway: LiveGateway, owner: Owner) -> None:
    """An attempt to an unreachable receiver, the pending delivery, and its lag."""
    before = figures(gateway)
    hook = {"url": "http://127.0.0.1:9/hook", "events": ["agent.created"]}
    assert owner.http.post("/api/webhooks", json=hook).status_code == 201
    owner.agent()
    until(lambda: grown(before, figures(gateway), "toolgate_webhook_attempts_total") == {"unreachable": 1})
    until(lambda: one(figures(gateway), "toolgate_webhook_lag_seconds") == 0)
    assert one(figures(gateway), "toolgate_webhook_deliveries_pending") == 1
    past, held = ("2026-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z")
    changed = f"UPDATE deliveries SET next_attempt_at = '{past}', claimed_until = '{held}'"
    assert execute(gateway, changed) == 1
    assert one(figures(gateway), "toolgate_webhook_lag_seconds") > 24 * 3600
    assert execute(gateway, "UPDATE deliveries SET status = 'failed', next_attempt_at = NULL") == 1
    after = figures(gateway)
    assert (
        one(after, "toolgate_webhook_lag_seconds") == one(after, "toolgate_webhook_deliveries_pending") == 0
    )


def test_who_waits_is_told(gateway: LiveGateway, owner: Owner) -> None:
    """A pending approval request and its long poll are counted until the decision."""
    agent = owner.agent()
    owner.permit(agent, "money.send", requires_approval=True)
    before = figures(gateway)
    approval_id = owner.check(agent, "money.send").json()["approval_id"]
    pending = "toolgate_approvals_pending"
    assert one(figures(gateway), pending) == one(before, pending) + 1
    url, key = f"/sdk/approvals/{approval_id}?wait=30", {"X-API-Key": owner.key}
    client = httpx.Client(base_url=gateway.url, headers=key, timeout=60)
    with client, ThreadPoolExecutor(1) as thread:
        answer = thread.submit(client.get, url)
        until(lambda: one(figures(gateway), "toolgate_long_polls_waiting") == 1)
        assert one(figures(gateway), "toolgate_connections_open") >= 2
        assert owner.http.post(f"/api/approvals/{approval_id}/approve").status_code == 200
        assert answer.result().json()["status"] == "approved"
    after = figures(gateway)
    assert one(after, "toolgate_long_polls_waiting") == 0
    assert one(after, pending) == one(before, pending)
    assert grown(before, after, "toolgate_requests_total")["approvals/200"] == 1


def test_no_tenant_stands_in_the_figures(gateway: LiveGateway, owner: Owner) -> None:
    """Label values come from a short list: no organization, agent, action, key, address or path."""
    agent = owner.agent("a-secret-agent")
    owner.permit(agent, "secret.action")
    assert owner.check(agent, "secret.action").json()["allowed"]
    assert owner.log(agent, "secret.action", context={"secret": "context"}).status_code == 200
    assert owner.http.get("/api/agents/no-such-path-at-all").status_code == 404
    text = page(gateway)
    for told in (agent, "secret", owner.user["organization_id"], owner.key, "no-such", "@", "/api"):
        assert told not in text
    known = {
        *ROUTE_GROUPS,
        "allowed",
        "blocked",
        "held",
        "refused",
        "stored",
        "replayed",
        "failed",
        "delivered",
    }
    known |= {"unreachable", "sent", "given_up", "busy", "idle", "waiting"}
    known |= {"readers", "exporters", "writers", "requests", "windows", "entries"}
    for (name, labels), _ in figures(gateway).items():
        for label, value in labels:
            if label in {"route", "outcome", "result", "state", "pool"}:
                assert value in known, (name, label, value)
            elif name != "toolgate_build_info":
                assert label in {"le", "status", "generation"}, (name, label)


def test_the_page_names_every_metric_and_no_other(gateway: LiveGateway) -> None:
    """docs/operate/monitoring.md has a row for each metric with its kind and labels."""
    rows = re.findall(r"^\| `(toolgate_\w+)` \| (\w+) \| (.*?) \|", PAGE, re.MULTILINE)
    told = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    served: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(page(gateway)):
        if family.name.startswith("toolgate_"):
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            served[name] = (family.type, labels)
    assert told == served


def test_the_alert_rules_are_about_what_is_served(gateway: LiveGateway) -> None:
    """The alert rules in docs/operate/monitoring.md are valid YAML and use existing metrics."""
    [text] = re.findall(r"```yaml\n(groups:.*?)```", PAGE, re.DOTALL)
    rules: list[dict[str, Any]] = yaml.safe_load(text)["groups"][0]["rules"]
    served = {name for name, _ in figures(gateway)}
    assert len(rules) >= 5
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "annotations"}
        assert rule["annotations"]["summary"]
        assert not set(re.findall(r"toolgate_\w+", rule["expr"])) - served
        for opening, closing in ("()", "{}", "[]"):
            assert rule["expr"].count(opening) == rule["expr"].count(closing)


@pytest.mark.sqlite_only("the tests' way into PostgreSQL counts changed rows, and a renamed table has none")
def test_a_database_that_is_gone_is_told(tmp_path: Path) -> None:
    """Without the database the gateway is not ready and omits its counts; other metrics remain."""
    with LiveGateway(tmp_path, env={"TOOLGATE_METRICS_ADDRESS": "127.0.0.1:0"}) as gateway:
        assert one(figures(gateway), "toolgate_ready") == 1
        execute(gateway, "ALTER TABLE organizations RENAME TO elsewhere")
        execute(gateway, "ALTER TABLE deliveries RENAME TO nowhere")
        until(lambda: one(figures(gateway), "toolgate_ready") == 0)
        now = figures(gateway)
        assert ("toolgate_webhook_lag_seconds", frozenset[tuple[str, str]]()) not in now
        assert one(now, "toolgate_log_entries_waiting") == 0
        execute(gateway, "ALTER TABLE nowhere RENAME TO deliveries")
        execute(gateway, "ALTER TABLE elsewhere RENAME TO organizations")
        until(lambda: one(figures(gateway), "toolgate_ready") == 1)
        assert one(figures(gateway), "toolgate_webhook_lag_seconds") == 0


@pytest.mark.parametrize("text", ["9090", "localhost", "a b:1", "127.0.0.1:70000", "::1:9090", "http://a:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """The error at start contains the name of the setting and an example."""
    with pytest.raises(StartError, match=r"TOOLGATE_METRICS_ADDRESS: .* write HOST:PORT"):
        load_settings({"metrics_address": text})


def test_a_port_for_each_worker_must_be_there() -> None:
    """Each worker uses the next port, so that the last one must exist; port 0 is any free one."""
    with pytest.raises(StartError, match=r"^TOOLGATE_METRICS_ADDRESS: 2 workers need .* choose a lower port"):
        load_settings({"metrics_address": "127.0.0.1:65535", "workers": "2"})
    for port in (65534, 0):
        assert load_settings({"metrics_address": f"127.0.0.1:{port}", "workers": "2"}).workers == 2


def test_without_the_package_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error at start contains the extra to install."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(
        StartError, match=r"TOOLGATE_METRICS_ADDRESS: needs the extra 'metrics'; .*toolgate\[metrics\]"
    ):
        load_settings({"metrics_address": "127.0.0.1:9090"})


@pytest.mark.parametrize(
    ("text", "host"), [("127.0.0.1:1", "127.0.0.1"), ("[::1]:1", "::1"), ("a-b.test:1", "a-b.test")]
)
def test_addresses_are_read(text: str, host: str) -> None:
    """Host names, IPv4 addresses and IPv6 addresses in brackets."""
    assert Settings(metrics_address=text).metrics_address == ListenAddress(host, 1)  # type: ignore[arg-type]  # as the environment's


def test_a_taken_address_is_refused(gateway: LiveGateway) -> None:
    """The error contains the setting that chooses another address."""
    port = int(gateway.metrics_url.rpartition(":")[2].partition("/")[0])
    with pytest.raises(StartError, match=rf"127\.0\.0\.1:{port}.*TOOLGATE_METRICS_ADDRESS"):
        MetricsServer(ListenAddress("127.0.0.1", port))


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/sdk/check", "check"),
        ("/sdk/logs", "log"),
        ("/sdk/approvals/x/cancel", "approvals"),
        ("/api/agents", "management"),
        ("/console", "console"),
        ("/health/ready", "health"),
        ("/sdk/checks", "other"),
    ],
)
def test_paths_are_of_one_route(path: str, route: str) -> None:
    """The path determines the group of a request."""
    assert route_group(path) == route


def test_without_the_setting_nothing_is_counted(tmp_path: Path) -> None:
    """Without the setting there are no metrics, neither in the start-up message nor at the public address."""
    with LiveGateway(tmp_path) as gateway:
        assert "metrics" not in gateway.announced
        assert httpx.get(f"{gateway.url}/metrics").status_code == 404


def test_who_hangs_up_is_counted(gateway: LiveGateway, owner: Owner) -> None:
    """A client that disconnects before its body is complete is counted with status 499."""
    before = figures(gateway)
    with socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as connection:
        key = owner.key.encode()
        head = b"POST /sdk/check HTTP/1.1\r\nHost: x\r\nX-API-Key: %b\r\nContent-Length: 100\r\n\r\n{" % key
        connection.sendall(head)
        until(
            lambda: (
                one(figures(gateway), "toolgate_connections_open") > one(before, "toolgate_connections_open")
            )
        )
    until(lambda: grown(before, figures(gateway), "toolgate_requests_total") == {"check/499": 1})
