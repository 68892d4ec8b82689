"""Webhooks over HTTP: creation, changes, deletion, roles and refusals."""

import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.hooked import Hook
from support.insight import set_plan
from support.receiver import Receiver
from support.shapes import complaints
from support.tables import rows
from support.team import Colleague

from toolgate_service.webhooks.events import DEFAULT_TYPES, EVENT_TYPES

URL = "https://hooks.example.com/x"


def test_a_new_webhook_is_shown_with_its_secret_once(told: Owner, receiver: Receiver) -> None:
    """Only the first response contains the secret; the database has it encrypted."""
    hook = Hook(told, receiver, "agent.created", description="Ours", include_context=True)
    made = hook.made
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", made["secret"])
    assert made == {
        "id": made["id"],
        "environment": "production",
        "type": "standard",
        "kind": "standard",
        "url": receiver.url,
        "description": "Ours",
        "events": ["agent.created"],
        "include_context": True,
        "is_active": True,
        "disabled_reason": None,
        "disabled_at": None,
        "last_success_at": None,
        "created_at": made["created_at"],
        "created_by": told.user["id"],
        "secret": made["secret"],
    }
    shown = {name: value for name, value in made.items() if name != "secret"}
    assert hook.read() == shown
    assert told.http.get("/api/webhooks").json() == [shown]


def test_no_secret_rests_in_the_open(teller: LiveGateway, told: Owner, receiver: Receiver) -> None:
    """Stored secrets are encrypted."""
    secret = Hook(told, receiver).secret.removeprefix("whsec_")
    (stored,) = rows(
        teller,
        "SELECT ciphertext FROM webhook_secrets WHERE organization_id = ?",
        told.user["organization_id"],
    )
    assert secret.encode() not in bytes(stored[0])
    audit = told.http.get("/api/audit").text
    assert "webhook.created" in audit
    assert secret not in audit


def test_without_events_a_webhook_gets_the_default_ones(told: Owner, receiver: Receiver) -> None:
    """The default is all but `log.created`; null restores it, and duplicates are removed."""
    hook = Hook(told, receiver)
    assert hook.made["events"] == list(DEFAULT_TYPES)
    assert hook.change(events=["log.created", "agent.created", "log.created"])["events"] == [
        "log.created",
        "agent.created",
    ]
    assert hook.change(events=None)["events"] == list(DEFAULT_TYPES)
    assert hook.change(events=list(EVENT_TYPES))["events"] == list(EVENT_TYPES)


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({}, "url", "required"),
        ({"url": 5}, "url", "string"),
        ({"url": "http://example.com/"}, "url", "https://"),
        ({"url": "https://127.0.0.1/"}, "url", "not public"),
        ({"url": URL, "events": ["agent.created", "agent.creatde"]}, "events", "'agent.creatde'"),
        ({"url": URL, "events": [{}, [], 5, None]}, "events", "an object, a list, 5, None:"),
        ({"url": URL, "events": []}, "events", "at least 1"),
        ({"url": URL, "events": "agent.created"}, "events", "list"),
        ({"url": URL, "events": ["webhook.test"]}, "events", "'webhook.test'"),
        ({"url": URL, "secret": "whsec_mine"}, "secret", "Unknown field"),
        ({"url": URL, "description": "\0"}, "body", "NUL"),
        ({"url": URL, "include_context": 1}, "include_context", "boolean"),
    ],
)
def test_what_is_wrong_is_named(acme: Owner, body: dict[str, object], field: str, words: str) -> None:
    """400 with the field and the reason."""
    before = acme.http.get("/api/webhooks").json()
    found = complaints(acme.http.post("/api/webhooks", json=body))
    assert list(found) == [field]
    assert words in found[field][0]
    assert acme.http.get("/api/webhooks").json() == before


def test_what_nests_deeply_is_named_as_well(acme: Owner) -> None:
    """Deeply nested values are refused with the reason."""
    for depth in range(900, 1000):
        body = f'{{"url": "{URL}", "events": [{"[" * depth}{"]" * depth}]}}'
        answer = acme.http.post("/api/webhooks", content=body)
        assert answer.status_code == 400, (depth, answer.text)


def test_a_change_of_the_url_is_judged_as_well(acme: Owner) -> None:
    """PUT applies the same rules."""
    made = acme.http.post("/api/webhooks", json={"url": URL}).json()
    path = f"/api/webhooks/{made['id']}"
    assert "url" in complaints(acme.http.put(path, json={"url": "https://10.0.0.1/"}))
    assert acme.http.get(path).json()["url"] == URL
    assert (
        acme.http.put(path, json={"url": "https://BÜCHER.example/"}).json()["url"]
        == "https://xn--bcher-kva.example/"
    )
    assert acme.http.delete(path).status_code == 204


