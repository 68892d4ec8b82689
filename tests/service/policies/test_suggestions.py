"""Suggestions of rules that allow approved calls and no other calls."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.gateway import LiveGateway, Owner
from support.policies import apply, plan, summary
from support.tables import execute
from support.team import Colleague

from toolgate_service.core.clock import wire
from toolgate_service.core.strict_json import Json
from toolgate_service.policies.argument_conditions import MAX_VALUES, NotCoverable
from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.evaluation import Outcome, PolicyEvaluator
from toolgate_service.policies.suggestions import ApprovedCall, Group, suggest

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
ACTION = "stripe.refund"


def approve(
    owner: Owner, agent: str, *contexts: Mapping[str, object], how: str = "approve", **fields: str
) -> None:
    for context in contexts:
        answer = owner.check(agent, ACTION, context, **fields)
        assert answer.headers["x-reason-code"] == "approval_required", answer.text
        decided = owner.http.post(f"/api/approvals/{answer.json()['approval_id']}/{how}")
        assert decided.status_code == 200, decided.text


def suggestions(owner: Owner, **params: object) -> dict[str, Any]:
    answer = owner.http.get("/api/policy/suggestions", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def only(found: dict[str, Any]) -> dict[str, Any]:
    assert found["unsuggested"] == []
    [suggestion] = found["suggestions"]
    one: dict[str, Any] = suggestion
    return one


def reason(found: dict[str, Any]) -> str:
    assert found["suggestions"] == []
    [one] = found["unsuggested"]
    assert one["action"] == ACTION
    return str(one["reason"])


def codes(owner: Owner, agent: str, *contexts: Mapping[str, object]) -> list[str]:
    return [owner.check(agent, ACTION, context).headers["x-reason-code"] for context in contexts]


def test_suggestion_for_a_permission_that_requires_an_approval(newcomer: Owner) -> None:
    agent = newcomer.agent("refund-bot")
    newcomer.permit(
        agent, ACTION, requires_approval=True, required_approvals=1, approval_ttl_seconds=600, max_amount=99
    )
    approve(newcomer, agent, *({"amount": 5 * n, "currency": "EUR"} for n in range(1, 13)))
    one = only(suggestions(newcomer))
    condition = (
        "size(args) == 2 && has(args.amount) && args.amount >= 5 && args.amount <= 60 && "
        'has(args.currency) && args.currency == "EUR"'
    )
    assert (one["agent"], one["agent_id"], one["action"]) == ("refund-bot", agent, ACTION)
    assert (one["approvals"], one["allowed"], one["condition"]) == (12, 12, condition)
    assert one["first_at"] < one["last_at"]
    name = f"Approval of {ACTION} by refund-bot"
    assert summary(one["changes"]) == [f"update permission refund-bot {ACTION}", f"create rule {name}"]
    assert one["policy"]["rules"] == [
        {
            "name": name,
            "effect": "require_approval",
            "agents": ["refund-bot"],
            "actions": [ACTION],
            "when": f"!({condition})",
            "approval": {"quorum": 1, "ttl": 600, "approvers": None},
            "enabled": True,
        }
    ]
    assert plan(newcomer, one["policy"])["changes"] == one["changes"]
    apply(newcomer, one["policy"])
    calls: list[Mapping[str, object]] = [
        {"amount": 7, "currency": "EUR"},
        {"amount": 61, "currency": "EUR"},
        {"amount": 7, "currency": "USD"},
        {"amount": 7},
        {"amount": 7, "currency": "EUR", "note": ""},
        {"amount": "7", "currency": "EUR"},
        {"amount": 100, "currency": "EUR"},
    ]
    assert codes(newcomer, agent, *calls) == [
        "allowed", *["approval_required"] * 4, "amount_invalid", "amount_exceeded",
    ]  # fmt: skip


def test_suggestion_for_a_rule_that_requires_an_approval(newcomer: Owner) -> None:
    agent, other = newcomer.agent("bot"), newcomer.agent("other")
    for one in (agent, other):
        newcomer.permit(one, ACTION)
    for name, when in (("all", None), ("some", "args.n < 100"), ("unrelated", "args.n > 100")):
        body = {"name": name, "effect": "require_approval", "actions": ["stripe.*"], "when": when}
        assert newcomer.http.post("/api/rules", json=body).status_code == 201
    approve(newcomer, agent, *({"n": n} for n in range(5)))
    found = only(suggestions(newcomer))
    rules = {rule["name"]: rule["when"] for rule in found["policy"]["rules"]}
    covered = (
        f'agent.name == "bot" && action == "{ACTION}" && size(args) == 1 && has(args.n) && '
        "args.n in [0, 1, 2, 3, 4]"
    )
    assert rules == {
        "all": f"!({covered})",
        "some": f"(args.n < 100) && !({covered})",
        "unrelated": "args.n > 100",
    }
    assert summary(found["changes"]) == ["update rule all", "update rule some"]
    apply(newcomer, found["policy"])
    assert codes(newcomer, agent, {"n": 4}, {"n": 5}) == ["allowed", "approval_required"]
    assert codes(newcomer, other, {"n": 4}) == ["approval_required"]


def test_agents_with_the_same_name_are_distinguished(newcomer: Owner) -> None:
    agent, twin = newcomer.agent("twin"), newcomer.agent("twin")
    for one in (agent, twin):
        newcomer.permit(one, ACTION)
    body = {"name": "all", "effect": "require_approval", "actions": ["*"]}
    assert newcomer.http.post("/api/rules", json=body).status_code == 201
    approve(newcomer, agent, *({"n": n} for n in range(5)))
    apply(newcomer, only(suggestions(newcomer))["policy"])
    assert codes(newcomer, agent, {"n": 4}) == ["allowed"]
    assert codes(newcomer, twin, {"n": 4}) == ["approval_required"]


def test_suggestion_needs_enough_approvals_and_no_rejection(gateway: LiveGateway, newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, ACTION, requires_approval=True)
    nothing = {"suggestions": [], "unsuggested": []}
    approve(newcomer, agent, *({"n": n} for n in range(4)))
    # A pending request does not count.
    newcomer.check(agent, ACTION, {"n": 9})
    assert suggestions(newcomer).items() >= nothing.items()
    assert only(suggestions(newcomer, minimum=4))["approvals"] == 4
    # A consumed request counts as one that is approved.
    assert codes(newcomer, agent, {"n": 3}) == ["approved"]
    assert only(suggestions(newcomer, minimum=4))["approvals"] == 4
    approve(newcomer, agent, {"n": 5}, how="deny")
    assert suggestions(newcomer, minimum=4).items() >= nothing.items()
    past = wire(datetime.now(UTC) - timedelta(days=3))
    change = (
        "UPDATE approvals SET created_at = ?, decided_at = ? WHERE organization_id = ? AND status = 'denied'"
    )
    execute(gateway, change, past, past, newcomer.user["organization_id"])
    assert only(suggestions(newcomer, minimum=4, days=2))["approvals"] == 4
    assert suggestions(newcomer, minimum=4, days=4).items() >= nothing.items()


def test_uses_of_a_temporary_approval_do_not_count(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, ACTION, requires_approval=True)
    held = newcomer.check(agent, ACTION, {"n": 1}).json()["approval_id"]
    body = {"grant": {"uses": 5, "seconds": 600}}
    assert newcomer.http.post(f"/api/approvals/{held}/approve", json=body).status_code == 200
    assert codes(newcomer, agent, *[{"n": 1}] * 4) == ["approved", *["temporary_approval"] * 3]
    assert only(suggestions(newcomer, minimum=1))["approvals"] == 1


def test_requests_because_of_a_budget_do_not_count(newcomer: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, ACTION)
    body = {"name": "b", "actions": ["*"], "window": "month", "limit": 0, "at_limit": "require_approval"}
    assert newcomer.http.post("/api/budgets", json=body).status_code == 201
    approve(newcomer, agent, {"n": 1})
    assert suggestions(newcomer, minimum=1).items() >= {"suggestions": [], "unsuggested": []}.items()


def test_reason_why_there_is_no_suggestion(newcomer: Owner) -> None:
    agent = newcomer.agent()
    permission = newcomer.permit(agent, ACTION, requires_approval=True)
    approve(newcomer, agent, {"to": "a" * 1_500, "n": 1}, {"to": "b" * 500, "n": 1})
    assert reason(suggestions(newcomer, minimum=2)).startswith(
        "the condition of a rule would be invalid: The expression has 2"
    )
    newcomer.http.put(f"/api/permissions/{permission}", json={"requires_approval": False})
    assert (
        reason(suggestions(newcomer, minimum=2))
        == "the current policy does not require an approval for these calls"
    )
    body = {"name": "no", "effect": "forbid", "actions": ["*"]}
    forbidding = newcomer.http.post("/api/rules", json=body).json()["id"]
    assert reason(suggestions(newcomer, minimum=2)) == (
        f"the current policy denies an approved call: Rule 'no' forbids action '{ACTION}'"
    )
    newcomer.http.delete(f"/api/rules/{forbidding}")
    newcomer.http.put(f"/api/permissions/{permission}", json={"requires_approval": True})
    approve(newcomer, agent, {"to": [], "n": 1})
    assert reason(suggestions(newcomer, minimum=2)) == "argument 'to' has lists or objects as values"


def test_call_that_only_a_rule_holds_has_no_suggestion_without_a_permission(newcomer: Owner) -> None:
    agent = newcomer.agent()
    body = {"name": "hold", "effect": "require_approval", "actions": ["*"]}
    assert newcomer.http.post("/api/rules", json=body).status_code == 201
    approve(newcomer, agent, {"n": 1}, {"n": 2})
    assert reason(suggestions(newcomer, minimum=2)) == (
        f"the changed policy does not allow an approved call: Agent has no permission for action '{ACTION}'"
    )


def test_suggestions_are_of_one_environment_and_tenant(newcomer: Owner, rival: Owner) -> None:
    agent = newcomer.agent()
    newcomer.permit(agent, ACTION, requires_approval=True)
    approve(newcomer, agent, {"n": 1})
    assert len(suggestions(newcomer, minimum=1)["suggestions"]) == 1
    assert suggestions(newcomer, minimum=1, environment="test")["suggestions"] == []
    assert agent not in [one["agent_id"] for one in suggestions(rival, minimum=1)["suggestions"]]


def test_every_role_may_read_suggestions(newcomer: Owner) -> None:
    for role in ("member", "viewer"):
        with Colleague(newcomer, role) as colleague:
            assert colleague.http.get("/api/policy/suggestions").status_code == 200
    assert httpx.get(f"{newcomer.url}/api/policy/suggestions").status_code == 401


@pytest.mark.parametrize("params", [{"minimum": 0}, {"days": 0}, {"days": 366}])
def test_invalid_parameters(newcomer: Owner, params: dict[str, int]) -> None:
    assert newcomer.http.get("/api/policy/suggestions", params=params).status_code == 400


NUMBERS = st.integers(-3, 30) | st.decimals("-3", "30", places=1)
SCALARS = st.sampled_from(["a", "b", "", 'c"\\', True, False, None]) | NUMBERS
VALUES = SCALARS | st.just([1]) | st.sampled_from([{"$digest": "ff"}, {"$digest": "fe", "bytes": 2}])
NAMES = st.sampled_from(["amount", "to", "a-b", "in"])
CONTEXTS = st.dictionaries(NAMES, VALUES, max_size=2)


@st.composite
def approved_contexts(draw: st.DrawFn) -> list[dict[str, Json]]:
    """Draw contexts with the same arguments, each with values of one type in most cases."""
    names = draw(st.lists(NAMES, unique=True, max_size=2))
    kinds = {
        name: draw(st.sampled_from([NUMBERS, st.sampled_from(["a", "b", 'c"\\']), VALUES])) for name in names
    }
    return draw(st.lists(st.fixed_dictionaries(kinds), min_size=1, max_size=14))


@st.composite
def current_policies(draw: st.DrawFn) -> PolicyDocument:
    """Draw a policy that requires an approval because of the permission, of rules, or of both."""
    permission = {"action": "pay", "requires_approval": draw(st.booleans()), "required_approvals": 2}
    rules = [
        {"name": "all", "effect": "require_approval", "actions": ["*"]},
        {"name": "some", "effect": "require_approval", "actions": ["pay"], "when": "args.amount > 5"},
        {"name": "to", "effect": "require_approval", "actions": ["p*"], "when": "args.to == 'a'"},
        {"name": "never", "effect": "forbid", "actions": ["pay"], "when": "args.amount == 29"},
    ]
    chosen = draw(st.lists(st.sampled_from(rules), unique_by=lambda rule: str(rule["name"])))
    agents = [{"name": name, "permissions": [permission]} for name in ("bot", "other")]
    return PolicyDocument.model_validate({"version": "toolgate.policy/v1", "agents": agents, "rules": chosen})


def is_covered(approved: Sequence[Mapping[str, Json]], call: Mapping[str, Json]) -> bool:
    """Return whether a call is no wider than the approved ones, independently of the implementation."""
    return set(call) == set(approved[0]) and all(
        is_value_covered([one[name] for one in approved], value) for name, value in call.items()
    )


def is_value_covered(approved: Sequence[Json], value: Json) -> bool:
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if not is_number:
        return any(type(one) is type(value) and one == value for one in approved)
    numbers = [float(one) for one in approved if isinstance(one, int | Decimal) and not isinstance(one, bool)]
    if len(set(numbers)) <= MAX_VALUES:
        return float(value) in numbers
    return min(numbers) <= float(value) <= max(numbers)


@given(current_policies(), approved_contexts(), st.lists(CONTEXTS, max_size=10), st.data())
def test_candidate_allows_the_approved_calls_and_nothing_wider(
    policy: PolicyDocument,
    approved: list[dict[str, Json]],
    others: list[dict[str, Json]],
    data: st.DataObject,
) -> None:
    ids = {"bot": "1", "other": "2"}
    current = PolicyEvaluator(policy, ids)
    calls = [ApprovedCall(context, None, MOMENT) for context in approved]
    try:
        _, candidate = suggest(policy, current, ids, Group("1", "pay", len(calls), calls))
    except NotCoverable:
        assume(False)
    changed = PolicyEvaluator(candidate, ids)

    def outcomes(agent: str, action: str, context: Mapping[str, Json]) -> tuple[Outcome, Outcome]:
        before, after = (one.judge(agent, action, context, None, MOMENT) for one in (current, changed))
        return before.outcome, after.outcome

    assert all(outcomes("1", "pay", context)[1] is Outcome.ALLOWED for context in approved)
    # Calls that differ from an approved one in a single value are the most likely to be covered by mistake.
    for context in approved[:3]:
        for name in context:
            others.append(context | {name: data.draw(VALUES)})
    for context in others:
        before, after = outcomes("1", "pay", context)
        if before is not after:
            assert (before, after) == (Outcome.APPROVAL_REQUIRED, Outcome.ALLOWED)
            assert is_covered(approved, context)
        else:
            assert before is Outcome.ALLOWED or before is Outcome.DENIED or not is_covered(approved, context)
        for agent, action in (("2", "pay"), ("1", "pause"), ("2", "pause")):
            before, after = outcomes(agent, action, context)
            assert before is after


def test_candidate_keeps_the_terms_of_the_approval() -> None:
    permission = {"action": "pay", "requires_approval": True, "required_approvals": 3, "approval_ttl_seconds": 60,
                  "separation_of_duties": True}  # fmt: skip
    agents = [{"name": "bot", "permissions": [permission]}]
    policy = PolicyDocument.model_validate({"version": "toolgate.policy/v1", "agents": agents})
    current = PolicyEvaluator(policy, {"bot": "1"})
    call = ApprovedCall({"n": 1}, None, MOMENT)
    _, candidate = suggest(policy, current, {"bot": "1"}, Group("1", "pay", 1, [call]))
    before, after = (
        one.judge("1", "pay", {"n": 2}, None, MOMENT).terms
        for one in (current, PolicyEvaluator(candidate, {"bot": "1"}))
    )
    assert before is not None
    assert before == after


def test_name_of_the_new_rule_is_unique() -> None:
    name = "Approval of pay by bot"
    agents = [{"name": "bot", "permissions": [{"action": "pay", "requires_approval": True}]}]
    rules = [{"name": one, "effect": "forbid", "actions": ["x"]} for one in (name, f"{name} (2)")]
    document = {"version": "toolgate.policy/v1", "agents": agents, "rules": rules}
    policy = PolicyDocument.model_validate(document)
    call = ApprovedCall({}, None, MOMENT)
    current = PolicyEvaluator(policy, {"bot": "1"})
    _, candidate = suggest(policy, current, {"bot": "1"}, Group("1", "pay", 1, [call]))
    assert candidate.rules[-1].name == f"{name} (3)"
    candidate.verify()
