"""Proofs and counterexamples for single changes of policies."""

import re
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from itertools import combinations
from threading import Thread
from time import process_time
from typing import Any

import pytest
from support.readme import ROOT

from toolgate_service.policies.document import PolicyDocument
from toolgate_service.policies.evaluation import Outcome, PolicyEvaluator
from toolgate_service.policies.proof import prove as prove_module
from toolgate_service.policies.proof.prove import Counterexample, Proof, Status, prove

MOMENT = datetime(2026, 11, 28, 12, tzinfo=UTC)
PERMISSION = {"action": "stripe.refund"}


def rule(effect: str = "forbid", when: str | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "name": f"{effect} {when}"[:100],
        "effect": effect,
        "actions": ["stripe.*"],
        "when": when,
    } | fields


def policy(
    *rules: dict[str, Any], agents: list[dict[str, Any]] | None = None, **permission: Any
) -> PolicyDocument:
    bots = [{"name": "bot", "permissions": [PERMISSION | permission]}] if agents is None else agents
    document = PolicyDocument.model_validate(
        {"version": "toolgate.policy/v1", "agents": bots, "rules": list(rules)}
    )
    document.verify()
    return document


def compare(old: PolicyDocument, new: PolicyDocument, **options: Any) -> Proof:
    return prove(old, new, moment=MOMENT, **options)


def counterexample(old: PolicyDocument, new: PolicyDocument) -> Counterexample:
    proof = compare(old, new)
    assert proof.status is Status.WIDENED
    assert proof.counterexample is not None
    return proof.counterexample


def conditions(old: str, new: str, effect: str = "forbid") -> Proof:
    return compare(policy(rule(effect, old)), policy(rule(effect, new)))


def document(agents: list[dict[str, Any]], *rules: dict[str, Any]) -> PolicyDocument:
    return PolicyDocument.model_validate(
        {"version": "toolgate.policy/v1", "agents": agents, "rules": list(rules)}
    )


def test_new_agent_with_the_old_name_of_a_renamed_one_is_another_agent() -> None:
    read, delete = [{"action": "a.read"}], [{"action": "a.read"}, {"action": "a.delete"}]
    old = document([{"name": "bot", "permissions": read}])
    new = document(
        [{"name": "old-bot", "id": "u", "permissions": delete}, {"name": "bot", "permissions": read}]
    )
    proof = compare(old, new, agent_ids={"bot": "u", "u": "u"})
    assert proof.status is Status.WIDENED


@pytest.mark.parametrize("name", ["bot", "nova"])
@pytest.mark.parametrize("ids", [{"bot": "u", "u": "u"}, {"u": "u"}])
def test_rule_can_name_an_agent_that_the_document_identifies_by_its_id(
    name: str, ids: dict[str, str]
) -> None:
    allow = {"name": "all", "effect": "allow", "agents": [name], "actions": ["*"]}
    old = document([{"name": "bot", "id": "u"}])
    proof = compare(old, document([{"name": name, "id": "u"}], allow), agent_ids=ids)
    assert proof.status is Status.WIDENED


def test_unsigned_literals_differ_from_integers() -> None:
    everything = rule("allow", None)
    old = policy(rule("forbid", "dyn(args.x + 1u) == 3"), everything)
    new = policy(rule("forbid", "dyn(args.x + 1) == 3"), everything)
    assert compare(old, new).status is not Status.PROVEN


def test_approvers_are_compared_in_lower_case() -> None:
    def terms(*approvers: str) -> list[dict[str, Any]]:
        return [rule("require_approval", None, name=one, approval={"approvers": [one]}) for one in approvers]

    old, new = policy(*terms("b@x.de")), policy(*terms("A@x.de", "a@x.de"))
    assert compare(old, new).status is Status.WIDENED


