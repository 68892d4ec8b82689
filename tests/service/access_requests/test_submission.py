"""Submission of access requests, and its binding to the denied evaluation."""

import json
from datetime import timedelta
from typing import Any

import jwt
import pytest
from support.arap import denial_of
from support.authzen import agent_key
from support.decisions import recorded
from support.gateway import SECRET, LiveGateway, Owner
from support.requester import REFUND, Requester, problem
from support.tables import execute, rows

from toolgate_service.access_requests.signing import Signer
from toolgate_service.core.clock import utcnow, wire
from toolgate_service.core.crypto import Vault
from toolgate_service.core.ids import time_of_id


def test_submission_returns_a_pending_task(pep: Requester) -> None:
    decision = pep.evaluate(REFUND)
    answer = pep.submit(pep.submission(REFUND, decision), decision)
    assert answer.status_code == 202
    body = answer.json()
    assert body.keys() == {"task"}
    task = body["task"]
    assert task["status"] == "pending"
    assert answer.headers["Location"] == task["status_endpoint"]
    assert task["status_endpoint"].endswith(task["id"])
    assert task["links"].keys() == {"cancel", "review"}
    assert "progress" not in task


def test_submission_refers_to_the_approval_request_of_the_evaluation(pep: Requester) -> None:
    decision = pep.evaluate(REFUND)
    pep.request(REFUND, decision)
    [approval] = pep.approvals()
    assert approval["id"] == decision["context"]["approval_id"]


def test_submission_after_the_decision_is_complete_at_once(pep: Requester) -> None:
    decision = pep.evaluate(REFUND)
    pep.decide()
    answer = pep.submit(pep.submission(REFUND, decision))
    assert answer.status_code == 201
    assert answer.json()["task"]["status"] == "approved"
    assert answer.json()["result"]["approval"]["id"] == decision["context"]["approval_id"]


def test_evaluation_id_alone_binds_the_submission(pep: Requester) -> None:
    decision = pep.evaluate(REFUND)
    denial = {name: denial_of(decision)[name] for name in ("evaluation_id", "expires_at")}
    assert pep.submit(REFUND | {"denial": denial}).status_code == 202


def test_binding_token_alone_binds_the_submission(pep: Requester) -> None:
    denial = denial_of(pep.evaluate(REFUND))
    del denial["evaluation_id"]
    assert pep.submit(REFUND | {"denial": denial}).status_code == 202


def test_unknown_members_and_further_context_must_be_accepted(gateway: LiveGateway, pep: Requester) -> None:
    decision = pep.evaluate(REFUND)
    context = REFUND["context"] | {"business_justification": "Duplicate charge", "time": "another"}
    body = pep.submission(REFUND, decision, context=context, requested_access={"emergency": True})
    body |= {"client": {"name": "shop", "source": {"session_id": "s"}}, "vendor.example.com/x": 1}
    answer = pep.submit(body)
    assert answer.status_code == 202
    [[stored]] = rows(
        gateway, "SELECT submission FROM access_requests WHERE id = ?", answer.json()["task"]["id"]
    )
    assert "Duplicate charge" in stored
    assert "binding_token" not in stored


@pytest.mark.parametrize(
    "change",
    [
        {"subject": {"type": "user", "id": "mallory"}},
        {"subject": REFUND["subject"] | {"properties": {"role": "admin"}}},
        {"action": {"name": "cancel", "properties": {"amount": 40}}},
        {"action": {"name": "call", "properties": {"amount": 400}}},
        {"action": {"name": "call", "properties": {"amount": 40, "note": None}}},
        {"action": {"name": "call", "properties": {"amount": "40"}}},
        {"resource": {"type": "tool", "id": "stripe.charge"}},
        {"context": {"ticket": "t-2"}},
        {"context": {}},
    ],
)
@pytest.mark.parametrize("form", ["binding_token", "evaluation_id"])
def test_submission_of_another_access_must_be_rejected(
    pep: Requester, change: dict[str, Any], form: str
) -> None:
    denial = denial_of(pep.evaluate(REFUND))
    denial = {name: denial[name] for name in (form, "expires_at")}
    answer = pep.submit(REFUND | {"denial": denial} | change)
    assert problem(answer) == (400, "invalid_denial_binding")


def test_numbers_are_compared_by_their_value(pep: Requester) -> None:
    decision = pep.evaluate(REFUND)
    action = {"name": "call", "properties": {"amount": 40.0}}
    assert pep.submit(pep.submission(REFUND, decision, action=action)).status_code == 202


