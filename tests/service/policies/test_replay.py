"""Replays of the decisions of a live gateway."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.gateway import LiveGateway, Owner
from support.replays import CODES, PENDING, POLICY, Traffic, apply, changed, current, replay, traffic
from support.tables import execute, rows
from support.team import Colleague

from toolgate_service.core.clock import wire

ROUNDS = 12


@pytest.fixture(scope="module")
def replayed(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[LiveGateway, Owner, Traffic]]:
    """A gateway with a few hundred decisions of all kinds."""
    with traffic(tmp_path_factory.mktemp("replay"), ROUNDS) as made:
        yield made


def counts(gateway: LiveGateway, owner: Owner) -> Counter[str]:
    query = "SELECT reason_code FROM decisions WHERE organization_id = ?"
    return Counter(code for (code,) in rows(gateway, query, owner.user["organization_id"]))


def edited(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    policy = copy.deepcopy(POLICY)
    change(policy)
    return policy


def test_current_policy_leaves_all_decisions_unchanged(
    replayed: tuple[LiveGateway, Owner, Traffic],
) -> None:
    gateway, owner, made = replayed
    assert set(made.codes) == CODES
    assert counts(gateway, owner) == made.codes
    report = replay(owner, current(owner))
    assert report["totals"] == {
        "unchanged": made.codes.total(),
        "newly_allowed": 0,
        "newly_held": 0,
        "newly_denied": 0,
        "not_replayable": 0,
    }, (report["not_replayable"], report["examples"])
    assert report["judged"] == made.codes.total() > 35 * ROUNDS
    assert report["is_complete"]
    assert report["omitted_rows"] == 0
    assert sum(row["unchanged"] for row in report["rows"]) == made.codes.total()
    assert {row["agent"] for row in report["rows"]} == {"worker", "crowd", "idle", None}


@pytest.mark.slow
def test_current_policy_leaves_ten_thousand_decisions_unchanged(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with traffic(tmp_path_factory.mktemp("many"), 300) as (_, owner, made):
        report = replay(owner, current(owner))
        assert report["judged"] == made.codes.total() > 10_000
        assert changed(report) == {}, (report["not_replayable"], report["examples"])


def test_equivalent_policy_leaves_all_decisions_unchanged(
    replayed: tuple[LiveGateway, Owner, Traffic],
) -> None:
    def reorder(policy: dict[str, Any]) -> None:
        for name in ("agents", "rules", "budgets"):
            policy[name].reverse()
        policy["agents"] = [agent | {"description": "Other"} for agent in policy["agents"]]

    _, owner, _ = replayed
    assert changed(replay(owner, edited(reorder))) == {}


def test_policy_without_agents_denies_all_calls(replayed: tuple[LiveGateway, Owner, Traffic]) -> None:
    gateway, owner, _ = replayed
    report = replay(owner, {"version": "toolgate.policy/v1"})
    query = "SELECT count(*) FROM decisions WHERE organization_id = ? AND outcome <> 'denied'"
    [(expected,)] = rows(gateway, query, owner.user["organization_id"])
    assert changed(report) == {"newly_denied": expected}
    examples = report["examples"]["newly_denied"]
    assert len(examples) == 20
    assert {one["new_reason_code"] for one in examples} == {"agent_not_found"}


def worker(policy: dict[str, Any], action: str) -> dict[str, Any]:
    [found] = [one for one in policy["agents"][0]["permissions"] if one["action"] == action]
    return found


def rule(policy: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [one for one in policy["rules"] if one["name"] == name]
    return found


Change = tuple[Callable[[dict[str, Any]], object], dict[str, int]]
#: changes of the policy, and the number of decisions in each category after `ROUNDS` rounds
CHANGES: dict[str, Change] = {
    "higher maximum": (
        lambda policy: worker(policy, "pay").update(max_amount=60),
        {"newly_allowed": ROUNDS},
    ),
    "lower maximum": (
        lambda policy: worker(policy, "pay").update(max_amount=20),
        {"newly_denied": ROUNDS},
    ),
    "approval for an allowed action": (
        lambda policy: worker(policy, "pay").update(requires_approval=True),
        {"newly_held": 2 * ROUNDS},
    ),
    "no approval for held and approved calls": (
        # Each round is held, approved, and denied because the call was already allowed. The call with an unknown approval
        # id stays denied.
        lambda policy: worker(policy, "ask").update(requires_approval=False),
        {"newly_allowed": 3 * ROUNDS},
    ),
    "no approval for calls of a temporary approval": (
        lambda policy: worker(policy, "lend").update(requires_approval=False),
        {"newly_allowed": ROUNDS},
    ),
    "rule with another condition": (
        lambda policy: rule(policy, "Not abroad").update(when="args.country == 'DE'"),
        # The others have no permission.
        {},
    ),
    "forbidden calls that a new rule allows": (
        lambda policy: (
            rule(policy, "Not abroad").update(when="args.country == 'FR'"),
            policy["rules"].append({"name": "New", "effect": "allow", "actions": ["stripe.*"]}),
        ),
        {"newly_allowed": 2 * ROUNDS},
    ),
    "time that has not come": (
        lambda policy: rule(policy, "Now").update(when="now > timestamp('2100-01-01T00:00:00Z')"),
        {"newly_denied": ROUNDS},
    ),
    "disabled agent": (
        lambda policy: policy["agents"][1].update(enabled=False),
        {"newly_denied": PENDING},
    ),
    "enabled agent": (lambda policy: policy["agents"][2].update(enabled=True), {"newly_allowed": ROUNDS}),
    "stricter terms for a held call": (
        lambda policy: rule(policy, "Many rows")["approval"].update(quorum=3),
        {},
    ),
    "more lenient terms for a held call": (
        lambda policy: rule(policy, "Many rows")["approval"].update(quorum=1),
        {"not_replayable": ROUNDS},
    ),
    "stricter terms for approved calls": (
        lambda policy: worker(policy, "edit").update(required_approvals=2),
        {"not_replayable": ROUNDS},
    ),
    "removed budget that denies": (
        lambda policy: policy["budgets"].pop(0),
        {"newly_allowed": ROUNDS - 3},
    ),
    "removed budget that requires approval": (
        lambda policy: policy["budgets"].pop(1),
        {"newly_allowed": 2 * (ROUNDS - 2)},
    ),
    "changed budget": (
        lambda policy: policy["budgets"][0].update(limit=4),
        {"not_replayable": ROUNDS},
    ),
    "renamed budget": (
        lambda policy: policy["budgets"][0].update(name="Other"),
        {"not_replayable": ROUNDS},
    ),
    "budget that needs no amount": (
        lambda policy: policy["budgets"][2].update(measure="count"),
        {"newly_allowed": 2 * ROUNDS, "not_replayable": ROUNDS},
    ),
    "budget that needs an amount": (
        lambda policy: policy["budgets"].append(
            {"name": "New", "actions": ["mail.*"], "measure": "sum(args.size)", "window": "day", "limit": 1}
        ),
        {"not_replayable": ROUNDS},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changed_policy(replayed: tuple[LiveGateway, Owner, Traffic], name: str) -> None:
    _, owner, made = replayed
    change, expected = CHANGES[name]
    report = replay(owner, edited(change))
    assert changed(report) == expected, (report["not_replayable"], report["examples"])
    assert sum(report["totals"].values()) == made.codes.total()
    assert sum(one["count"] for one in report["not_replayable"]) == expected.get("not_replayable", 0)


def test_report_contains_examples_with_names_and_reasons(
    replayed: tuple[LiveGateway, Owner, Traffic],
) -> None:
    _, owner, made = replayed
    policy = edited(
        lambda policy: policy["rules"].append(
            {"name": "No pay", "effect": "forbid", "agents": ["worker"], "actions": ["pay"]}
        )
    )
    report = replay(owner, policy)
    examples = report["examples"]["newly_denied"]
    assert len(examples) == 20
    first = examples[0]
    assert (
        owner.http.get(f"/api/decisions/{first['decision_id']}").json()["created_at"] == first["created_at"]
    )
    assert {name: first[name] for name in ("agent_id", "agent", "action", "outcome", "reason_code")} == {
        "agent_id": made.agents["worker"],
        "agent": "worker",
        "action": "pay",
        "outcome": "allowed",
        "reason_code": "allowed",
    }
    assert {name: first[name] for name in ("new_outcome", "new_reason_code", "reason", "rule")} == {
        "new_outcome": "denied",
        "new_reason_code": "forbidden_by_rule",
        "reason": "Rule 'No pay' forbids action 'pay'",
        "rule": "No pay",
    }
    row = report["rows"][0]
    assert (row["agent"], row["action"], row["newly_denied"]) == ("worker", "pay", 2 * ROUNDS)
    assert report["examples"]["newly_allowed"] == []


def test_newly_allowed_calls_with_budgets_are_marked(replayed: tuple[LiveGateway, Owner, Traffic]) -> None:
    _, owner, _ = replayed
    policy = edited(
        lambda policy: (
            policy["agents"][0]["permissions"].append({"action": "other"}),
            policy["budgets"].append({"name": "New", "actions": ["other"], "window": "day", "limit": 1}),
        )
    )
    report = replay(owner, policy)
    assert changed(report) == {"newly_allowed": ROUNDS}
    assert {one["reason"] for one in report["examples"]["newly_allowed"]} == {
        "Allowed if the budgets of the candidate policy cover the call"
    }


def test_agents_are_identified_by_name_or_id(replayed: tuple[LiveGateway, Owner, Traffic]) -> None:
    _, owner, made = replayed

    def identify(policy: dict[str, Any]) -> None:
        for agent in policy["agents"]:
            agent["id"] = made.agents[agent["name"]]

    assert changed(replay(owner, edited(identify))) == {}


def test_replay_is_limited_to_an_agent_an_action_and_a_period(
    replayed: tuple[LiveGateway, Owner, Traffic],
) -> None:
    _, owner, made = replayed
    policy = current(owner)
    assert replay(owner, policy, agent="idle")["judged"] == ROUNDS
    assert replay(owner, policy, agent=made.agents["idle"], action="pay")["judged"] == ROUNDS
    assert replay(owner, policy, action="pay")["judged"] == 7 * ROUNDS
    assert replay(owner, policy, agent="idle", action="other")["judged"] == 0
    hour = timedelta(hours=1)
    moment = datetime.now(UTC)
    assert replay(owner, policy, since=wire(moment - hour))["judged"] == made.codes.total()
    assert replay(owner, policy, until=wire(moment - hour))["judged"] == 0
    assert replay(owner, policy, since=wire(moment + hour), until=wire(moment + 2 * hour))["judged"] == 0
    middle = owner.http.get("/api/decisions", params={"limit": 1, "offset": 300}).json()[0]["created_at"]
    before = replay(owner, policy, until=middle)["judged"]
    assert 0 < before < made.codes.total()
    assert before + replay(owner, policy, since=middle)["judged"] == made.codes.total()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"policy": POLICY, "since": "2026-02-01", "until": "2026-01-01"}, "until"),
        ({"policy": POLICY, "since": "yesterday"}, "since"),
        ({"policy": POLICY, "agent": "unknown"}, "agent"),
        ({"policy": {"version": "other"}}, "policy.version"),
        ({"policy": edited(lambda policy: policy["rules"][0].update(when="args.x >"))}, "rules.0.when"),
        ({"policy": edited(lambda policy: policy["rules"][4].update(agents=["x"]))}, "rules.4.agents"),
        ({"policy": edited(lambda policy: policy["agents"][0].update(id=POLICY["version"]))}, "agents.0.id"),
        ({}, "policy"),
    ],
)
def test_invalid_request_has_errors_for_its_fields(
    replayed: tuple[LiveGateway, Owner, Traffic], body: dict[str, Any], field: str
) -> None:
    _, owner, _ = replayed
    answer = owner.http.post("/api/policy/replay", json=body)
    assert answer.status_code == 400
    assert field in answer.json()["detail"], answer.text


def test_viewers_can_replay(replayed: tuple[LiveGateway, Owner, Traffic]) -> None:
    _, owner, made = replayed
    with Colleague(owner, "viewer") as colleague:
        body = {"policy": current(owner)}
        answer = colleague.http.post("/api/policy/replay", json=body)
        assert answer.json()["judged"] == made.codes.total()


def test_other_organizations_and_environments_are_never_read(
    replayed: tuple[LiveGateway, Owner, Traffic],
) -> None:
    gateway, owner, made = replayed
    with Owner(gateway.url) as other:
        agent = other.agent("worker")
        answer = other.check(agent, "pay", {"amount": 1})
        assert answer.headers["x-reason-code"] == "no_permission"
        mine = Traffic(gateway, owner)
        mine.codes = made.codes
        mine.wait()
        report = replay(other, POLICY)
        assert report["judged"] <= 1
        by_id = replay(other, POLICY, agent=made.agents["worker"])
        assert by_id["judged"] == 0
    body = {"policy": {"version": "toolgate.policy/v1"}}
    answer = owner.http.post("/api/policy/replay", params={"environment": "test"}, json=body)
    assert answer.json()["judged"] == 0


def test_decisions_without_their_context_are_not_replayable(gateway: LiveGateway, newcomer: Owner) -> None:
    made = Traffic(gateway, newcomer)
    made.check("worker", "pay", {"amount": 1, "text": "x" * 4000})
    for _ in range(3):
        made.check("worker", "pay", {"amount": 1})
    made.check("unknown", "pay", {"amount": 1})
    made.wait()
    organization = newcomer.user["organization_id"]
    report = replay(newcomer, current(newcomer))
    [long] = report["not_replayable"]
    assert (long["count"], "longer than 4,000 characters" in long["reason"]) == (1, True)
    assert changed(report) == {"not_replayable": 1}
    update = "UPDATE decisions SET context = ? WHERE organization_id = ? AND context IS NOT NULL"
    execute(gateway, update, '{"amount":2}', organization)
    report = replay(newcomer, current(newcomer))
    assert {one["reason"]: one["count"] for one in report["not_replayable"]} == {
        long["reason"]: 1,
        "The digest of the stored arguments differs from the recorded digest": 3,
    }
    execute(gateway, "UPDATE decisions SET context = NULL WHERE organization_id = ?", organization)
    # The decision about an unknown agent does not depend on the policy.
    assert changed(replay(newcomer, current(newcomer))) == {"not_replayable": 4}


def test_calls_of_deleted_agents_are_not_replayable(gateway: LiveGateway, newcomer: Owner) -> None:
    made = Traffic(gateway, newcomer)
    for amount in (1, 60):
        made.check("worker", "pay", {"amount": amount})
    made.wait()
    policy = current(newcomer)
    policy["agents"] = [agent for agent in policy["agents"] if agent["name"] != "worker"]
    for rule in policy["rules"]:
        rule["agents"] = ["*"]
    assert changed(replay(newcomer, policy)) == {"newly_denied": 1}
    apply(newcomer, policy)
    report = replay(newcomer, policy)
    assert changed(report) == {"not_replayable": 1}
    assert report["not_replayable"] == [{"reason": "The agent was deleted after the decision", "count": 1}]
    assert [row["agent"] for row in report["rows"]] == ["worker"]


def test_replay_reports_changes_since_the_decision(gateway: LiveGateway, newcomer: Owner) -> None:
    made = Traffic(gateway, newcomer)
    made.check("worker", "ask", {"n": 1})
    made.check("worker", "db.drop", {"rows": 500})
    made.check("worker", "pay", {"amount": 1})
    made.wait()
    before = current(newcomer)

    def loosen(policy: dict[str, Any]) -> None:
        worker(policy, "ask").update(requires_approval=False)
        rule(policy, "Many rows")["effect"] = "allow"
        rule(policy, "Many rows")["approval"] = None
        worker(policy, "pay")["max_amount"] = 0

    apply(newcomer, edited(loosen))
    assert changed(replay(newcomer, current(newcomer))) == {"newly_allowed": 2, "newly_denied": 1}
    # The terms of the former policy are not in the log.
    assert changed(replay(newcomer, before)) == {"not_replayable": 2}
