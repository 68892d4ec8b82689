"""Policies: read, planned, applied, restored and evaluated through the API."""

import json
from typing import Any

import pytest
from support.gateway import Owner
from support.policies import POLICY, VERSION, apply, current, plan, revision, summary

UNKNOWN = "01890000-0000-7000-8000-000000000000"
CREATED = [
    "create agent refund-bot",
    "create agent mailer",
    "create permission refund-bot stripe.refund",
    "create rule No refunds abroad",
    "create rule Two people",
    "create budget Refunds",
]


def test_new_organization_has_an_empty_policy(acme: Owner) -> None:
    state = current(acme)
    assert state["policy"] == {"version": VERSION, "agents": [], "rules": [], "budgets": []}
    assert state["revision"] is None


def test_plan_lists_the_changes_and_changes_nothing(acme: Owner) -> None:
    before = current(acme)
    planned = plan(acme, POLICY)
    assert summary(planned["changes"]) == CREATED
    assert planned["base"] == before["digest"]
    assert planned["policy"] == before["policy"]
    assert current(acme) == before


def test_applied_policy_is_the_current_one(acme: Owner) -> None:
    applied = apply(acme, POLICY, "First policy")
    # The empty state before the first apply is a revision too.
    assert (applied["applied"], applied["revision"], summary(applied["changes"])) == (True, 2, CREATED)
    state = current(acme)
    assert (state["digest"], state["revision"]) == (plan(acme, POLICY)["digest"], 2)
    assert plan(acme, state["policy"])["changes"] == []
    permission = state["policy"]["agents"][0]["permissions"][0]
    assert (permission["max_amount"], permission["amount_required"]) == (50.5, True)
    assert state["policy"]["rules"][1]["approval"] == {"quorum": 2, "ttl": 600, "approvers": None}


def test_applied_policy_decides_the_next_check(acme: Owner) -> None:
    apply(acme, POLICY)
    agents = {agent["name"]: agent["id"] for agent in acme.http.get("/api/agents").json()}
    bot = agents["refund-bot"]
    codes = [
        acme.check(bot, "stripe.refund", context=context).headers["x-reason-code"]
        for context in (
            {"amount": 10, "country": "DE"},
            {"amount": 51, "country": "DE"},
            {"amount": 10, "country": "FR"},
        )
    ]
    assert codes == ["allowed", "amount_exceeded", "forbidden_by_rule"]
    assert acme.check(agents["mailer"], "mail.send").headers["x-reason-code"] == "agent_disabled"


def test_changes_of_each_resource_are_applied(acme: Owner) -> None:
    apply(acme, POLICY)
    changed = {
        "version": VERSION,
        "agents": [
            {
                "name": "refund-bot",
                "permissions": [
                    {"action": "stripe.refund", "requires_approval": True, "required_approvals": 3},
                    {"action": "stripe.read"},
                ],
            },
            {"name": "mailer"},
            {"name": "new-bot", "permissions": [{"action": "a.b"}]},
        ],
        "rules": [
            {"name": "Two people", "effect": "forbid", "agents": ["new-bot"], "actions": ["db.*", "x.y"]},
            {"name": "All reads", "effect": "allow", "actions": ["read.*"]},
        ],
        "budgets": [
            {
                "name": "Refunds",
                "actions": ["stripe.refund"],
                "window": "day",
                "limit": 20,
                "at_limit": "require_approval",
            }
        ],
    }
    applied = apply(acme, changed)
    assert summary(applied["changes"]) == [
        "update agent refund-bot",
        "update agent mailer",
        "create agent new-bot",
        "update permission refund-bot stripe.refund",
        "create permission refund-bot stripe.read",
        "create permission new-bot a.b",
        "update rule Two people",
        "create rule All reads",
        "delete rule No refunds abroad",
        "update budget Refunds",
    ]
    assert plan(acme, changed)["changes"] == []
    fields = {one["field"]: (one["before"], one["after"]) for one in applied["changes"][3]["fields"]}
    assert fields == {
        "max_amount": (50.5, None),
        "amount_required": (True, False),
        "requires_approval": (False, True),
        "required_approvals": (1, 3),
    }