def test_actor_may_move_from_the_subject_to_the_client(pep: Requester) -> None:
    acting = {"properties": {"act": {"sub": pep.agent}}}
    decision = pep.evaluate(REFUND | {"subject": REFUND["subject"] | acting})
    body = pep.submission(REFUND, decision, client={"actor": {"id": pep.agent, "type": "ai_agent"}})
    assert pep.submit(body).status_code == 202


@pytest.mark.parametrize(
    "actor",
    [
        {"id": "another"},
        {"id": "{agent}", "act": {"sub": "mallory"}},
        {"id": "{agent}", "act": {"sub": "ann@example.com", "act": {"sub": "x"}}},
    ],
)
def test_actor_that_the_key_does_not_prove_must_be_rejected(pep: Requester, actor: dict[str, Any]) -> None:
    claimed = actor | {"id": actor["id"].format(agent=pep.agent)}
    body = pep.submission(REFUND, pep.evaluate(REFUND), client={"actor": claimed})
    assert problem(pep.submit(body)) == (403, "blank")


def test_actor_that_acts_for_the_subject_is_accepted(pep: Requester) -> None:
    actor = {"id": pep.agent, "act": {"sub": "ann@example.com", "iss": "https://idp.example.com"}}
    body = pep.submission(REFUND, pep.evaluate(REFUND), client={"actor": actor})
    assert pep.submit(body).status_code == 202


def test_submission_without_binding_material_must_be_rejected(pep: Requester) -> None:
    denial = denial_of(pep.evaluate(REFUND))
    assert problem(pep.submit(REFUND)) == (400, "invalid_denial_binding")
    without = {"expires_at": denial["expires_at"]}
    assert problem(pep.submit(REFUND | {"denial": without})) == (400, "invalid_denial_binding")


def test_submission_without_expiry_must_be_rejected(pep: Requester) -> None:
    denial = denial_of(pep.evaluate(REFUND))
    del denial["expires_at"]
    assert problem(pep.submit(REFUND | {"denial": denial})) == (400, "blank")


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("expires_at", "2030-01-01T00:00:00Z"),
        ("expires_at", "tomorrow"),
        ("evaluation_id", "019c6d1e-1c11-7d52-8a40-5b2a90d1e7f4"),
        ("binding_token", "x.y.z"),
    ],
)
def test_changed_member_of_the_denial_must_be_rejected(pep: Requester, member: str, value: str) -> None:
    denial = denial_of(pep.evaluate(REFUND)) | {member: value}
    assert problem(pep.submit(REFUND | {"denial": denial})) == (400, "invalid_denial_binding")


def test_evaluation_that_does_not_wait_must_not_be_requestable(pep: Requester) -> None:
    other = REFUND | {"resource": {"type": "tool", "id": "mail.send"}}
    context = pep.evaluate(other)["context"]
    denial = {"evaluation_id": context["evaluation_id"], "expires_at": wire(utcnow() + timedelta(minutes=1))}
    # The record of a denial without approval is written after the response.
    assert recorded(pep.owner, context["evaluation_id"])
    assert problem(pep.submit(other | {"denial": denial})) == (400, "not_requestable")


def signed(pep: Requester, decision: dict[str, Any], minutes: int, **changed: object) -> str:
    """Return a token for a denial that was evaluated some minutes ago, with changed claims."""
    base = str(changed.pop("base", pep.metadata["policy_decision_point"]))
    secret = str(changed.pop("secret", SECRET))
    evaluated = utcnow() - timedelta(minutes=minutes)
    expires = evaluated + timedelta(minutes=10)
    claims: dict[str, Any] = {
        "evaluation_id": decision["context"]["evaluation_id"],
        "denial_expires_at": wire(expires),
        "organization": pep.owner.user["organization_id"],
        "environment": "production",
        "approval_id": decision["context"]["approval_id"],
    }
    signer = Signer(Vault(secret.encode()).access_request_keys, base)
    return signer.sign(claims | changed, issued=evaluated, expires=expires)


def with_token(token: str) -> dict[str, Any]:
    """Return a submission whose denial has this token, and the expiry in the token."""
    expires = jwt.decode(token, options={"verify_signature": False})["denial_expires_at"]
    return REFUND | {"denial": {"binding_token": token, "expires_at": expires}}


def test_expired_denial_must_be_rejected(pep: Requester) -> None:
    decision = pep.evaluate(REFUND)
    fresh = with_token(signed(pep, decision, 9))
    assert problem(pep.submit(with_token(signed(pep, decision, 11)))) == (410, "expired_denial")
    assert pep.submit(fresh).status_code == 202


