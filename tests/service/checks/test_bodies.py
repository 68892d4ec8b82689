"""The body of POST /sdk/check, field by field (spec §7, decisions §2)."""

import httpx
import pytest
from support.gateway import Owner
from support.shapes import REQUIRED, complaints


def send(owner: Owner, body: object) -> httpx.Response:
    return owner.http.post("/sdk/check", json=body, headers={"X-API-Key": owner.key})


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, {"agent_id", "action"}),
        ({"agent_id": "a"}, {"action"}),
        ({"action": "a"}, {"agent_id"}),
        ({"agent_id": None, "action": None}, {"agent_id", "action"}),
        ({"agent_id": "", "action": ""}, {"agent_id", "action"}),
        ({"context": {}}, {"agent_id", "action"}),
    ],
)
def test_missing_fields_are_all_named(acme: Owner, body: object, fields: set[str]) -> None:
    """Every missing required field is in the map, with a message that it is required (spec §7)."""
    assert complaints(send(acme, body)) == {field: [REQUIRED] for field in fields}
    assert "required" in REQUIRED


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent_id", 5),
        ("agent_id", True),
        ("agent_id", ["a"]),
        ("agent_id", {}),
        ("action", 5),
        ("action", "two words"),
        ("action", "grüße"),
        ("action", "a" * 256),
        ("action", "a\n"),
        ("context", []),
        ("context", "text"),
        ("context", 5),
        ("context", True),
        ("approval_id", 5),
        ("approval_id", ""),
        ("call_id", "x" * 256),
        ("call_id", {}),
        ("run_id", "a\nb"),
        ("run_id", False),
        ("dry_run", "true"),
        ("dry_run", 1),
    ],
)
def test_a_wrong_value_is_named(acme: Owner, bot: str, field: str, value: object) -> None:
    """A field of the wrong kind or outside decisions §2 and §4 is 400 under its name, alone."""
    acme.permit(bot, "a")
    body = {"agent_id": bot, "action": "a"} | {field: value}
    assert list(complaints(send(acme, body))) == [field]


def test_wrong_and_missing_fields_are_named_together(acme: Owner) -> None:
    """One answer names everything that is wrong."""
    assert set(complaints(send(acme, {"agent_id": 5, "context": [], "dry_run": 0}))) == {
        "agent_id",
        "action",
        "context",
        "dry_run",
    }


@pytest.mark.parametrize("name", ["context", "approval_id", "call_id", "run_id", "dry_run"])
def test_null_means_absent_for_what_is_optional(acme: Owner, bot: str, name: str) -> None:
    """A client may send null for a field that it does not use."""
    acme.permit(bot, "a")
    assert send(acme, {"agent_id": bot, "action": "a", name: None}).json()["allowed"] is True


def test_unknown_fields_are_ignored(acme: Owner, bot: str) -> None:
    """Old gateways and new SDKs must mix, so that unknown fields mean nothing here (decisions §2)."""
    acme.permit(bot, "a")
    body = {"agent_id": bot, "action": "a", "shiny": {"new": [1]}, "": None, "allowed": False}
    assert send(acme, body).json()["allowed"] is True


@pytest.mark.parametrize("length", [255, 1])
def test_references_may_have_up_to_255_characters(acme: Owner, bot: str, length: int) -> None:
    """`call_id` and `run_id` are up to 255 printable characters of any script (decisions §4)."""
    acme.permit(bot, "a")
    reference = "é" * length
    body = {"agent_id": bot, "action": "a", "call_id": reference, "run_id": reference}
    assert send(acme, body).json()["allowed"] is True


@pytest.mark.parametrize("key", ["", "k" * 256, "tab\tinside"])
def test_a_wrong_idempotency_key_is_named(acme: Owner, bot: str, key: str) -> None:
    """The header is 1-255 printable characters, on a check as on a log (decisions §6)."""
    acme.permit(bot, "a")
    headers = {"X-API-Key": acme.key, "Idempotency-Key": key}
    answer = acme.http.post("/sdk/check", json={"agent_id": bot, "action": "a"}, headers=headers)
    assert list(complaints(answer)) == ["Idempotency-Key"]
