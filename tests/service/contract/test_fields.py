"""User, organization, agent, permission, log entry: every field of spec §2, one case each."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import httpx
import pytest
from support.gateway import PASSWORD, LiveGateway, Owner
from support.kinds import Kind, boolean, identifier, moment, number, since, text
from support.team import Colleague

AGENT = {"name": "refund-bot", "description": "Refunds orders"}
PERMISSION = {"action": "stripe.refund", "requires_approval": True, "max_amount": 12.5}
CONTEXT = {"amount": 12.5, "order": {"lines": [1, 2]}}
ENTRY = {
    "action": "stripe.refund",
    "status": "failed",
    "context": CONTEXT,
    "ip_address": "203.0.113.7",
    "occurred_at": "2026-01-31T12:00:00Z",
}


@dataclass(frozen=True)
class Shown:
    """What a gateway shows of an organization that began at a moment, resource by resource."""

    owner: Owner
    colleague: Colleague
    began: datetime
    resources: Mapping[str, Mapping[str, Any]]

    def __getitem__(self, resource: str) -> Mapping[str, Any]:
        return self.resources[resource]

    def get(self, path: str) -> int:
        """Return the status of a GET."""
        return self.owner.http.get(path).status_code


@pytest.fixture(scope="module")
def shown(gateway: LiveGateway) -> Iterator[Shown]:
    """An organization with one of everything, each as its reading operation shows it; a colleague made the agent."""
    began = datetime.now(UTC)
    with Owner(gateway.url, organization="Field Works") as owner, Colleague(owner) as colleague:
        agent = colleague.http.post("/api/agents", json=AGENT).json()["id"]
        owner.http.post(f"/api/agents/{agent}/permissions", json=PERMISSION)
        headers = {"X-API-Key": owner.key}
        owner.http.post("/sdk/log", json=ENTRY | {"agent_id": agent}, headers=headers)
        resources = {
            "user": owner.http.get("/auth/me").json(),
            "organization": owner.http.get("/api/organization").json(),
            "agent": owner.http.get(f"/api/agents/{agent}").json(),
            "permission": owner.http.get(f"/api/agents/{agent}/permissions").json()[0],
            "entry": owner.entries()[0],
        }
        yield Shown(owner, colleague, began, resources)


def recent(s: Shown, value: str) -> bool:
    return since(s.began, value)


def logs_in(s: Shown, email: str) -> bool:
    body = {"email": email, "password": PASSWORD}
    answer = httpx.post(f"{s.owner.url}/auth/login", json=body, timeout=30)
    return answer.status_code == 200 and answer.json()["user"]["id"] == s["user"]["id"]


def opens_the_surface(s: Shown, key: str) -> bool:
    answer = s.owner.http.get("/sdk/permissions", params=agent(s), headers={"X-API-Key": key})
    return answer.status_code == 200 and len(key) == 40


def agent(s: Shown) -> dict[str, str]:
    return {"agent_id": s["agent"]["id"]}


def names_one_entry(s: Shown, entry: str) -> bool:
    assert s.owner.log(s["agent"]["id"], "another").json()["id"] != entry
    return [one["action"] for one in s.owner.entries() if one["id"] == entry] == ["stripe.refund"]


Meaning: TypeAlias = Callable[[Shown, Any], bool]

FIELDS: Mapping[str, tuple[Kind, Meaning]] = {
    "user.id": (identifier, lambda s, v: v == s.owner.user["id"]),
    "user.email": (text, logs_in),
    "user.organization_id": (identifier, lambda s, v: v == s["organization"]["id"]),
    "user.created_at": (moment, recent),
    "organization.id": (identifier, lambda s, v: v == s.owner.user["organization_id"]),
    "organization.name": (text, lambda _, v: v == "Field Works"),
    "organization.slug": (text, lambda _, v: v.startswith("field-works")),
    "organization.plan": (text, lambda _, v: v == "enterprise"),
    "organization.api_key": (text, opens_the_surface),
    "organization.is_active": (boolean, lambda _, v: v is True),
    "organization.created_at": (moment, recent),
    "agent.id": (identifier, lambda s, v: s.get(f"/api/agents/{v}") == 200),
    "agent.name": (text, lambda _, v: v == "refund-bot"),
    "agent.description": (text, lambda _, v: v == "Refunds orders"),
    "agent.status": (text, lambda _, v: v == "active"),
    "agent.created_at": (moment, recent),
    "agent.created_by": (identifier, lambda s, v: v == s.colleague.id),
    "permission.id": (identifier, lambda s, v: s.owner.http.put(f"/api/permissions/{v}", json={}).is_success),
    "permission.agent_id": (identifier, lambda s, v: v == s["agent"]["id"]),
    "permission.action": (text, lambda _, v: v == "stripe.refund"),
    "permission.requires_approval": (boolean, lambda _, v: v is True),
    "permission.max_amount": (number, lambda _, v: v == 12.5),
    "permission.created_at": (moment, recent),
    "entry.id": (identifier, names_one_entry),
    "entry.agent_id": (identifier, lambda s, v: v == s["agent"]["id"]),
    "entry.organization_id": (identifier, lambda s, v: v == s["organization"]["id"]),
    "entry.action": (text, lambda _, v: v == "stripe.refund"),
    "entry.status": (text, lambda _, v: v == "failed"),
    "entry.context": (lambda v: isinstance(v, dict), lambda _, v: v == CONTEXT),
    "entry.ip_address": (text, lambda _, v: v == "203.0.113.7"),
    "entry.created_at": (moment, recent),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_field(shown: Shown, field: str) -> None:
    """It is there, has the type and form of spec §2, and means what is said of it there."""
    resource, _, name = field.partition(".")
    kind, means_it = FIELDS[field]
    assert name in shown[resource]
    value = shown[resource][name]
    assert kind(value), f"{field} is {value!r}"
    assert means_it(shown, value), f"{field} is {value!r}"
