"""Features of the fake gateway for tests: records, assertions, outages, decisions at once, a clock of its own."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from toolgate import (
    ActionDenied,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalPending,
    ConfigurationError,
    GatewayUnavailable,
    Guard,
    acting_as,
)
from toolgate.testing import FakeGateway


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(allow=["math.add"], require_approval=["mail.send"])


def test_checks_and_entries_are_kept_for_assertions(gateway: FakeGateway) -> None:
    guard = gateway.guard()
    guard.guarded("math.add")(lambda a, b: a + b)(1, Decimal("2.50"))
    with pytest.raises(ActionDenied):
        guard.guarded("rm")(lambda path: path)("x")
    assert [(one.action, one.outcome) for one in gateway.checks] == [
        ("math.add", "allowed"),
        ("rm", "blocked"),
    ]
    assert [(one.action, one.status) for one in gateway.entries] == [
        ("math.add", "success"),
        ("rm", "denied"),
    ]
    assert gateway.assert_checked("math.add", b=2.5).agent_id == gateway.agent_id
    assert gateway.assert_logged("rm", "denied", path="x").context["reason"]
    gateway.assert_not_checked("mail.send")
    for wrong in (
        lambda: gateway.assert_checked("math.add", a=2),
        lambda: gateway.assert_checked("mail.send"),
        lambda: gateway.assert_logged("rm", "success"),
        lambda: gateway.assert_not_checked("rm"),
        gateway.assert_not_checked,
    ):
        with pytest.raises(AssertionError, match="'rm'"):
            wrong()


def test_outage_takes_no_time(gateway: FakeGateway) -> None:
    guard = gateway.guard(timeout=3600)
    before = gateway.clock()
    with gateway.outage():
        with pytest.raises(GatewayUnavailable) as away:
            guard.check("math.add")
        assert away.value.status is None
        # The last pause, of two seconds at most, is not begun.
        assert 3590 < gateway.clock() - before < 3610
        for _ in range(5):
            with pytest.raises(GatewayUnavailable):
                guard.check("math.add")
    assert guard.check("math.add").allowed
    with gateway.outage(status=503), pytest.raises(GatewayUnavailable) as proxy:
        guard.check("math.add")
    assert proxy.value.status == 503
    assert guard.check("math.add").allowed


def test_tool_with_fail_open_runs_during_an_outage(gateway: FakeGateway) -> None:
    guard = gateway.guard()
    open_tool = guard.guarded("math.add", fail_open=True)(lambda a: a)
    with gateway.outage():
        assert open_tool(1) == 1
        with pytest.raises(GatewayUnavailable):
            guard.guarded("math.add")(lambda a: a)(2)
    assert gateway.assert_logged("math.add", "success", a=1)


def test_requests_are_decided_or_ignored_at_once(gateway: FakeGateway) -> None:
    guard = gateway.guard()
    send = guard.guarded("mail.send", on_hold="wait")(lambda to: to)
    gateway.require_approval("mail.send", then="approved")
    assert send("a") == "a"
    gateway.require_approval("mail.send", then="denied")
    with pytest.raises(ApprovalDenied):
        send("b")
    gateway.require_approval("mail.send", then="ignored")
    with pytest.raises(ApprovalExpired):
        send("c")
    with pytest.raises(ApprovalPending):
        guard.guarded("mail.send", on_hold="wait", hold_timeout=60)(lambda to: to)("d")


async def test_task_reaches_its_time_limit_at_once(gateway: FakeGateway) -> None:
    gateway.require_approval("mail.send", then="ignored")

    @gateway.guard().guarded("mail.send", on_hold="wait")
    async def send(to: str) -> None: ...

    with pytest.raises(ApprovalExpired):
        await send("a")


def test_id_of_the_only_pending_request_may_be_omitted(gateway: FakeGateway) -> None:
    guard = gateway.guard()
    assert guard.check("mail.send", {"n": 1}).held
    gateway.approve()
    assert guard.check("mail.send", {"n": 1}).allowed
    with pytest.raises(ConfigurationError, match="0 approval requests are pending"):
        gateway.deny()
    assert guard.check("mail.send", {"n": 2}).held
    assert guard.check("mail.send", {"n": 3}).held
    with pytest.raises(ConfigurationError, match="2 approval requests are pending"):
        gateway.approve()


def test_blocked_action_has_the_reason_of_the_test(gateway: FakeGateway) -> None:
    guard = gateway.guard()
    assert guard.check("mail.send").held
    gateway.block("mail.send", "the mail server is being moved")
    assert guard.check("mail.send").reason == "the mail server is being moved"
    assert gateway.pending() == []
    gateway.allow("mail.send")
    assert guard.check("mail.send").allowed


def test_guard_of_an_application_is_connected_for_a_while(gateway: FakeGateway) -> None:
    theirs = Guard("http://127.0.0.1:9", "ak_" + "k" * 37, "their-agent", timeout=0.01)
    tool = theirs.guarded("math.add")(lambda a: a)
    with gateway.replacing(theirs):
        assert tool(1) == 1
    with pytest.raises(GatewayUnavailable):
        tool(2)
    assert [one.context for one in gateway.checks] == [{"a": 1}]


def test_rules_apply_to_every_agent(gateway: FakeGateway) -> None:
    with acting_as("another"):
        assert gateway.guard().check("math.add").allowed
    assert gateway.guard("a-third").check("math.add").allowed
    assert [each.agent_id for each in gateway.checks] == ["another", "a-third"]


def test_fakes_do_not_share_denied_actions(gateway: FakeGateway) -> None:
    other = FakeGateway(allow=["x"])
    assert gateway.guard().check("x").blocked
    tool = other.guard().guarded("x", fail_open=True)(lambda: "ran")
    with other.outage():
        assert tool() == "ran"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: FakeGateway(allow="math.add"), "allow is 'math.add'"),
        (lambda: FakeGateway(require_approval=[""]), "action ''"),
        (lambda: FakeGateway(allow=["a"], require_approval=["a"]), "Duplicate action 'a'"),
        (lambda: FakeGateway(allow={"a": {"maximum": 1}}), "unknown limit 'maximum'"),
        (lambda: FakeGateway(allow={"a": 3}), "are 3"),
        (lambda: FakeGateway().allow("a", max_amount=-1), "max_amount of action 'a' is -1"),
        (lambda: FakeGateway().allow("a", max_amount=float("nan")), "max_amount of action 'a' is nan"),
        (lambda: FakeGateway().allow("a", max_amount=True), "max_amount of action 'a' is True"),
        (lambda: FakeGateway().allow("a", amount_required=3), "amount_required of action 'a' is 3"),
        (lambda: FakeGateway(allow={"a": {"amount_required": True}}), "'a' has amount_required=True without"),
        (lambda: FakeGateway(allow=["stripe.*"]), "contains the wildcard '*'"),
        (lambda: FakeGateway(require_approval=["a?"]), "contains the wildcard '?'"),
        (lambda: FakeGateway().allow("*"), "contains the wildcard '*'"),
        (lambda: FakeGateway().require_approval("a.*"), "contains the wildcard '*'"),
        (lambda: FakeGateway().block("a.*"), "contains the wildcard '*'"),
        (lambda: FakeGateway().require_approval("a", then="maybe"), "Invalid then 'maybe'"),
        (lambda: FakeGateway().block("a b"), "'a b'"),
    ],
)
def test_invalid_arguments_are_named(wrong: object, named: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        wrong()  # type: ignore[operator]  # a function of no arguments
    assert named in str(error.value)


def test_log_entry_of_a_repeated_call_names_the_approval_that_allowed_it(fake_gateway: FakeGateway) -> None:
    fake_gateway.require_approval("users.delete")

    @fake_gateway.guard().guarded("users.delete")
    def delete(user_id: str) -> None: ...

    with pytest.raises(ApprovalPending) as pending:
        delete("u_1")
    fake_gateway.approve(pending.value.approval_id)
    delete("u_1")
    [ran] = [entry for entry in fake_gateway.entries if entry.status == "success"]
    assert ran.approval_id == pending.value.approval_id


def test_oldest_freeze_gives_the_reason_and_unfreeze_lifts_all(gateway: FakeGateway) -> None:
    guard = gateway.guard()
    gateway.freeze("math.*", reason="first")
    gateway.freeze(reason="second")
    assert guard.check("math.add").reason == "Calls are frozen: first"
    assert guard.check("mail.send").reason == "Calls are frozen: second"
    gateway.unfreeze()
    assert guard.check("math.add").allowed
    assert guard.check("mail.send").held


@pytest.mark.parametrize("action", ["*", "a*b", "a.?", "", "two words", 1])
def test_freeze_of_an_invalid_action_is_refused_and_freezes_nothing(
    gateway: FakeGateway, action: Any
) -> None:
    with pytest.raises(ConfigurationError, match="action"):
        gateway.freeze(action, reason="x")
    with pytest.raises(ConfigurationError, match="reason"):
        gateway.freeze(reason=" ")
    assert gateway.guard().check("math.add").allowed


@pytest.mark.parametrize(
    ("effect", "amount", "outcome", "reason"),
    [
        ("forbid", 101, "blocked", "Rule 'Large' forbids action 'pay'"),
        ("forbid", 100, "allowed", None),
        ("require_approval", 101, "held", "Rule 'Large' requires approval for action 'pay'"),
        ("require_approval", 100, "allowed", None),
    ],
)
def test_rule_applies_to_calls_whose_arguments_match(
    effect: Any, amount: int, outcome: str, reason: str | None
) -> None:
    gateway = FakeGateway(allow=["pay"])
    rule_id = gateway.rule(effect, "pay", when=lambda args: args["amount"] > 100, name=" Large ")
    decision = gateway.guard().check("pay", {"amount": amount})
    assert (decision.outcome, decision.reason) == (outcome, reason)
    assert decision.rule == (None if outcome == "allowed" else rule_id)
    assert (decision.reason_code == "forbidden_by_rule") is (outcome == "blocked")


def test_rule_without_actions_and_condition_applies_to_all_calls(gateway: FakeGateway) -> None:
    gateway.rule("forbid")
    decisions = [gateway.guard().check(action) for action in ("math.add", "mail.send", "unknown")]
    assert {each.reason_code for each in decisions} == {"forbidden_by_rule"}


def test_strongest_effect_decides_in_any_order() -> None:
    gateway = FakeGateway()
    guard = gateway.guard()
    gateway.rule("allow", ["a", "b", "c"])
    assert guard.check("a").allowed
    gateway.rule("require_approval", ["b", "c"])
    gateway.rule("forbid", "c")
    assert [guard.check(action).outcome for action in ("a", "b", "c")] == ["allowed", "held", "blocked"]


def test_failing_condition_has_the_stricter_result() -> None:
    gateway = FakeGateway(allow=["pay"])
    guard = gateway.guard()
    gateway.rule("allow", "mail", when=lambda args: args["to"] == "ada")
    assert [guard.check("mail", {"to": "ada"}).allowed, guard.check("mail").allowed] == [True, False]
    gateway.rule("forbid", "pay", when=lambda args: args["amount"] > 100)
    assert [guard.check("pay", {"amount": 1}).allowed, guard.check("pay").allowed] == [True, False]


def test_error_in_the_condition_of_a_test_is_raised(gateway: FakeGateway) -> None:
    gateway.rule("forbid", "math.add", when=lambda args: args.amount > 1)  # type: ignore[attr-defined]  # the mistake that is tested
    with pytest.raises(AttributeError):
        gateway.guard().check("math.add", {"amount": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effect": "deny"}, "expected 'forbid', 'require_approval' or 'allow'"),
        ({"actions": "a*b"}, "expected an action, or a prefix"),
        ({"actions": []}, "at least one action"),
        ({"when": "args.amount > 1"}, "does not evaluate CEL expressions"),
        ({"name": " "}, "name ' '"),
    ],
    ids=str,
)
def test_invalid_rule_is_refused_and_changes_nothing(
    gateway: FakeGateway, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        gateway.rule(**{"effect": "forbid", **options})
    assert gateway.guard().check("math.add").allowed


def test_budget_without_actions_counts_all_calls_of_all_agents_and_runs(gateway: FakeGateway) -> None:
    gateway.budget(2, name=" Calls ")
    guards = gateway.guard(), gateway.guard("other-agent"), gateway.guard()
    decisions = [guard.check("math.add", {"n": n}) for n, guard in enumerate(guards)]
    assert [each.budget_left for each in decisions] == [1, 0, None]
    assert decisions[-1].reason == "Budget 'Calls' does not cover another call: 0 of 2 is left in this window"


def test_budget_that_does_not_cover_a_call_reserves_nothing_in_the_others(gateway: FakeGateway) -> None:
    gateway.budget(10, "math.*")
    gateway.budget(3, "math.add", measure="sum(args.n)", at_limit="require_approval")
    guard = gateway.guard()
    assert guard.check("math.add", {"n": 4}).held
    assert guard.check("math.add", {"n": 1}).budget_left == 2
    gateway.budget(0, "math.add", name="None")
    assert guard.check("math.add", {"n": 4}).reason_code == "budget_exceeded"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": -1}, "limit -1"),
        ({"limit": float("nan")}, "limit nan"),
        ({"limit": True}, "limit True"),
        ({"limit": "9"}, "limit '9'"),
        ({"actions": ["math.add", "a*b"]}, "expected an action, or a prefix"),
        ({"measure": "sum(amount)"}, "measure 'sum\\(amount\\)'"),
        ({"at_limit": "hold"}, "at_limit 'hold'"),
        ({"name": " "}, "name ' '"),
    ],
    ids=str,
)
def test_invalid_budget_is_refused_and_changes_nothing(
    gateway: FakeGateway, options: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"limit": 0, "actions": [], **options}
    with pytest.raises(ConfigurationError, match=message):
        gateway.budget(given.pop("limit"), *given.pop("actions"), **given)
    assert gateway.guard().check("math.add").budget_left is None
