"""The body of POST /sdk/log, field by field (spec §7, decisions §2)."""

import httpx
import pytest
from support.gateway import Owner
from support.shapes import REQUIRED, complaints


def send(owner: Owner, body: object, **headers: str) -> httpx.Response:
    return owner.http.post("/sdk/log", json=body, headers={"X-API-Key": owner.key} | headers)


@pytest.mark.parametrize("present", [set(), {"agent_id"}, {"action"}, {"status"}, {"agent_id", "status"}])
def test_missing_fields_are_all_named(acme: Owner, bot: str, present: set[str]) -> None:
    """Every missing required field is in the map, with a message that it is required (spec §7)."""
    whole = {"agent_id": bot, "action": "a", "status": "success"}
    body = {name: value for name, value in whole.items() if name in present}
    assert complaints(send(acme, body)) == {name: [REQUIRED] for name in whole.keys() - present}


@pytest.mark.parametrize("status", ["done", "SUCCESS", "Success", "", "success ", 1, True, [], {}])
def test_an_invalid_status_lists_the_four(acme: Owner, bot: str, status: object) -> None:
    """A status that is not allowed is 400 with a message that lists those that are (spec §7)."""
    found = complaints(send(acme, {"agent_id": bot, "action": "a", "status": status}))
    assert list(found) == ["status"]
    [message] = found["status"]
    assert all(word in message for word in ("success", "failed", "pending", "denied"))
    assert acme.entries(agent_id=bot) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent_id", 5),
        ("agent_id", {}),
        ("action", 5),
        ("action", "two words"),
        ("action", "a" * 256),
        ("context", []),
        ("context", "text"),
        ("ip_address", "localhost"),
        ("ip_address", "256.1.1.1"),
        ("ip_address", "1.2.3.4, 5.6.7.8"),
        ("ip_address", "fe80::1%eth0"),
        ("ip_address", ""),
        ("ip_address", 2130706433),
        ("ip_address", "10.0.0.0/8"),
        ("occurred_at", "yesterday"),
        ("occurred_at", "2026-02-30T00:00:00Z"),
        ("occurred_at", 1767225600),
        ("occurred_at", "0001-01-01T00:00:00+14:00"),
        ("occurred_at", "9999-12-31T23:59:59-14:00"),
        ("decision_id", "x" * 256),
        ("approval_id", 5),
        ("call_id", ""),
        ("run_id", "a\nb"),
    ],
)
def test_a_wrong_value_is_named_and_stores_nothing(acme: Owner, bot: str, field: str, value: object) -> None:
    """A field of the wrong kind or outside decisions §2 and §6 is 400 under its name, alone."""
    body = {"agent_id": bot, "action": "a", "status": "success"} | {field: value}
    assert list(complaints(send(acme, body))) == [field]
    assert acme.entries(agent_id=bot) == []


@pytest.mark.parametrize(
    "name", ["context", "ip_address", "occurred_at", "decision_id", "approval_id", "call_id", "run_id"]
)
def test_null_means_absent_for_what_is_optional(acme: Owner, bot: str, name: str) -> None:
    """A client may send null for a field that it does not use."""
    body = {"agent_id": bot, "action": "a", "status": "success", name: None}
    assert send(acme, body).status_code == 200


def test_unknown_fields_are_ignored(acme: Owner, bot: str) -> None:
    """Unknown fields mean nothing here, least of all those that the gateway writes itself (decisions §2)."""
    body = {"agent_id": bot, "action": "a", "status": "success", "id": "mine", "created_at": "2020-01-01"}
    entry = send(acme, body | {"organization_id": "other", "future": [1]}).json()
    assert entry["id"] != "mine"
    assert not entry["created_at"].startswith("2020")
    assert entry["organization_id"] == acme.user["organization_id"]


@pytest.mark.parametrize("key", ["", "k" * 256, "tab\tinside"])
def test_a_wrong_idempotency_key_is_named(acme: Owner, bot: str, key: str) -> None:
    """The header is 1-255 printable characters (decisions §6)."""
    body = {"agent_id": bot, "action": "a", "status": "success"}
    assert list(complaints(send(acme, body, **{"Idempotency-Key": key}))) == ["Idempotency-Key"]
    assert acme.entries(agent_id=bot) == []