def test_agents_that_the_policy_omits_are_deleted_with_a_warning(acme: Owner) -> None:
    apply(acme, POLICY)
    smaller = POLICY | {"agents": POLICY["agents"][:1]}
    planned = plan(acme, smaller)
    assert summary(planned["changes"]) == ["delete agent mailer"]
    assert "revokes its API keys" in planned["warnings"][0]
    apply(acme, smaller)
    assert [agent["name"] for agent in acme.http.get("/api/agents").json()] == ["refund-bot"]


def test_budget_with_another_window_is_replaced_with_a_warning(acme: Owner) -> None:
    apply(acme, POLICY)
    before = acme.http.get("/api/budgets").json()[0]["id"]
    changed = POLICY | {"budgets": [POLICY["budgets"][0] | {"window": "month"}]}
    assert "totals of budget 'Refunds'" in plan(acme, changed)["warnings"][0]
    apply(acme, changed)
    [budget] = acme.http.get("/api/budgets").json()
    assert budget["window"] == "month"
    assert budget["id"] != before


def test_repeated_apply_changes_nothing(acme: Owner) -> None:
    empty = current(acme)["digest"]
    first = apply(acme, POLICY)
    # A retry whose first response was lost still has the old base.
    body = {"policy": POLICY, "base": empty, "message": "Test"}
    again = acme.http.post("/api/policy/apply", json=body).json()
    assert again == {"applied": False, "revision": first["revision"], "changes": []}
    assert len(acme.http.get("/api/policy/revisions").json()) == 2


def test_order_of_lists_is_no_change(acme: Owner) -> None:
    apply(acme, POLICY)
    turned = POLICY | {"agents": POLICY["agents"][::-1], "rules": POLICY["rules"][::-1]}
    assert plan(acme, turned)["changes"] == []
    assert plan(acme, turned)["digest"] == current(acme)["digest"]


def test_apply_for_another_base_is_refused_and_names_the_changes(acme: Owner) -> None:
    apply(acme, POLICY)
    base = current(acme)["digest"]
    apply(acme, POLICY | {"rules": POLICY["rules"][:1]})
    before = current(acme)
    body = {"policy": POLICY | {"budgets": []}, "base": base}
    answer = acme.http.post("/api/policy/apply", json=body)
    assert answer.status_code == 409
    assert answer.json()["detail"] == (
        "The policy changed since it was planned: delete rule 'Two people'; plan again"
    )
    assert current(acme) == before


def test_changes_in_other_ways_become_a_revision_before_the_next_apply(acme: Owner) -> None:
    apply(acme, POLICY)
    rule = {"name": "By hand", "effect": "forbid", "actions": ["x.*"]}
    assert acme.http.post("/api/rules", json=rule).status_code == 201
    assert current(acme)["revision"] is None
    apply(acme, POLICY, "Back")
    revisions = acme.http.get("/api/policy/revisions").json()
    assert [(one["number"], one["message"]) for one in revisions][:2] == [
        (4, "Back"),
        (3, "Changes that were not made by applying a policy"),
    ]
    third = acme.http.get(f"/api/policy/revisions/{revision(acme, 3)}").json()
    assert summary(third["changes"]) == ["create rule By hand"]
    assert [one["name"] for one in third["policy"]["rules"]] == ["No refunds abroad", "Two people", "By hand"]


