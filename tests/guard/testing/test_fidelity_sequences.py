"""The fake gateway and an embedded one make the same decisions after any sequence of checks and decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.freezes import freeze, unfreeze
from support.rules import (
    CONDITIONS,
    add_budget,
    add_rule,
    delete_budgets,
    delete_rules,
    without_window,
)

from toolgate import ConfigurationError, Guard, acting_as
from toolgate._options import Actions
from toolgate.embedded import EmbeddedGateway
from toolgate.testing import FakeGateway

pytestmark = pytest.mark.sqlite_only("the embedded gateway is on SQLite alone")

ALLOW: Actions = {"read": {"max_amount": 1}, "spend": None}
REQUIRE_APPROVAL: Actions = {"write": {"max_amount": 2}}

# Weighted, so that most sequences decide about few different calls several times.
AMOUNTS = st.sampled_from([1, 1, 1, 2, 2, 3, "1"])
CALL_IDS = st.sampled_from([None, None, "a", "a", "b"])
REQUESTS = st.sampled_from([-1, -1, -1, -2, -3])
CHECKS = st.tuples(
    st.just("check"),
    st.sampled_from([*["write"] * 9, "read", "other"]),
    AMOUNTS,
    CALL_IDS,
    st.sampled_from([False] * 5 + [True]),
)
RULES = st.tuples(
    st.just("rule"),
    st.sampled_from(["forbid", "require_approval", "allow"]),
    st.sampled_from(["write", "wri*", "*", "other"]),
    st.sampled_from([*CONDITIONS]),
)
BUDGETS = st.tuples(
    st.just("budget"),
    st.sampled_from([1, 2, 3, 4.5]),
    st.sampled_from(["write", "wri*", "*", "other"]),
    st.sampled_from(["count", "sum(args.amount)", "sum(args.amount)", "sum(args.missing)"]),
    st.sampled_from(["deny", "require_approval"]),
)
LOGS = st.tuples(
    st.just("log"),
    st.sampled_from([-1, -1, -1, -2, -3]),
    st.sampled_from(["success", "failed", "denied", "pending"]),
    st.sampled_from([{}, {"amount": 1}, {"amount": 2.5}, {"amount": "[hidden]"}]),
    st.sampled_from([None] * 4 + ["other"]),
)
STEPS = st.one_of(
    CHECKS,
    CHECKS,
    CHECKS,
    st.tuples(st.just("use"), REQUESTS, AMOUNTS, CALL_IDS),
    st.tuples(st.just("approve"), REQUESTS),
    st.tuples(st.just("edit"), REQUESTS, AMOUNTS),
    st.tuples(st.just("deny"), REQUESTS),
    st.tuples(st.just("cancel"), REQUESTS, st.booleans()),
    st.tuples(st.just("freeze"), st.sampled_from(["write", "wri*", "read", None])),
    st.just(("unfreeze",)),
    RULES,
    st.just(("delete rules",)),
    BUDGETS,
    LOGS,
)
SPENDING = st.tuples(
    st.just("check"),
    st.just("spend"),
    st.sampled_from([0, 1, 1, 1.5, 2, "1"]),
    st.sampled_from([None, None, "a"]),
    st.sampled_from([False] * 5 + [True]),
)
BUDGET_STEPS = st.one_of(SPENDING, SPENDING, SPENDING, LOGS, LOGS, st.tuples(st.just("approve"), REQUESTS))
SPENDING_BUDGETS = st.tuples(
    st.just("budget"),
    st.sampled_from([1, 2, 3, 4.5]),
    st.sampled_from(["spend", "sp*", "*"]),
    st.sampled_from(["count", "sum(args.amount)", "sum(args.amount)"]),
    st.sampled_from(["deny", "require_approval"]),
)


class Run:
    """One run of an agent at one gateway. Ids of approval requests are replaced by their order."""

    def __init__(self, guard: Guard, gateway: FakeGateway | EmbeddedGateway) -> None:
        self.guard, self.gateway = guard, gateway
        self.run_id = uuid4().hex
        self.requests: list[str] = []
        self.rules: list[str] = []
        self.budgets = 0
        self.allowed: list[tuple[str, str | None]] = []

    def do(self, step: tuple[Any, ...]) -> object:
        match step:
            case "check", action, amount, call_id, dry_run:
                return self.check(action, amount, call_id, dry_run=dry_run)
            case "use", index, amount, call_id if self.requests:
                return self.check("write", amount, call_id, approval_id=self.request(index))
            case ("approve" | "edit" | "deny") as decide, index, *amount if self.requests:
                options: Any = {"context": {"amount": amount[0]}} if amount else {}
                method = self.gateway.deny if decide == "deny" else self.gateway.approve
                try:
                    method(self.request(index), **options)
                except ConfigurationError as error:
                    # The messages differ in the beginning and for edits; the reason of a refusal is at the end.
                    return str(error).rpartition(": ")[2].rstrip("']}") if not amount else "refused"
                return "decided"
            case "cancel", index, rejected if self.requests:
                return self.guard.cancel(self.request(index), rejected=rejected).status
            case "log", index, status, context, other_action if self.allowed:
                action, decision_id = self.allowed[max(index, -len(self.allowed))]
                self.guard.log(other_action or action, status, context, decision_id=decision_id)
            case _:
                self.change_policy(step)
        return None

    def change_policy(self, step: tuple[Any, ...]) -> None:
        match step:
            case "freeze", action:
                freeze(self.gateway, action, reason=f"freeze of {action}")
            case ("unfreeze",):
                unfreeze(self.gateway)
            case "rule", effect, action, when:
                name = f"rule {len(self.rules)}"
                self.rules.append(add_rule(self.gateway, effect, action, when, name=name))
            case ("delete rules",):
                delete_rules(self.gateway)
            case "budget", limit, action, measure, at_limit:
                self.budgets += 1
                name = f"budget {self.budgets}"
                add_budget(self.gateway, limit, action, measure=measure, at_limit=at_limit, name=name)

    def check(self, action: str, amount: object, call_id: str | None, **options: Any) -> object:
        with acting_as(self.guard._guard_state.settings.agent_id or "", run_id=self.run_id):
            decision = self.guard.check(action, {"amount": amount}, call_id=call_id, **options)
        if decision.approval_id is not None and decision.approval_id not in self.requests:
            self.requests.append(decision.approval_id)
        if decision.allowed:
            self.allowed.append((action, decision.decision_id))
        reason = without_window(decision.reason)
        for number, approval_id in enumerate(self.requests):
            reason = reason and reason.replace(approval_id, f"request {number}")
        request = decision.approval_id and self.requests.index(decision.approval_id)
        rule = decision.rule and self.rules.index(decision.rule)
        left = decision.budget_left
        return decision.outcome, decision.reason_code, reason, request, decision.already_used, rule, left

    def request(self, index: int) -> str:
        return self.requests[max(index, -len(self.requests))]

    def statuses(self) -> list[str]:
        return [self.guard.approval(each, newest=True).status for each in self.requests]


@pytest.fixture(scope="module")
def embedded() -> Iterator[Guard]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOOLGATE_DENIALS_BEFORE_BLOCK", "1000000")
        patch.setenv("TOOLGATE_PENDING_PER_AGENT", "1000000")
        patch.setenv("TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE", "1000000")
        with Guard.embedded(":memory:", agent="bot", allow=ALLOW, require_approval=REQUIRE_APPROVAL) as guard:
            yield guard


@settings(deadline=None)
@given(st.lists(st.one_of(RULES, BUDGETS), max_size=3), st.lists(STEPS, min_size=4, max_size=16))
def test_decisions_are_the_same(
    embedded: Guard, policy: list[tuple[Any, ...]], steps: list[tuple[Any, ...]]
) -> None:
    assert_same_decisions(embedded, [*policy, *steps])


@settings(deadline=None)
@given(st.lists(SPENDING_BUDGETS, min_size=1, max_size=3), st.lists(BUDGET_STEPS, min_size=6, max_size=16))
def test_budgets_and_log_entries_have_the_same_effect(
    embedded: Guard, budgets: list[tuple[Any, ...]], steps: list[tuple[Any, ...]]
) -> None:
    assert_same_decisions(embedded, [*budgets, *steps])


def assert_same_decisions(embedded: Guard, steps: list[tuple[Any, ...]]) -> None:
    gateway = FakeGateway(ALLOW, REQUIRE_APPROVAL)
    fake, real = Run(gateway.guard(), gateway), Run(embedded, embedded.gateway)
    try:
        for step in steps:
            assert (step, fake.do(step)) == (step, real.do(step))
            assert (step, fake.statuses()) == (step, real.statuses())
    finally:
        unfreeze(embedded.gateway)
        delete_rules(embedded.gateway)
        delete_budgets(embedded.gateway)
