"""Checks under rules: the strongest rule decides together with the permission, from the next check on."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.team import Colleague

from toolgate_service.approvals.models import NO_PERMISSION


@pytest.fixture
def acme(gateway: LiveGateway) -> Iterator[Owner]:
    """A new organization for each test, because its rules apply to all its calls."""
    with Owner(gateway.url) as owner:
        yield owner


def rule(owner: Owner, effect: str, **fields: object) -> str:
    body = {
        "name": f"{effect} {len(owner.http.get('/api/rules').json())}",
        "effect": effect,
        "actions": ["*"],
    }
    answer = owner.http.post("/api/rules", json=body | fields)
    assert answer.status_code == 201, answer.text
    rule_id: str = answer.json()["id"]
    return rule_id


def change(owner: Owner, rule_id: str, **fields: object) -> None:
    answer = owner.http.put(f"/api/rules/{rule_id}", json=fields)
    assert answer.status_code == 200, answer.text


def outcome(answer: httpx.Response) -> tuple[str, str | None]:
    assert answer.status_code == 200, answer.text
    return answer.headers["x-reason-code"], answer.headers.get("x-rule-id")


@pytest.fixture
def ann(acme: Owner) -> Iterator[Colleague]:
    """A member of the organization."""
    with Colleague(acme) as colleague:
        yield colleague


@pytest.fixture
def eve(acme: Owner) -> Iterator[Colleague]:
    """Another member of the organization."""
    with Colleague(acme) as colleague:
        yield colleague


def approve(owner: Owner | Colleague, approval_id: str) -> httpx.Response:
    return owner.http.post(f"/api/approvals/{approval_id}/approve")


def test_check_without_rules_names_none(acme: Owner) -> None:
    agent = acme.agent()
    acme.permit(agent, "a.b")
    assert outcome(acme.check(agent, "a.b")) == ("allowed", None)
    assert outcome(acme.check(agent, "a.c")) == ("no_permission", None)


def test_forbidding_rule_denies_a_permitted_call_at_once(acme: Owner) -> None:
    agent = acme.agent()
    acme.permit(agent, "db.drop")
    assert outcome(acme.check(agent, "db.drop")) == ("allowed", None)
    made = rule(acme, "forbid", name="No drops", actions=["db.*"])
    answer = acme.check(agent, "db.drop")
    assert outcome(answer) == ("forbidden_by_rule", made)
    assert answer.json()["reason"] == "Rule 'No drops' forbids action 'db.drop'"
    change(acme, made, enabled=False)
    assert outcome(acme.check(agent, "db.drop")) == ("allowed", None)
    change(acme, made, enabled=True)
    assert outcome(acme.check(agent, "db.drop")) == ("forbidden_by_rule", made)
    assert acme.http.delete(f"/api/rules/{made}").status_code == 204
    assert outcome(acme.check(agent, "db.drop")) == ("allowed", None)


def test_allowing_rule_permits_without_a_permission(acme: Owner) -> None:
    agent, other = acme.agent("bot"), acme.agent("eve")
    made = rule(acme, "allow", actions=["mail.*"], agents=["bot"], when="args.to.endsWith('@acme.test')")
    assert outcome(acme.check(agent, "mail.send", {"to": "ann@acme.test"})) == ("allowed", made)
    assert outcome(acme.check(agent, "mail.send", {"to": "ann@evil.test"})) == ("no_permission", None)
    assert outcome(acme.check(agent, "mail.send", {})) == ("no_permission", None)
    assert outcome(acme.check(other, "mail.send", {"to": "ann@acme.test"})) == ("no_permission", None)
    assert outcome(acme.check(agent, "stripe.refund", {"to": "ann@acme.test"})) == ("no_permission", None)


def test_condition_that_fails_is_the_stricter_result(acme: Owner) -> None:
    agent = acme.agent()
    acme.permit(agent, "a.b")
    forbidding = rule(acme, "forbid", when="args.region != 'eu'")
    assert outcome(acme.check(agent, "a.b", {"region": "eu"})) == ("allowed", None)
    assert outcome(acme.check(agent, "a.b", {"region": "us"})) == ("forbidden_by_rule", forbidding)
    assert outcome(acme.check(agent, "a.b", {})) == ("forbidden_by_rule", forbidding)
    assert outcome(acme.check(agent, "a.b", {"region": 2**70})) == ("forbidden_by_rule", forbidding)


@pytest.mark.parametrize("effect", ["allow", "require_approval"])
@pytest.mark.parametrize(
    ("context", "code"),
    [
        ({"amount": 11}, "amount_exceeded"),
        ({"amount": "5"}, "amount_invalid"),
        ({"amount": -5}, "amount_invalid"),
        ({}, "amount_missing"),
    ],
)
def test_no_rule_lifts_the_maximum_of_a_permission(
    acme: Owner, effect: str, context: dict[str, object], code: str
) -> None:
    agent = acme.agent()
    acme.permit(
        agent, "pay", max_amount=10, amount_required=True, requires_approval=True, required_approvals=2
    )
    rule(acme, effect, actions=["pay"])
    assert outcome(acme.check(agent, "pay", context)) == (code, None)
    assert outcome(acme.check(agent, "pay", {"amount": 10}))[0] == "approval_required"


def test_allowing_rule_does_not_remove_the_approval_of_a_permission(acme: Owner) -> None:
    agent = acme.agent()
    acme.permit(agent, "pay", requires_approval=True)
    rule(acme, "allow", actions=["pay"])
    assert outcome(acme.check(agent, "pay")) == ("approval_required", None)


def test_shorter_time_of_a_new_rule_applies_to_a_pending_request(acme: Owner) -> None:
    agent = acme.agent()
    acme.permit(agent, "pay", requires_approval=True)
    approval_id = acme.check(agent, "pay").json()["approval_id"]
    rule(acme, "require_approval", approval={"ttl": 60})
    assert acme.check(agent, "pay").json()["approval_id"] == approval_id
    shown = acme.http.get(f"/api/approvals/{approval_id}").json()
    created, expires = (datetime.fromisoformat(shown[name]) for name in ("created_at", "expires_at"))
    assert (expires - created).total_seconds() == 60


@pytest.mark.parametrize("permitted", [False, True])
def test_call_that_a_rule_holds_runs_once_after_its_approval(acme: Owner, *, permitted: bool) -> None:
    agent = acme.agent()
    if permitted:
        acme.permit(agent, "stripe.refund")
    made = rule(acme, "require_approval", actions=["stripe.*"])
    context = {"amount": 5}
    answer = acme.check(agent, "stripe.refund", context)
    assert outcome(answer) == ("approval_required", made)
    approval_id = answer.json()["approval_id"]
    assert acme.check(agent, "stripe.refund", context).json()["approval_id"] == approval_id
    shown = acme.http.get(f"/api/approvals/{approval_id}").json()
    assert shown["rule_id"] == made
    assert (shown["permission_id"] != NO_PERMISSION) is permitted
    assert approve(acme, approval_id).status_code == 200
    assert outcome(acme.check(agent, "stripe.refund", {"amount": 6}))[0] == "approval_required"
    assert outcome(acme.check(agent, "stripe.refund", context)) == ("approved", made)
    again = acme.check(agent, "stripe.refund", context)
    assert outcome(again) == ("approval_required", made)
    assert again.json()["approval_id"] != approval_id


def test_approved_call_that_a_rule_forbids_since_is_denied(acme: Owner) -> None:
    agent = acme.agent()
    rule(acme, "require_approval", actions=["stripe.*"])
    approval_id = acme.check(agent, "stripe.refund").json()["approval_id"]
    assert approve(acme, approval_id).status_code == 200
    forbidding = rule(acme, "forbid", actions=["stripe.refund"])
    assert outcome(acme.check(agent, "stripe.refund")) == ("forbidden_by_rule", forbidding)
    assert acme.http.delete(f"/api/rules/{forbidding}").status_code == 204
    assert outcome(acme.check(agent, "stripe.refund"))[0] == "approved"


def test_approval_does_not_help_once_nothing_allows_the_call(acme: Owner) -> None:
    agent = acme.agent()
    made = rule(acme, "require_approval", actions=["stripe.*"])
    approval_id = acme.check(agent, "stripe.refund").json()["approval_id"]
    assert approve(acme, approval_id).status_code == 200
    assert acme.http.delete(f"/api/rules/{made}").status_code == 204
    assert outcome(acme.check(agent, "stripe.refund", approval_id=approval_id)) == ("no_permission", None)


def test_strictest_quorum_and_approvers_apply(acme: Owner, ann: Colleague, eve: Colleague) -> None:
    agent = acme.agent()
    acme.permit(agent, "pay", requires_approval=True)
    first = rule(acme, "require_approval", approval={"quorum": 2})
    rule(acme, "require_approval", when="args.amount > 100", approval={"approvers": [ann.email, acme.email]})
    large = acme.check(agent, "pay", {"amount": 101})
    assert outcome(large) == ("approval_required", first)
    approval_id = large.json()["approval_id"]
    refused = approve(eve, approval_id)
    assert refused.status_code == 403
    assert "names other approvers" in refused.text
    assert approve(ann, approval_id).json()["status"] == "pending"
    assert approve(acme, approval_id).json()["status"] == "approved"
    assert outcome(acme.check(agent, "pay", {"amount": 101}))[0] == "approved"
    small = acme.check(agent, "pay", {"amount": 1}).json()["approval_id"]
    assert approve(eve, small).json()["status"] == "pending"
    assert approve(ann, small).json()["status"] == "approved"


def test_rule_that_was_tightened_after_the_approval_needs_another_one(acme: Owner) -> None:
    agent = acme.agent()
    made = rule(acme, "require_approval")
    approval_id = acme.check(agent, "pay").json()["approval_id"]
    assert approve(acme, approval_id).status_code == 200
    change(acme, made, approval={"quorum": 2})
    answer = acme.check(agent, "pay")
    assert outcome(answer) == ("approval_required", made)
    assert answer.json()["approval_id"] != approval_id
    assert acme.http.get(f"/api/approvals/{answer.json()['approval_id']}").json()["required_approvals"] == 2


def test_rule_shortens_the_time_for_a_decision(acme: Owner) -> None:
    agent = acme.agent()
    acme.permit(agent, "pay", requires_approval=True, approval_ttl_seconds=7200)
    rule(acme, "require_approval", approval={"ttl": 60})
    shown = acme.http.get(f"/api/approvals/{acme.check(agent, 'pay').json()['approval_id']}").json()
    created, expires = (datetime.fromisoformat(shown[name]) for name in ("created_at", "expires_at"))
    assert (expires - created).total_seconds() == 60


def test_temporary_approval_covers_only_calls_with_its_terms(acme: Owner, ann: Colleague) -> None:
    agent = acme.agent()
    rule(acme, "require_approval", actions=["pay"])
    two = rule(acme, "require_approval", actions=["pay"], when="args.amount > 100", approval={"quorum": 2})
    first = acme.check(agent, "pay", {"amount": 100, "order": 1}).json()["approval_id"]
    grant = {"max_uses": 5, "duration_seconds": 600, "ignored_fields": ["order"]}
    assert acme.http.post(f"/api/approvals/{first}/approve", json={"grant": grant}).status_code == 200
    assert outcome(acme.check(agent, "pay", {"amount": 100, "order": 1}))[0] == "approved"
    assert outcome(acme.check(agent, "pay", {"amount": 99, "order": 2}))[0] == "temporary_approval"
    # Another rule holds smaller amounts of this order too, and asks for two people.
    change(acme, two, when="args.order == 3")
    held = acme.check(agent, "pay", {"amount": 99, "order": 3})
    assert outcome(held)[0] == "approval_required"
    assert approve(ann, held.json()["approval_id"]).json()["status"] == "pending"


def test_edited_context_is_decided_by_the_rules_again(acme: Owner) -> None:
    agent = acme.agent()
    rule(acme, "require_approval", actions=["pay"])
    forbidding = rule(acme, "forbid", actions=["pay"], when="args.amount > 100")
    asked = acme.check(agent, "pay", {"amount": 1}, call_id="c1").json()["approval_id"]
    edited = acme.http.post(f"/api/approvals/{asked}/approve", json={"context": {"amount": 101}}).json()
    answer = acme.check(agent, "pay", {"amount": 101}, approval_id=edited["id"], call_id="c1")
    assert outcome(answer) == ("forbidden_by_rule", forbidding)


def test_rules_of_the_other_environment_do_not_apply(acme: Owner) -> None:
    agent = acme.agent()
    acme.permit(agent, "a.b")
    body = {"name": "test only", "effect": "forbid", "actions": ["*"]}
    assert acme.http.post("/api/rules", json=body, params={"environment": "test"}).status_code == 201
    assert outcome(acme.check(agent, "a.b")) == ("allowed", None)


def test_freeze_and_disabled_agent_are_stronger_than_an_allowing_rule(acme: Owner) -> None:
    agent = acme.agent()
    rule(acme, "allow")
    assert outcome(acme.check(agent, "a.b"))[0] == "allowed"
    frozen = acme.http.post("/api/freeze", json={"reason": "drill"}).json()["id"]
    assert outcome(acme.check(agent, "a.b"))[0] == "frozen"
    acme.http.post(f"/api/freeze/{frozen}/lift")
    acme.http.put(f"/api/agents/{agent}", json={"status": "inactive"})
    assert outcome(acme.check(agent, "a.b"))[0] == "agent_disabled"


CONDITIONS: list[tuple[str, dict[str, Any], bool]] = [
    ("args.amount > 100", {"amount": 101}, True),
    ("args.amount > 100", {"amount": 100.5}, True),
    ("args.amount > 100", {"amount": 100}, False),
    ("action == 'a.b' && agent.name == 'bot'", {}, True),
    ("run.id == ''", {}, True),
    ("now > timestamp('2020-01-01T00:00:00Z')", {}, True),
    ("has(args.note) && args.note.matches('(?i)secret')", {"note": "Top SECRET"}, True),
    ("args.to.all(x, x.endsWith('@acme.test'))", {"to": ["a@acme.test", "b@evil.test"]}, False),
]


@pytest.mark.parametrize(("when", "context", "matches"), CONDITIONS)
def test_condition_sees_the_call(acme: Owner, when: str, context: dict[str, Any], *, matches: bool) -> None:
    agent = acme.agent("bot")
    rule(acme, "allow", when=when)
    assert outcome(acme.check(agent, "a.b", context))[0] == ("allowed" if matches else "no_permission")