def test_expired_evaluation_id_must_be_rejected(gateway: LiveGateway, pep: Requester) -> None:
    decision = pep.evaluate(REFUND)
    context = decision["context"]
    # An id contains its time: this one is the same evaluation in the past.
    old = "019c6d1e-1c11" + context["evaluation_id"][13:]
    created = time_of_id(old)
    assert created is not None
    changed = execute(
        gateway,
        "UPDATE decisions SET id = ?, created_at = ? WHERE id = ?",
        old,
        wire(created),
        context["evaluation_id"],
    )
    assert changed == 1
    denial = {"evaluation_id": old, "expires_at": context["access_request"]["expires_at"]}
    assert problem(pep.submit(REFUND | {"denial": denial})) == (410, "expired_denial")


@pytest.mark.parametrize(
    "changed",
    [
        {"base": "https://another.example.com"},
        {"secret": "another secret, long enough"},
        {"organization": "019c6d1e-1c11-7d52-8a40-5b2a90d1e7f4"},
        {"environment": "test"},
    ],
)
def test_token_for_another_recipient_must_be_rejected(pep: Requester, changed: dict[str, object]) -> None:
    decision = pep.evaluate(REFUND)
    body = with_token(signed(pep, decision, 0, **changed))
    assert problem(pep.submit(body)) == (400, "invalid_denial_binding")


def test_denial_can_be_submitted_once(pep: Requester) -> None:
    decision = pep.evaluate(REFUND)
    body = pep.submission(REFUND, decision)
    assert pep.submit(body).status_code == 202
    assert problem(pep.submit(body)) == (400, "invalid_denial_binding")


def test_retry_with_the_same_key_returns_the_same_task(pep: Requester) -> None:
    body = pep.submission(REFUND, pep.evaluate(REFUND))
    first, second = (pep.submit(body, key="k") for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json() == second.json()


def test_same_key_with_another_body_must_be_rejected(pep: Requester) -> None:
    body = pep.submission(REFUND, pep.evaluate(REFUND))
    pep.submit(body, key="k")
    changed = body | {"requested_access": {"emergency": True}}
    assert problem(pep.submit(changed, key="k")) == (409, "duplicate_request")


def test_keys_of_other_callers_are_independent(pep: Requester) -> None:
    pep.submit(pep.submission(REFUND, pep.evaluate(REFUND)), key="k")
    other = Requester(pep.owner, pep.agent)
    second = other.submit(other.submission(REFUND, other.evaluate(REFUND)), key="k")
    other.close()
    assert second.status_code == 202


def test_submission_must_be_authenticated(pep: Requester) -> None:
    body = pep.submission(REFUND, pep.evaluate(REFUND))
    pep.http.headers["Authorization"] = "Bearer ak_invalid"
    answer = pep.submit(body)
    assert problem(answer) == (401, "blank")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_submission_for_another_agent_must_be_rejected(pep: Requester) -> None:
    body = pep.submission(REFUND, pep.evaluate(REFUND))
    pep.http.headers["Authorization"] = f"Bearer {agent_key(pep.owner, pep.owner.agent('other'))}"
    assert problem(pep.submit(body)) == (400, "invalid_denial_binding")


def test_submission_of_another_organization_must_be_rejected(pep: Requester, rival: Owner) -> None:
    decision = pep.evaluate(REFUND)
    body = pep.submission(REFUND, decision)
    pep.http.headers["Authorization"] = f"Bearer {rival.key}"
    assert problem(pep.submit(body)) == (400, "invalid_denial_binding")
    denial = {name: body["denial"][name] for name in ("evaluation_id", "expires_at")}
    assert problem(pep.submit(REFUND | {"denial": denial})) == (400, "invalid_denial_binding")


def test_advisory_key_cannot_submit(pep: Requester) -> None:
    body = pep.submission(REFUND, pep.evaluate(REFUND))
    key = agent_key(pep.owner, pep.agent, advisory=True)
    pep.http.headers["Authorization"] = f"Bearer {key}"
    assert problem(pep.submit(body)) == (403, "blank")


@pytest.mark.parametrize("depth", [100, 600, 900])
def test_deeply_nested_submission_is_invalid(pep: Requester, depth: int) -> None:
    decision = pep.evaluate(REFUND)
    submission = pep.submission(REFUND, decision, requested_access={"x": 0})
    nested = '{"a":' * depth + "1" + "}" * depth
    body = json.dumps(submission).replace('{"x": 0}', nested)
    endpoint = decision["context"]["access_request"]["endpoint"]
    answer = pep.http.post(endpoint, content=body, headers={"Content-Type": "application/json"})
    assert problem(answer)[0] == 400


def test_names_of_many_context_members_fit_into_the_binding_token(pep: Requester) -> None:
    context = {f"attribute_of_the_request_{number:04}": number for number in range(1_000)}
    assert pep.request(REFUND | {"context": context})["task"]["status"] == "pending"
