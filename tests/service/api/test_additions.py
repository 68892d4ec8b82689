"""Additions to the specified interface: reason codes, error codes, PATCH, reject, API keys as bearer tokens."""

import httpx
import pytest
from support.gateway import Owner


def check(owner: Owner, body: dict[str, object], **headers: str) -> httpx.Response:
    return owner.http.post("/sdk/check", json=body, headers=headers or {"X-API-Key": owner.key})


@pytest.mark.parametrize(
    ("context", "code"),
    [
        ({"amount": 5}, "allowed"),
        ({"amount": 11}, "amount_exceeded"),
        ({"amount": "many"}, "amount_invalid"),
        ({}, "amount_missing"),
    ],
)
def test_reason_code_of_amounts(acme: Owner, bot: str, context: dict[str, object], code: str) -> None:
    acme.permit(bot, "pay", max_amount=10, amount_required=True)
    response = check(acme, {"agent_id": bot, "action": "pay", "context": context})
    assert response.headers["X-Reason-Code"] == code


def test_reason_code_follows_the_state_of_agent_permission_and_approval(acme: Owner, bot: str) -> None:
    body: dict[str, object] = {"agent_id": bot, "action": "drop", "call_id": "c1"}
    codes = [check(acme, body | {"agent_id": "nobody"}).headers["X-Reason-Code"]]
    codes.append(check(acme, body).headers["X-Reason-Code"])
    acme.permit(bot, "drop", requires_approval=True)
    held = check(acme, body)
    codes.append(held.headers["X-Reason-Code"])
    acme.http.post(f"/api/approvals/{held.json()['approval_id']}/approve").raise_for_status()
    codes.append(check(acme, body).headers["X-Reason-Code"])
    codes.append(check(acme, body).headers["X-Reason-Code"])
    again = check(acme, body | {"call_id": "c2"}).json()["approval_id"]
    rejected = acme.http.post(f"/api/approvals/{again}/reject", json={"note": "no"})
    assert (rejected.status_code, rejected.json()["status"]) == (200, "denied")
    codes.append(check(acme, body | {"call_id": "c2"}).headers["X-Reason-Code"])
    acme.http.patch(f"/api/agents/{bot}", json={"status": "inactive"}).raise_for_status()
    codes.append(check(acme, body).headers["X-Reason-Code"])
    assert codes == [
        "agent_not_found",
        "no_permission",
        "approval_required",
        "approved",
        "call_already_allowed",
        "recently_rejected",
        "agent_disabled",
    ]


def test_patch_keeps_fields_that_are_not_sent(acme: Owner, bot: str) -> None:
    before = acme.http.get(f"/api/agents/{bot}").json()
    changed = acme.http.patch(f"/api/agents/{bot}", json={"description": "patched"})
    assert changed.status_code == 200
    assert changed.json() | {"description": before["description"]} == before
    refused = acme.http.patch("/api/agents", json={})
    assert (refused.status_code, refused.json()["code"]) == (405, "method_not_allowed")
    assert "PATCH" in acme.http.post(f"/api/agents/{bot}").headers["Allow"]


def test_api_key_as_bearer_token(acme: Owner, bot: str) -> None:
    acme.permit(bot, "read")
    body: dict[str, object] = {"agent_id": bot, "action": "read"}
    assert check(acme, body, Authorization=f"Bearer {acme.key}").json()["allowed"] is True
    assert check(acme, body, Authorization=f"bearer  {acme.key}").status_code == 200
    both = check(acme, body, Authorization=f"Bearer {acme.key}", **{"X-API-Key": "ak_unknown"})
    assert (both.status_code, both.json()["code"]) == (401, "unauthenticated")
    for wrong in (f"Basic {acme.key}", acme.key, "Bearer"):
        assert check(acme, body, Authorization=wrong).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/agents/x", 404, "not_found"),
        ("POST", "/api/agents", 400, "invalid_request"),
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/sdk/check", 405, "method_not_allowed"),
    ],
)
def test_every_error_has_a_code(acme: Owner, method: str, path: str, status: int, code: str) -> None:
    response = acme.http.request(method, path, json={} if method == "POST" else None)
    assert (response.status_code, response.json()["code"]) == (status, code)