def test_restored_revision_is_the_current_policy_again(acme: Owner) -> None:
    apply(acme, POLICY)
    first = current(acme)
    apply(acme, {"version": VERSION, "agents": [{"name": "other"}]})
    body = {"base": current(acme)["digest"]}
    answer = acme.http.post(f"/api/policy/revisions/{revision(acme, 2)}/restore", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["revision"] == 4
    assert current(acme)["digest"] == first["digest"]
    newest = acme.http.get("/api/policy/revisions").json()[0]
    assert (newest["restores"], newest["message"]) == (2, "Restore revision 2")


def test_unknown_revision_is_not_found(acme: Owner) -> None:
    assert acme.http.get(f"/api/policy/revisions/{UNKNOWN}").status_code == 404
    answer = acme.http.post(f"/api/policy/revisions/{UNKNOWN}/restore", json={"base": "x"})
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"version": "v2"}, "policy.version", "toolgate.policy/v1"),
        ({"rules": [{"name": "x", "effect": "forbid", "actions": ["a"], "agents": ["unknown"]}]},
         "rules.0.agents", "'unknown' is not an agent of this document"),
        ({"rules": [{"name": "x", "effect": "forbid", "actions": ["a"], "when": "args.x >"}]},
         "rules.0.when", "Invalid expression"),
        ({"rules": [{"name": "x", "effect": "allow", "actions": ["a"], "approval": {"quorum": 2}}]},
         "rules.0.approval", "only rules with the effect 'require_approval'"),
        ({"rules": [{"name": "x", "effect": "allow", "actions": ["a"]}] * 2}, "rules.1", "another rule 'x'"),
        ({"agents": [{"name": "x"}, {"name": "x"}]}, "agents.1", "another agent 'x'"),
        ({"agents": [{"name": "x", "permissions": [{"action": "a"}, {"action": "a"}]}]},
         "agents.0.permissions.1", "another permission"),
        ({"agents": [{"name": "x", "id": UNKNOWN}]}, "agents.0.id", "is not the id"),
        ({"budgets": [{"name": "x", "actions": ["a"], "window": "year", "limit": 1}]}, "policy.budgets.0.window", ""),
    ],
)  # fmt: skip
def test_invalid_policy_is_refused_with_the_path_of_the_field(
    acme: Owner, fields: dict[str, Any], path: str, message: str
) -> None:
    for url, more in (("plan", {}), ("apply", {"base": current(acme)["digest"]})):
        answer = acme.http.post(f"/api/policy/{url}", json={"policy": {"version": VERSION} | fields} | more)
        assert answer.status_code == 400, answer.text
        assert message in answer.json()["detail"][path][0]


def test_failed_apply_changes_nothing(acme: Owner) -> None:
    """The last rule names an approver who does not exist, which only the database shows."""
    before = current(acme)
    rule = {
        "name": "x",
        "effect": "require_approval",
        "actions": ["a"],
        "approval": {"approvers": ["unknown@example.test"]},
    }
    body = {"policy": POLICY | {"rules": [*POLICY["rules"], rule]}, "base": before["digest"]}
    assert acme.http.post("/api/policy/apply", json=body).status_code == 400
    assert current(acme) == before
    assert acme.http.get("/api/policy/revisions").json() == []


def test_approvers_are_e_mail_addresses(acme: Owner) -> None:
    rule = {
        "name": "x",
        "effect": "require_approval",
        "actions": ["a"],
        "approval": {"approvers": [acme.email.upper()]},
    }
    policy = {"version": VERSION, "rules": [rule]}
    apply(acme, policy)
    assert current(acme)["policy"]["rules"][0]["approval"]["approvers"] == [acme.email]
    assert plan(acme, policy)["changes"] == []


def test_agents_with_the_same_name_are_identified_by_their_ids(acme: Owner) -> None:
    first, second = acme.agent("twin"), acme.agent("twin")
    state = current(acme)
    assert {agent["id"] for agent in state["policy"]["agents"]} == {first, second}
    policy = state["policy"] | {
        "rules": [{"name": "One", "effect": "allow", "agents": [second], "actions": ["a.b"]}]
    }
    apply(acme, policy)
    assert acme.check(second, "a.b").json()["allowed"] is True
    assert acme.check(first, "a.b").json()["allowed"] is False
    answer = acme.http.post(
        "/api/policy/plan", json={"policy": {"version": VERSION, "agents": [{"name": "twin"}]}}
    )
    assert "several agents have the name 'twin'" in answer.json()["detail"]["agents.0.name"][0]