def test_equal_policies_are_proven() -> None:
    document = policy(rule(when="args.x.matches('a+') && now.getHours() < 8"))
    assert compare(document, document).status is Status.PROVEN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("args.country != 'DE'", "!(args.country == 'DE')"),
        ("args.country in ['DE', 'AT']", "args.country == 'AT' || args.country == 'DE'"),
        ("args.amount > 500", "args.amount > 499"),
        ("args.amount > 500", "args.amount >= 500.0"),
        ("args.amount > 10.5 && args.amount < 20", "args.amount > 10"),
        ("args.count > 9", "args.count + 1 > 10"),
        ("args.a == 1 || args.b == 1", "args.b == 1 || args.a == 1"),
        ("!(args.a > 1 && args.b > 1)", "!(args.a > 1) || !(args.b > 1)"),
        ("args.to.exists(t, t.endsWith('@a.com'))", "args.to.exists(t, t.endsWith('@a.com')) || args.x == 1"),
        ("args.path.startsWith('/etc/ssh')", "args.path.startsWith('/etc')"),
        ("args.text.contains('drop table')", "args.text.contains('drop')"),
        ("size(args.text) > 10", "size(args.text) > 9"),
        ("size(args) == 2 && args.a == 1", "args.a == 1 && size(args) == 2"),
        ("args.text > 'b'", "args.text > 'a'"),
        ("['a', 'b'].exists(x, x == args.text)", "args.text in ['a', 'b', 'c']"),
        ("action.endsWith('.refund')", "action.endsWith('refund')"),
        ("agent.name == 'bot'", "agent.name.startsWith('bo')"),
        ("(args.a && args.b == 1) || (!args.a && args.c == 1)", "args.a ? args.b == 1 : args.c == 1"),
    ],
)
def test_condition_of_forbidding_rule_that_matches_at_least_as_much_is_proven(old: str, new: str) -> None:
    assert conditions(old, new).status is Status.PROVEN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("args.country != 'DE'", "args.country != 'DE' && args.country != 'AT'"),
        ("args.amount > 499", "args.amount > 500"),
        ("args.amount >= 500", "args.amount > 500"),
        ("args.amount > 10", "args.amount > 10.5"),
        ("args.x == 1", "has(args.x) && args.x == 1"),
        ("args.amount > 500", "args.amount > 500 && args.country == 'DE'"),
        ("args.x == null", "args.x == 0"),
        ("args.path.startsWith('/etc')", "args.path.startsWith('/etc/')"),
        ("run.id == ''", "run.id == 'other'"),
        ("now.getHours() < 8", "now.getHours() < 7"),
        ("args.sql.matches('^(drop|delete)')", "args.sql.matches('^drop')"),
        ("args.to.exists(t, t.endsWith('@a.com'))", "args.to.exists(t, t.endsWith('@b.com'))"),
        ("args.x.y == 1", "has(args.x) && args.x.y == 1"),
        ("args.y.matches('z')", "['a', 'b'].exists_one(x, args.y.matches('z'))"),
        ("args.x < 9007199254740993", "args.x < 9007199254740992"),
    ],
)
def test_condition_of_forbidding_rule_that_matches_less_is_widened(old: str, new: str) -> None:
    found = conditions(old, new).counterexample
    assert found is not None
    assert (found.old.outcome, found.new.outcome) == (Outcome.DENIED, Outcome.ALLOWED)


def test_missing_argument_makes_a_forbidding_rule_match() -> None:
    found = counterexample(
        policy(rule(when="args.amount > 10")), policy(rule(when="has(args.amount) && args.amount > 10"))
    )
    assert found.context == {}


def test_argument_of_another_type_makes_a_forbidding_rule_match() -> None:
    found = counterexample(
        policy(rule(when="has(args.x) && args.x > 10")),
        policy(rule(when="has(args.x) && args.x != 11 && dyn(args.x) == 11")),
    )
    assert found.old.outcome is Outcome.DENIED


def test_argument_that_cel_cannot_represent_is_part_of_the_proof() -> None:
    """The old rule matches a call with the integer 2^63 for `y`, because its condition has no result."""
    old = policy(rule(when="args.x == 1 && args.y == 1"))
    new = policy(rule(when="args.x == 1"))
    found = counterexample(old, new)
    assert found.context["x"] != 1


def test_allowing_rule_with_an_error_does_not_match() -> None:
    agents: list[dict[str, Any]] = [{"name": "bot"}]
    old = policy(rule("allow", "has(args.x) && args.x > 1"), agents=agents)
    assert compare(old, policy(rule("allow", "args.x > 1"), agents=agents)).status is Status.PROVEN
    assert compare(policy(rule("allow", "args.x > 1"), agents=agents), old).status is Status.PROVEN


def test_maximum_amount_is_compared_exactly_and_conditions_round() -> None:
    """An amount just above 50 is 50 as a double."""
    old, new = policy(max_amount=Decimal(50)), policy(rule(when="has(args.amount) && args.amount > 50"))
    found = counterexample(old, new)
    context = {"amount": Decimal("50.0000000000000000001")}
    before, after = (
        PolicyEvaluator(one).judge("bot", "stripe.refund", context, None, MOMENT) for one in (old, new)
    )
    assert after.is_more_lenient(before)
    assert found.old.outcome is Outcome.DENIED


