"""Agents to which the rules and budgets of a policy refer, by name or id."""

import pytest
from support.gateway import LiveGateway, Owner
from support.policies import VERSION, apply, current, revision, summary
from support.tables import execute

UNKNOWN = "01890000-0000-7000-8000-000000000000"


def test_rule_for_a_new_agent_does_not_apply_to_its_namesake(acme: Owner) -> None:
    former = acme.agent("bot")
    rule = {"name": "R", "effect": "allow", "agents": ["bot"], "actions": ["a.b"]}
    budget = {
        "name": "B",
        "measure": "count",
        "limit": 9,
        "window": "day",
        "agents": ["bot"],
        "actions": ["*"],
    }
    agents = [{"name": "bot", "id": former}, {"name": "bot"}]
    apply(acme, {"version": VERSION, "agents": agents, "rules": [rule], "budgets": [budget]})
    (new,) = [agent["id"] for agent in acme.http.get("/api/agents").json() if agent["id"] != former]
    assert [one["agents"] for one in acme.http.get("/api/rules").json()] == [[new]]
    assert [one["agents"] for one in acme.http.get("/api/budgets").json()] == [[new]]
    assert acme.check(former, "a.b").json()["allowed"] is False
    assert acme.check(new, "a.b").json()["allowed"] is True


def test_restored_rule_applies_to_the_restored_agent(acme: Owner) -> None:
    """The rule still contains the id of the deleted agent, and the restored agent has a new id."""
    deleted, other = acme.agent("bot"), acme.agent("bot")
    policy = current(acme)["policy"]
    for agent in policy["agents"]:
        agent["permissions"] = [{"action": "a.delete"}]
    policy["rules"] = [{"name": "No", "effect": "forbid", "agents": [deleted], "actions": ["a.delete"]}]
    apply(acme, policy)
    to = revision(acme, current(acme)["revision"])
    assert acme.http.delete(f"/api/agents/{deleted}").status_code == 204
    restored = acme.http.post(f"/api/policy/revisions/{to}/restore", json={"base": current(acme)["digest"]})
    assert restored.status_code == 200
    assert "update rule No" in summary(restored.json()["changes"])
    (new,) = [one["id"] for one in acme.http.get("/api/agents").json() if one["id"] not in {deleted, other}]
    assert acme.check(new, "a.delete").json()["allowed"] is False
    assert acme.check(other, "a.delete").json()["allowed"] is True


@pytest.mark.parametrize("name", ["*", UNKNOWN, UNKNOWN.upper()])
def test_name_that_rules_would_not_read_as_a_name_is_rejected(acme: Owner, name: str) -> None:
    agent = acme.agent("bot")
    for answer in (
        acme.http.post("/api/agents", json={"name": name}),
        acme.http.put(f"/api/agents/{agent}", json={"name": name}),
        acme.http.post("/api/policy/plan", json={"policy": {"version": VERSION, "agents": [{"name": name}]}}),
    ):
        assert answer.status_code == 400
        assert "must be neither * nor a UUID" in answer.text


def test_id_stands_for_its_agent_and_not_for_an_agent_with_this_name(
    gateway: LiveGateway, acme: Owner
) -> None:
    """Older versions allowed such names."""
    agent, other = acme.agent("good"), acme.agent("other")
    star = acme.agent("star")
    execute(gateway, "UPDATE agents SET name = ? WHERE id = ?", agent, other)
    execute(gateway, "UPDATE agents SET name = ? WHERE id = ?", "*", star)
    for name, target in (("A", agent), ("B", star)):
        rule = {"name": name, "effect": "allow", "agents": [target], "actions": ["a.b"]}
        assert acme.http.post("/api/rules", json=rule).json()["agents"] == [target]
    assert acme.check(other, "a.b").json()["allowed"] is False
    assert [rule["agents"] for rule in current(acme)["policy"]["rules"]] == [["good"], [star]]


def test_agent_of_an_older_version_is_restored_with_its_name(gateway: LiveGateway, acme: Owner) -> None:
    """The name is rejected for new agents, but revisions can contain it."""
    star = acme.agent("star")
    execute(gateway, "UPDATE agents SET name = ? WHERE id = ?", "*", star)
    apply(acme, {"version": VERSION, "agents": [{"name": "bot"}]})
    before = revision(acme, current(acme)["revision"] - 1)
    restored = acme.http.post(
        f"/api/policy/revisions/{before}/restore", json={"base": current(acme)["digest"]}
    )
    assert restored.status_code == 200, restored.text
    assert [agent["name"] for agent in acme.http.get("/api/agents").json()] == ["*"]