def test_agent_is_renamed_by_its_id(acme: Owner) -> None:
    agent = acme.agent("old")
    policy = {
        "version": VERSION,
        "agents": [{"name": "new", "id": agent}],
        "rules": [{"name": "One", "effect": "allow", "agents": [agent], "actions": ["a.b"]}],
    }
    assert summary(plan(acme, policy)["changes"]) == ["update agent new", "create rule One"]
    apply(acme, policy)
    assert plan(acme, policy)["changes"] == []
    assert acme.http.get(f"/api/agents/{agent}").json()["name"] == "new"
    assert current(acme)["policy"]["rules"][0]["agents"] == ["new"]


FORBID = {"name": "No deletions", "effect": "forbid", "agents": ["bot"], "actions": ["a.delete"]}
DELETE = [{"action": "a.delete"}]


def is_allowed(owner: Owner, agent_id: str) -> bool:
    allowed: bool = owner.check(agent_id, "a.delete").json()["allowed"]
    return allowed


def agent_ids(owner: Owner) -> dict[str, str]:
    return {agent["name"]: agent["id"] for agent in owner.http.get("/api/agents").json()}


def test_rule_follows_its_name_to_a_new_agent(acme: Owner) -> None:
    """The old agent of this name is renamed, so the rule applies to the new one."""
    apply(acme, {"version": VERSION, "agents": [{"name": "bot", "permissions": DELETE}], "rules": [FORBID]})
    old = agent_ids(acme)["bot"]
    agents = [
        {"name": "old-bot", "id": old, "permissions": DELETE},
        {"name": "bot", "permissions": DELETE},
    ]
    policy = {"version": VERSION, "agents": agents, "rules": [FORBID]}
    calls = [{"agent": name, "action": "a.delete"} for name in ("old-bot", "bot")]
    evaluated = acme.http.post("/api/policy/evaluate", json={"policy": policy, "calls": calls}).json()
    assert [one["outcome"] for one in evaluated] == ["allowed", "denied"]
    [changed] = [one for one in apply(acme, policy)["changes"] if one["resource"] == "rule"]
    assert changed["fields"] == [{"field": "agents", "before": [old], "after": ["bot"]}]
    assert plan(acme, policy)["changes"] == []
    assert is_allowed(acme, old)
    assert not is_allowed(acme, agent_ids(acme)["bot"])


def test_rules_and_budgets_follow_names_that_are_swapped(acme: Owner) -> None:
    agents = [{"name": name, "permissions": DELETE} for name in ("bot", "other")]
    budget = {"name": "B", "agents": ["bot"], "actions": ["a.*"], "window": "day", "limit": 5}
    apply(acme, {"version": VERSION, "agents": agents, "rules": [FORBID], "budgets": [budget]})
    before = agent_ids(acme)
    swapped = [
        {"name": "other", "id": before["bot"], "permissions": DELETE},
        {"name": "bot", "id": before["other"], "permissions": DELETE},
    ]
    policy = {"version": VERSION, "agents": swapped, "rules": [FORBID], "budgets": [budget]}
    apply(acme, policy)
    assert plan(acme, policy)["changes"] == []
    assert is_allowed(acme, before["bot"])
    assert not is_allowed(acme, before["other"])
    assert acme.http.get("/api/budgets").json()[0]["agents"] == [before["other"]]


def test_rule_follows_its_name_after_the_agent_is_deleted(acme: Owner) -> None:
    agents = [{"name": name, "permissions": DELETE} for name in ("bot", "other")]
    apply(acme, {"version": VERSION, "agents": agents, "rules": [FORBID]})
    other = agent_ids(acme)["other"]
    policy = {
        "version": VERSION,
        "agents": [{"name": "bot", "id": other, "permissions": DELETE}],
        "rules": [FORBID],
    }
    apply(acme, policy)
    assert plan(acme, policy)["changes"] == []
    assert not is_allowed(acme, other)