def test_rule_above_the_maximum_amount_is_superfluous_except_for_tiny_amounts() -> None:
    """The double of 1e-350 is zero, so the condition has no result and the rule matches."""
    large = rule(when="has(args.amount) && args.amount > 100")
    old = policy(large, max_amount=Decimal(50))
    assert compare(old, policy(max_amount=Decimal(50))).status is Status.WIDENED
    numbers = rule(when="has(args.amount) && !(args.amount <= 100)")
    assert compare(policy(numbers, max_amount=Decimal(50)), old).status is Status.PROVEN


def test_amount_required_is_part_of_the_proof() -> None:
    old = policy(max_amount=Decimal(50), amount_required=True)
    found = counterexample(old, policy(max_amount=Decimal(50)))
    assert found.context == {}
    assert compare(policy(max_amount=Decimal(50)), old).status is Status.PROVEN


def test_requiring_rule_widens_what_was_denied_without_a_permission() -> None:
    agents: list[dict[str, Any]] = [{"name": "bot"}]
    found = counterexample(policy(agents=agents), policy(rule("require_approval"), agents=agents))
    assert (found.old.outcome, found.new.outcome) == (Outcome.DENIED, Outcome.APPROVAL_REQUIRED)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"quorum": 2}, {"quorum": 1}),
        ({"ttl": 60}, {"ttl": 61}),
        ({"ttl": 60}, {}),
        ({"approvers": ["a@x.org"]}, {"approvers": ["a@x.org", "b@x.org"]}),
        ({"approvers": ["a@x.org"]}, {}),
    ],
)
def test_more_lenient_term_of_an_approval_is_widened(old: dict[str, Any], new: dict[str, Any]) -> None:
    before, after = (policy(rule("require_approval", approval=terms)) for terms in (old, new))
    assert compare(before, after).status is Status.WIDENED
    assert compare(after, before).status is Status.PROVEN


