"""Rules: created, listed, changed and deleted; who may do it, and what is recorded."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.gateway import LiveGateway, Owner
from support.shapes import MOMENT, UUID7

UNKNOWN = "01890000-0000-7000-8000-000000000000"
FORBID = {"name": "No drops", "effect": "forbid", "actions": ["db.drop"]}


@pytest.fixture
def acme(gateway: LiveGateway) -> Iterator[Owner]:
    """A new organization for each test, because names of rules are unique in an environment."""
    with Owner(gateway.url) as owner:
        yield owner


def create(owner: Owner, **fields: object) -> dict[str, Any]:
    answer = owner.http.post("/api/rules", json=FORBID | fields)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_rule_contains_its_fields(acme: Owner) -> None:
    agent = acme.agent("Refund bot")
    made = create(
        acme,
        name="  Large refunds ",
        effect="require_approval",
        agents=["Refund bot"],
        actions=["stripe.*", "paypal.refund", "stripe.*"],
        when="args.amount > 100",
        approval={"quorum": 2, "ttl": 3600, "approvers": [acme.email.upper()]},
    )
    assert UUID7.fullmatch(made["id"])
    assert MOMENT.fullmatch(made["created_at"])
    assert {name: value for name, value in made.items() if name not in {"id", "created_at"}} == {
        "name": "Large refunds",
        "effect": "require_approval",
        "agents": [agent],
        "actions": ["stripe.*", "paypal.refund"],
        "when": "args.amount > 100",
        "approval": {"quorum": 2, "ttl": 3600, "approvers": [acme.user["id"]]},
        "enabled": True,
        "created_by": acme.user["id"],
        "updated_at": None,
    }
    assert acme.http.get("/api/rules").json() == [made]
    assert acme.http.get(f"/api/rules/{made['id']}").json() == made


def test_defaults_apply_to_all_agents(acme: Owner) -> None:
    made = create(acme)
    assert (made["agents"], made["when"], made["approval"], made["enabled"]) == (["*"], None, None, True)


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"effect": "deny"}, "effect", "forbid"),
        ({"actions": []}, "actions", "at least 1"),
        ({"actions": ["a.*.b"]}, "actions", "one '*' at its end"),
        ({"actions": ["a.?"]}, "actions", "one '*' at its end"),
        ({"agents": []}, "agents", "at least 1"),
        ({"agents": ["nobody"]}, "agents", "'nobody' is not the id or name of an agent"),
        ({"agents": [UNKNOWN]}, "agents", "is not the id or name of an agent"),
        ({"when": ""}, "when", "at least 1"),
        ({"when": "args.amount >"}, "when", ""),
        ({"when": "'text'"}, "when", ""),
        ({"when": "unknown.x == 1"}, "when", ""),
        ({"when": "x" * 2001}, "when", "2000"),
        ({"effect": "require_approval", "approval": {"quorum": 0}}, "approval.quorum", ""),
        ({"effect": "require_approval", "approval": {"approvers": ["x@example.test"]}}, "approval", "member"),
        ({"name": " "}, "name", "printable"),
        ({"unknown": 1}, "unknown", ""),
    ],
)
def test_invalid_rule_is_rejected_with_its_field(
    acme: Owner, fields: dict[str, object], field: str, message: str
) -> None:
    answer = acme.http.post("/api/rules", json=FORBID | fields)
    assert answer.status_code == 400, answer.text
    found = answer.json()["detail"]
    assert any(field in name for name in found), found
    assert message in answer.text
    assert acme.http.get("/api/rules").json() == []


def test_name_is_unique_in_an_environment(acme: Owner) -> None:
    made = create(acme)
    assert acme.http.post("/api/rules", json=FORBID).status_code == 409
    assert acme.http.post("/api/rules", json=FORBID, params={"environment": "test"}).status_code == 201
    other = create(acme, name="Other")
    answer = acme.http.put(f"/api/rules/{other['id']}", json={"name": made["name"]})
    assert answer.status_code == 409
    assert "already exists" in answer.text
    assert acme.http.put(f"/api/rules/{made['id']}", json={"name": made["name"]}).status_code == 200


def test_change_keeps_the_fields_that_are_omitted(acme: Owner) -> None:
    made = create(acme, effect="require_approval", when="args.n == 1", approval={"quorum": 2})
    changed = acme.http.patch(f"/api/rules/{made['id']}", json={"enabled": False}).json()
    assert MOMENT.fullmatch(changed["updated_at"])
    assert changed == made | {"enabled": False, "updated_at": changed["updated_at"]}
    changed = acme.http.put(f"/api/rules/{made['id']}", json={"when": None, "approval": None}).json()
    assert (changed["when"], changed["approval"]) == (
        None,
        {"quorum": None, "ttl": None, "approvers": None},
    )
    changed = acme.http.put(f"/api/rules/{made['id']}", json={"effect": "forbid"}).json()
    assert (changed["effect"], changed["approval"]) == ("forbid", None)
    answer = acme.http.put(f"/api/rules/{made['id']}", json={"approval": {"quorum": 2}})
    assert answer.status_code == 409
    assert "omit the field 'approval'" in answer.text


def test_rule_applies_to_the_same_agent_after_a_rename(acme: Owner) -> None:
    agent = acme.agent("first")
    made = create(acme, agents=["first"])
    acme.http.put(f"/api/agents/{agent}", json={"name": "second"})
    assert acme.http.get(f"/api/rules/{made['id']}").json()["agents"] == [agent]
    # The list can be sent again after the agent was deleted.
    acme.http.delete(f"/api/agents/{agent}")
    assert acme.http.put(f"/api/rules/{made['id']}", json={"agents": [agent]}).status_code == 200


def test_changes_are_audited(acme: Owner) -> None:
    made = create(acme)
    acme.http.put(f"/api/rules/{made['id']}", json={"enabled": False})
    assert acme.http.delete(f"/api/rules/{made['id']}").status_code == 204
    assert acme.http.get(f"/api/rules/{made['id']}").status_code == 404
    events = [one for one in acme.http.get("/api/audit").json() if one["resource_id"] == made["id"]]
    assert [one["kind"] for one in events] == ["rule.deleted", "rule.updated", "rule.created"]
    assert events[2]["changes"]["actions"] == ["db.drop"]
    assert events[1]["changes"]["enabled"] is False


def test_other_organizations_and_environments_see_nothing(acme: Owner, rival: Owner) -> None:
    made = create(acme)
    path = f"/api/rules/{made['id']}"
    assert rival.http.get("/api/rules").json() == []
    assert {
        rival.http.get(path).status_code,
        rival.http.put(path, json={"enabled": False}).status_code,
        rival.http.delete(path).status_code,
        acme.http.get(path, params={"environment": "test"}).status_code,
    } == {404}
    assert acme.http.get(path).json() == made