def test_a_viewer_reads_and_sees_no_secret(told: Owner, receiver: Receiver) -> None:
    """Members see webhooks and deliveries, but no secret."""
    hook = Hook(told, receiver)
    hook.post("/test", 202)
    hook.settled()
    with Colleague(told, "viewer") as viewer:
        for path in ("/api/webhooks", hook.path, f"{hook.path}/deliveries"):
            answer = viewer.http.get(path)
            assert answer.status_code == 200
            assert hook.secret not in answer.text
            assert '"secret"' not in answer.text


def test_a_deleted_webhook_is_gone(told: Owner, receiver: Receiver) -> None:
    """404 afterwards, and no further events."""
    hook = Hook(told, receiver)
    assert told.http.delete(hook.path).status_code == 204
    for path in (hook.path, f"{hook.path}/deliveries"):
        assert told.http.get(path).status_code == 404
    assert told.http.delete(hook.path).status_code == 404
    assert told.http.get("/api/webhooks").json() == []
    other = Hook(told, receiver)
    told.agent()
    assert len(other.told("agent.created")) == 1


def test_an_environment_has_twenty_also_when_many_are_made_at_once(acme: Owner, newcomer: Owner) -> None:
    """Of thirty concurrent requests twenty succeed; the other environment has its own limit."""

    def make(environment: str) -> int:
        return newcomer.http.post(
            "/api/webhooks", json={"url": URL}, params={"environment": environment}
        ).status_code

    with ThreadPoolExecutor(10) as pool:
        statuses = list(pool.map(make, ["production"] * 30))
    assert (statuses.count(201), statuses.count(409)) == (20, 10)
    assert make("test") == 201
    one = newcomer.http.get("/api/webhooks").json()[0]["id"]
    assert newcomer.http.delete(f"/api/webhooks/{one}").status_code == 204
    assert make("production") == 201


def refused_by_plan(answer: httpx.Response) -> bool:
    """Return whether a response is the 403 of a feature that the plan does not include."""
    if answer.status_code != 403:
        return False
    detail = answer.json()["detail"]
    return isinstance(detail, dict) and detail == {
        "error": "feature_not_available",
        "feature": "webhooks",
        "message": "The free plan does not include webhooks",
        "current_plan": "free",
        "upgrade_url": "/console/plan",
    }


def test_the_free_plan_has_no_webhooks(frugal: Owner) -> None:
    """403 with the five fields; the list can be read."""
    assert refused_by_plan(frugal.http.post("/api/webhooks", json={"url": URL}))
    assert frugal.http.get("/api/webhooks").json() == []


def test_after_a_downgrade_one_may_read_and_delete(
    teller: LiveGateway, told: Owner, receiver: Receiver
) -> None:
    """Events, tests, retries, rotation and enabling are refused; reading, disabling and deleting work."""
    hook = Hook(told, receiver)
    hook.post("/test", 202)
    (delivery,) = hook.settled()
    set_plan(teller, told, "free")
    told.agent()
    assert refused_by_plan(told.http.put(hook.path, json={"is_active": True}))
    for path in ("/test", "/rotate-secret", f"/deliveries/{delivery['id']}/retry"):
        assert refused_by_plan(told.http.post(hook.path + path))
    assert hook.read()["id"] == hook.made["id"]
    assert [one["id"] for one in hook.deliveries()] == [delivery["id"]]
    assert hook.change(is_active=False, description="Later")["is_active"] is False
    assert told.http.delete(hook.path).status_code == 204
    assert {got.event["type"] for got in receiver.got} == {"webhook.test"}


def test_the_environments_are_apart(told: Owner, receiver: Receiver) -> None:
    """A webhook belongs to one environment, which its payloads contain."""
    production = Hook(told, receiver, "agent.created")
    test = Hook(told, receiver, "agent.created", environment="test")
    assert told.http.get(test.path).status_code == 404
    assert told.http.get(production.path, params={"environment": "test"}).status_code == 404
    told.http.post("/api/agents", json={"name": "rehearsal"}, params={"environment": "test"})
    (got,) = test.told("agent.created")
    assert (got.event["data"]["environment"], got.event["data"]["agent"]["name"]) == ("test", "rehearsal")
    told.agent()
    received = receiver.wait(2)
    assert [one.event["data"]["environment"] for one in received] == ["test", "production"]