def test_terms_of_several_rules_are_combined() -> None:
    small = rule(
        "require_approval", "args.amount > 10", approval={"quorum": 1, "approvers": ["a@x.org", "b@x.org"]}
    )
    large = rule(
        "require_approval", "args.amount > 20", approval={"quorum": 2, "approvers": ["b@x.org", "c@x.org"]}
    )
    both = rule(
        "require_approval", "args.amount > 20", name="both", approval={"quorum": 2, "approvers": ["b@x.org"]}
    )
    assert compare(policy(small, large), policy(small, both)).status is Status.PROVEN
    assert compare(policy(small, both), policy(small, large)).status is Status.PROVEN
    assert compare(policy(small, both), policy(both)).status is Status.WIDENED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"requires_approval": True}, {}),
        ({"requires_approval": True, "required_approvals": 2}, {"requires_approval": True}),
        ({"requires_approval": True, "separation_of_duties": True}, {"requires_approval": True}),
        (
            {"requires_approval": True, "approval_ttl_seconds": 60},
            {"requires_approval": True, "approval_ttl_seconds": 90},
        ),
        ({"max_amount": Decimal(50)}, {"max_amount": Decimal("50.01")}),
        ({"max_amount": Decimal(50)}, {}),
    ],
)
def test_more_lenient_permission_is_widened(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert compare(policy(**old), policy(**new)).status is Status.WIDENED
    assert compare(policy(**new), policy(**old)).status is Status.PROVEN


def test_default_time_cannot_be_compared_with_a_time() -> None:
    default, limited = policy(requires_approval=True), policy(requires_approval=True, approval_ttl_seconds=60)
    assert compare(default, limited).status is Status.WIDENED
    assert compare(limited, default).status is Status.WIDENED


def test_new_agent_was_denied_before() -> None:
    both = policy(agents=[{"name": name, "permissions": [PERMISSION]} for name in ("bot", "other")])
    assert counterexample(policy(), both).agent == "other"
    assert compare(both, policy()).status is Status.PROVEN


def test_enabled_agent_was_denied_before() -> None:
    disabled = policy(agents=[{"name": "bot", "enabled": False, "permissions": [PERMISSION]}])
    assert counterexample(disabled, policy()).old.reason_code == "agent_disabled"
    assert compare(policy(), disabled).status is Status.PROVEN


def test_renamed_agent_is_the_same_agent() -> None:
    agent_id = "019c6d1e-1c11-7d52-8a40-5b2a90d1e7f4"
    old = policy(rule(when="agent.name == 'bot'"))
    new = policy(
        rule(when="agent.name == 'bot'"),
        agents=[{"name": "renamed", "id": agent_id, "permissions": [PERMISSION]}],
    )
    found = compare(old, new, agent_ids={"bot": agent_id, agent_id: agent_id}).counterexample
    assert found is not None
    assert (found.agent, found.agent_id) == ("renamed", agent_id)
    same = policy(agents=[{"name": "renamed", "id": agent_id, "permissions": [PERMISSION]}])
    assert compare(policy(), same, agent_ids={"bot": agent_id}).status is Status.PROVEN


def test_actions_of_a_pattern_are_compared_except_the_single_ones() -> None:
    agents: list[dict[str, Any]] = [{"name": "bot"}]
    old = policy(rule("allow", actions=["a.*", "b.x"]), rule(actions=["a.x"]), agents=agents)
    assert compare(old, policy(rule("allow", actions=["a.y*", "b.x"]), agents=agents)).status is Status.PROVEN
    found = counterexample(old, policy(rule("allow", actions=["*"]), rule(actions=["a.*"]), agents=agents))
    assert not found.action.startswith("a.")
    assert found.action != "b.x"
    assert counterexample(old, policy(rule("allow", actions=["a.*"]), agents=agents)).action == "a.x"


def test_condition_about_the_action_is_part_of_the_proof() -> None:
    agents: list[dict[str, Any]] = [{"name": "bot"}]
    everything = rule("allow", actions=["a.*"])
    old = policy(everything, rule(when="action.endsWith('.delete')", actions=["*"]), agents=agents)
    new = policy(everything, rule(when="action.endsWith('x.delete')", actions=["*"]), agents=agents)
    found = counterexample(old, new)
    assert found.action.endswith(".delete")
    assert not found.action.endswith("x.delete")
    assert compare(new, old).status is Status.PROVEN


def test_rule_that_cannot_be_translated_is_named() -> None:
    agents: list[dict[str, Any]] = [{"name": "bot"}]
    old = policy(rule("allow", "args.x.matches('^[a-f]{9}$')", name="Hexadecimal"), agents=agents)
    new = policy(rule("allow", "args.x.matches('^[a-e]{9}$')", name="Digits"), agents=agents)
    proof = compare(old, new)
    assert proof.status is Status.NOT_PROVEN
    assert any("'Digits'" in reason for reason in proof.reasons)


def test_hard_formula_ends_at_the_time_limit() -> None:
    """Ten arguments cannot have nine different values, which is hard to prove."""
    names = "abcdefghij"
    bounds = [f"args.{name} + 0 > 0 && args.{name} < 10" for name in names]
    different = [f"args.{one} != args.{other}" for one, other in combinations(names, 2)]
    parts = [" && ".join(f"({part})" for part in [*bounds, *different])]
    agents: list[dict[str, Any]] = [{"name": "bot"}]
    # Other processes take time from this one, but not processor time.
    started = process_time()
    proof = compare(policy(agents=agents), policy(rule("allow", parts[0]), agents=agents), seconds=1.5)
    assert process_time() - started < 3
    assert proof.status is Status.NOT_PROVEN
    assert any("time limit" in reason for reason in proof.reasons)


def test_no_time_means_no_proof() -> None:
    proof = compare(policy(rule(when="args.x == 1")), policy(rule(when="args.x >= 1")), seconds=0)
    assert proof.status is Status.NOT_PROVEN
    assert "time limit of 0 s" in proof.reasons[0]


def test_other_proof_uses_up_the_time_limit() -> None:
    with prove_module._lock:
        proof = compare(policy(), policy(), seconds=0.05)
    assert proof.reasons == ("The time limit of 0.05 s was reached while another proof ran",)


def test_proofs_in_several_threads() -> None:
    results = []

    def run() -> None:
        results.append(conditions("args.x == 'a'", "args.x in ['a', 'b']").status)

    threads = [Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [Status.PROVEN] * 4


def test_without_z3_only_counterexamples_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    assert conditions("args.x == 1", "args.x == 2").status is Status.WIDENED
    proof = conditions("args.x == 1", "args.x in [1, 2]")
    assert proof.status is Status.NOT_PROVEN
    assert "pip install 'toolgate[prove]'" in proof.reasons[0]


def test_only_a_proof_imports_z3() -> None:
    service = ROOT / "service" / "toolgate_service"
    importing = {
        path.parent
        for path in service.rglob("*.py")
        if re.search(r"^\s*(import|from) z3", path.read_text(), re.MULTILINE)
    }
    assert importing == {service / "policies" / "proof"}
    code = "import sys, toolgate_service.policies.proof.prove; print('z3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