def test_evaluation_denies_calls_without_the_amount_of_a_budget(acme: Owner) -> None:
    budget = {"name": "B", "actions": ["a.*"], "window": "day", "limit": 5, "measure": "sum(args.amount)"}
    apply(
        acme,
        {"version": VERSION, "agents": [{"name": "bot", "permissions": DELETE}], "budgets": [budget]},
    )
    body = {"calls": [{"agent": "bot", "action": "a.delete"}]}
    [judged] = acme.http.post("/api/policy/evaluate", json=body).json()
    checked = acme.check(agent_ids(acme)["bot"], "a.delete")
    assert judged["reason_code"] == checked.headers["x-reason-code"] == "budget_amount_invalid"
    assert judged["reason"] == checked.json()["reason"]


def test_environments_have_separate_policies(acme: Owner) -> None:
    apply(acme, POLICY)
    assert acme.http.get("/api/policy?environment=test").json()["policy"]["agents"] == []
    assert acme.http.get("/api/policy/revisions?environment=test").json() == []


def test_evaluation_returns_the_results_of_both_policies(acme: Owner) -> None:
    apply(acme, POLICY)
    calls = [
        {"agent": "refund-bot", "action": "stripe.refund", "context": {"amount": 60, "country": "DE"}},
        {"agent": "refund-bot", "action": "db.drop"},
    ]
    live = acme.http.post("/api/policy/evaluate", json={"calls": calls}).json()
    assert live[0] == {
        "outcome": "denied",
        "reason_code": "amount_exceeded",
        "reason": "Amount 60 is above the maximum of 50.5 for action 'stripe.refund'",
        "rule": None,
        "approval": None,
    }
    assert (live[1]["outcome"], live[1]["rule"]) == ("approval_required", "Two people")
    assert live[1]["approval"] == {"quorum": 2, "ttl": 600, "approvers": None, "separation_of_duties": False}
    changed = {
        "version": VERSION,
        "agents": [{"name": "refund-bot", "permissions": [{"action": "stripe.refund", "max_amount": 60}]}],
    }
    other = acme.http.post("/api/policy/evaluate", json={"calls": calls, "policy": changed}).json()
    assert [one["outcome"] for one in other] == ["allowed", "denied"]


def test_an_agent_whose_id_is_empty_is_evaluated(acme: Owner) -> None:
    policy = {"version": VERSION, "agents": [{"name": "bot", "id": ""}]}
    body = {"policy": policy, "calls": [{"agent": "unknown", "action": "a.b"}]}
    assert acme.http.post("/api/policy/evaluate", json=body).status_code < 500


def test_evaluation_of_an_unknown_agent_is_refused(acme: Owner) -> None:
    answer = acme.http.post("/api/policy/evaluate", json={"calls": [{"agent": "unknown", "action": "a.b"}]})
    assert answer.status_code == 400
    assert "'unknown' is not the name or id" in answer.json()["detail"]["calls.0.agent"][0]


def test_policy_with_many_rules_is_applied(acme: Owner) -> None:
    """It is larger than the bodies of other requests may be."""
    rule = {
        "effect": "forbid",
        "actions": ["stripe.*"],
        "when": "args.country != 'DE' && args.amount > 10000000",
    }
    rules = [rule | {"name": f"{'Rule with a long name ' * 3}{number}"} for number in range(1_500)]
    policy = {"version": VERSION, "rules": rules}
    assert len(json.dumps(policy)) > 256 * 1024
    assert len(apply(acme, policy)["changes"]) == 1_500
    assert plan(acme, policy)["changes"] == []


def test_too_large_policy_is_refused(acme: Owner) -> None:
    answer = acme.http.post("/api/policy/plan", content=b" " * (1024 * 1024 + 1))
    assert (answer.status_code, answer.json()["detail"]) == (413, "The request is larger than 1048576 bytes")
