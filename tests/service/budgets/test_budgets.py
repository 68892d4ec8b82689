"""Management of budgets: created, listed, changed, deleted; their events, and the deletion of old rows."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.admin import run_admin
from support.budgets import (
    ACTION,
    ALLOWED,
    EXCEEDED,
    amounts,
    create,
    outcome,
    reservations,
    spend,
    usage,
)
from support.gateway import LiveGateway, Owner
from support.shapes import MOMENT, UUID7
from support.tables import execute, rows
from support.upkeep import ago_text

VALID = {"name": "Refunds", "actions": ["stripe.*"], "window": "day", "limit": 5}


def test_budget_has_defaults(acme: Owner) -> None:
    answer = acme.http.post("/api/budgets", json=VALID)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert UUID7.fullmatch(made["id"])
    assert MOMENT.fullmatch(made["created_at"])
    assert {name: value for name, value in made.items() if name not in {"id", "created_at"}} == {
        "name": "Refunds",
        "scope": "organization",
        "agents": ["*"],
        "actions": ["stripe.*"],
        "measure": "count",
        "currency_arg": None,
        "window": "day",
        "limit": 5,
        "at_limit": "deny",
        "enabled": True,
        "created_by": acme.user["id"],
        "updated_at": None,
    }
    assert acme.http.get("/api/budgets").json() == [made]
    assert acme.http.get(f"/api/budgets/{made['id']}").json() == made


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"window": "week"}, "window"),
        ({"window": "day(Mars/Base)"}, "window"),
        ({"measure": "sum(amount)"}, "measure"),
        ({"measure": "sum(args.a.b)"}, "measure"),
        ({"limit": -1}, "limit"),
        ({"limit": "5"}, "limit"),
        ({"limit": None}, "limit"),
        ({"scope": "user"}, "scope"),
        ({"at_limit": "block"}, "at_limit"),
        ({"agents": ["nobody"]}, "agents"),
        ({"agents": []}, "agents"),
        ({"actions": ["a*b"]}, "actions"),
        ({"currency_arg": "a.b", "measure": "sum(args.amount)"}, "currency_arg"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_invalid_budget_is_rejected(acme: Owner, fields: dict[str, object], field: str) -> None:
    answer = acme.http.post("/api/budgets", json=VALID | fields)
    assert answer.status_code == 400, answer.text
    assert field in answer.text
    assert acme.http.get("/api/budgets").json() == []


def test_names_are_unique(acme: Owner) -> None:
    create(acme, name="a")
    other = create(acme, name="b")
    for answer in (
        acme.http.post("/api/budgets", json=VALID | {"name": "a"}),
        acme.http.put(f"/api/budgets/{other}", json={"name": "a"}),
    ):
        assert answer.status_code == 409
        assert "A budget with the name 'a' already exists" in answer.text
    scope = {"environment": "test"}
    assert acme.http.post("/api/budgets", json=VALID | {"name": "a"}, params=scope).status_code == 201


def test_change_applies_to_the_next_check_and_keeps_the_total(acme: Owner, bot: str) -> None:
    budget = create(acme, limit=1)
    assert outcome(acme.check(bot, ACTION)) == ALLOWED
    assert outcome(acme.check(bot, ACTION)) == EXCEEDED
    changed = acme.http.put(f"/api/budgets/{budget}", json={"limit": 2, "agents": ["bot"]})
    assert (changed.json()["limit"], changed.json()["agents"]) == (2, [bot])
    assert MOMENT.fullmatch(changed.json()["updated_at"])
    assert outcome(acme.check(bot, ACTION)) == ALLOWED
    assert outcome(acme.check(bot, ACTION)) == EXCEEDED
    acme.http.put(f"/api/budgets/{budget}", json={"limit": 0})
    assert amounts(acme, budget) == (0, 2, -2)


@pytest.mark.parametrize("field", ["scope", "measure", "currency_arg", "window"])
def test_what_is_counted_cannot_change(acme: Owner, field: str) -> None:
    budget = create(acme)
    assert acme.http.put(f"/api/budgets/{budget}", json={field: "run"}).status_code == 400


@pytest.mark.parametrize("how", ["disabled", "deleted"])
def test_budget_that_is_disabled_or_deleted_limits_nothing(acme: Owner, bot: str, how: str) -> None:
    budget = create(acme, limit=1)
    decision = acme.check(bot, ACTION).headers["x-decision-id"]
    assert outcome(acme.check(bot, ACTION)) == EXCEEDED
    path = f"/api/budgets/{budget}"
    if how == "disabled":
        assert acme.http.put(path, json={"enabled": False}).status_code == 200
    else:
        assert acme.http.delete(path).status_code == 204
        assert acme.http.get(path).status_code == 404
        assert reservations(acme) == []
    answer = acme.check(bot, ACTION)
    assert outcome(answer) == ALLOWED
    assert "x-budget-left" not in answer.headers
    assert acme.log(bot, ACTION, decision_id=decision).status_code == 200
    if how == "disabled":
        assert amounts(acme, budget) == (1, 0, 0)


def test_deleted_budget_settles_with_the_others_of_its_calls(acme: Owner, bot: str) -> None:
    kept, deleted = (create(acme, name=name, measure="sum(args.amount)") for name in ("a", "b"))
    decision = spend(acme, bot, 40).headers["x-decision-id"]
    acme.http.delete(f"/api/budgets/{deleted}")
    acme.log(bot, ACTION, decision_id=decision, context={"amount": 30})
    assert amounts(acme, kept) == (30, 0, 70)


def test_environments_are_separate(acme: Owner, bot: str) -> None:
    scope = {"environment": "test"}
    budget = create(acme, limit=1)
    agent = acme.http.post("/api/agents", json={"name": "tester"}, params=scope).json()["id"]
    acme.http.post(f"/api/agents/{agent}/permissions", json={"action": ACTION}, params=scope)
    key = acme.http.get("/api/organization/test-key").json()["api_key"]
    body = {"agent_id": agent, "action": ACTION}
    for _ in range(2):
        assert outcome(acme.http.post("/sdk/check", json=body, headers={"X-API-Key": key})) == ALLOWED
    assert acme.http.get(f"/api/budgets/{budget}", params=scope).status_code == 404
    assert usage(acme, budget) == []
    assert bot


def test_an_environment_has_at_most_200_budgets(gateway: LiveGateway, acme: Owner) -> None:
    first = create(acme, name="0")
    columns = (
        "organization_id, environment, scope, agents, actions, measure, currency_arg, period, maximum, at_limit, enabled, "
        "created_by, created_at, updated_at"
    )
    for number in range(1, 200):
        statement = (
            f"INSERT INTO budgets (id, name, {columns}) SELECT ?, ?, {columns} FROM budgets WHERE id = ?"
        )
        execute(gateway, statement, str(uuid4()), f"b{number}", first)
    answer = acme.http.post("/api/budgets", json=VALID)
    assert answer.status_code == 403
    assert "at most 200 budgets" in answer.text


@pytest.mark.parametrize("at_limit", ["deny", "require_approval"])
def test_exceeded_budget_is_announced_once_for_each_total(tmp_path: Path, at_limit: str) -> None:
    env = {"TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true"}
    with LiveGateway(tmp_path, env=env) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, ACTION)
        hook = {
            "url": "http://127.0.0.1:9/",
            "events": ["budget.created", "budget.exceeded", "budget.deleted"],
        }
        assert owner.http.post("/api/webhooks", json=hook).status_code == 201
        budget = create(owner, scope="run", limit=1, at_limit=at_limit)
        for run in ("a", "a", "a", "b", "b", "c"):
            owner.check(agent, ACTION, run_id=run)
            owner.check(agent, ACTION, run_id="c", dry_run=True)
        owner.http.delete(f"/api/budgets/{budget}")
        query = "SELECT kind, payload FROM events ORDER BY created_at, id"
        events = [(kind, json.loads(payload)["data"]["budget"]) for kind, payload in rows(gateway, query)]
        assert [kind for kind, _ in events] == [
            "budget.created", "budget.exceeded", "budget.exceeded", "budget.deleted",
        ]  # fmt: skip
        assert events[1][1] == {
            "id": budget,
            "name": "Refunds",
            "scope": "run",
            "subject": "a",
            "currency": None,
            "measure": "count",
            "limit": 1,
            "left": 0,
            "amount": 1,
            "at_limit": at_limit,
            "agent_id": agent,
            "action": ACTION,
        }
        assert events[2][1]["subject"] == "b"


def test_old_rows_are_deleted(tmp_path: Path) -> None:
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, ACTION)
        budgets = {window: create(owner, name=window, window=window) for window in ("hour", "rolling(3600)")}
        decisions = [owner.check(agent, ACTION).headers["x-decision-id"] for _ in range(3)]
        owner.log(agent, ACTION, decision_id=decisions[0])
        owner.log(agent, ACTION, "failed", decision_id=decisions[1])

        def count() -> Counter[str]:
            found: Counter[str] = Counter()
            for table in ("budgets", "budget_totals", "budget_reservations"):
                [[found[table]]] = rows(gateway, f"SELECT count(*) FROM {table}")
            return found

        def prune() -> None:
            done: Any = run_admin(gateway, "prune", "--force")
            assert done.returncode == 0, done.stdout

        age = "UPDATE budget_reservations SET created_at = ?"
        execute(gateway, age, ago_text(days=65))
        prune()
        assert count() == {"budgets": 2, "budget_totals": 2, "budget_reservations": 6}
        ended = "UPDATE budget_totals SET ends_at = ? WHERE budget_id = ?"
        execute(gateway, ended, ago_text(days=33), budgets["hour"])
        prune()
        # The total of the rolling window still contains its reservations.
        assert count() == {"budgets": 2, "budget_totals": 1, "budget_reservations": 1 + 3}
        until = "UPDATE budget_totals SET subtracted_until = ?"
        execute(gateway, until, ago_text(days=64))
        prune()
        assert count() == {"budgets": 2, "budget_totals": 1, "budget_reservations": 2}
        assert len(reservations(owner, state="unsettled")) == 2
        execute(gateway, age, ago_text(days=367))
        prune()
        assert count() == {"budgets": 2, "budget_totals": 1, "budget_reservations": 0}
