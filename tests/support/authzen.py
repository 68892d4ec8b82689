"""A policy enforcement point that sends AuthZEN requests, and the policies of the published scenarios."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from support.gateway import Owner
from support.policies import apply
from toolgate_service.policies.yaml import parse_policy

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/authzen"
DATA = ROOT / "tests/service/authzen/data"

EVALUATION = "/access/v1/evaluation"
EVALUATIONS = "/access/v1/evaluations"
SUBJECTS = "/access/v1/search/subject"
RESOURCES = "/access/v1/search/resource"
ACTIONS = "/access/v1/search/action"
ENDPOINTS = (EVALUATION, EVALUATIONS, SUBJECTS, RESOURCES, ACTIONS)
METADATA = "/.well-known/authzen-configuration"

ALICE = {"type": "user", "id": "alice"}
BOB = {"type": "user", "id": "bob"}
READ = {"name": "read"}
WRITE = {"name": "write"}
RECORD = {"type": "record", "id": "record-1"}
ARCHIVED = {"type": "record", "id": "record-2", "properties": {"status": "archived"}}
ADMIN = {"type": "user", "id": "bob", "properties": {"role": "admin"}}
READING: dict[str, Any] = {"subject": ALICE, "action": READ, "resource": RECORD}

#: a valid request to each endpoint
VALID: dict[str, dict[str, Any]] = {
    EVALUATION: READING,
    EVALUATIONS: {"subject": ALICE, "action": READ, "evaluations": [{"resource": RECORD}]},
    SUBJECTS: {"subject": {"type": "user"}, "action": READ, "resource": RECORD},
    RESOURCES: {"subject": ALICE, "action": READ, "resource": {"type": "record"}},
    ACTIONS: {"subject": ALICE, "resource": RECORD},
}


class Pep:
    """Client with an API key, by default a new key of an agent."""

    def __init__(self, owner: Owner, agent: str, *, key: str | None = None, advisory: bool = False) -> None:
        self.owner = owner
        self.agent = agent
        self.key = key or agent_key(owner, agent, advisory=advisory)
        self.http = httpx.Client(
            base_url=owner.url, timeout=30, headers={"Authorization": f"Bearer {self.key}"}
        )

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        return self.http.post(path, json=body, headers=headers)

    def evaluate(self, body: object, **headers: str) -> dict[str, Any]:
        """Return the response to an access evaluation."""
        answer = self.post(EVALUATION, body, **headers)
        assert answer.status_code == 200, answer.text
        decision: dict[str, Any] = answer.json()
        return decision

    def call(self, tool: str, context: object = None, **properties: object) -> dict[str, Any]:
        """Evaluate a call of a tool by the agent."""
        body: dict[str, Any] = {
            "subject": {"type": "agent", "id": self.agent},
            "action": {"name": "call", "properties": properties},
            "resource": {"type": "tool", "id": tool},
        }
        return self.evaluate(body | ({} if context is None else {"context": context}))

    def evaluate_all(self, **body: object) -> list[dict[str, Any]]:
        """Return the decisions of several evaluations."""
        answer = self.post(EVALUATIONS, body)
        assert answer.status_code == 200, answer.text
        assert answer.json().keys() == {"evaluations"}
        found: list[dict[str, Any]] = answer.json()["evaluations"]
        return found

    def search(self, path: str, body: object) -> list[Any]:
        """Return the results of a search, each as an id or a name."""
        answer = self.post(path, body)
        assert answer.status_code == 200, answer.text
        return names(answer.json()["results"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()


def names(results: Sequence[dict[str, str]]) -> list[str]:
    """Return the ids of subjects and resources, or the names of actions."""
    return [one["name"] if "name" in one else one["id"] for one in results]


def agent_key(owner: Owner, agent: str, *, advisory: bool = False) -> str:
    """Create an API key of an agent."""
    answer = owner.http.post(f"/api/agents/{agent}/keys", json={"advisory": True} if advisory else None)
    assert answer.status_code == 201, answer.text
    key: str = answer.json()["api_key"]
    return key


def set_up(owner: Owner, file: str) -> Pep:
    """Apply an example policy, and return a client of its agent."""
    policy = parse_policy((EXAMPLES / file).read_text(encoding="utf-8"))
    apply(owner, policy.model_dump(mode="json"))
    [agent] = owner.http.get("/api/agents").json()
    return Pep(owner, agent["id"])


def published(file: str) -> dict[str, Any]:
    """Return a published file of decisions."""
    found: dict[str, Any] = json.loads((DATA / file).read_text(encoding="utf-8"))
    return found
