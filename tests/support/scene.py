"""A scene in which every documented operation can succeed: things of every kind, and who may do what to them."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from support.conformity import document, resolved
from support.gateway import PASSWORD, Owner
from support.slack import SlackHook, linked
from support.waiting import until
from toolgate_service.http.openapi import API_KEY, BEARER


class Scene:
    """Makes what an operation's path, query and example speak of."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.agent = owner.agent()
        self._webhook: str | None = None
        #: values of placeholders in paths and examples, except ids that `make` creates itself
        self._makers: Mapping[str, Callable[[], str]] = {
            "agent_id": lambda: self.agent,
            "permission_id": lambda: owner.permit(self.agent, f"scene.{time.time_ns()}"),
            "approval_id": self._approval,
            "grant_id": self._grant,
            "webhook_id": self._webhook_id,
            "slack_webhook_id": lambda: str(SlackHook(owner).made["id"]),
            "decision_id": self._decision,
            "delivery_id": self._delivery,
            "link_id": self._link,
            "invitation_token": lambda: str(self._invite()["link"]).rpartition("=")[2],
            "user_id": self._member,
            "budget_id": self._budget,
            "rule_id": self._rule,
            "policy_base": lambda: str(owner.http.get("/api/policy").json()["digest"]),
            "revision_id": self._revision,
            "entry_id": self._entry,
            "access_request_id": lambda: str(self.perform("submitAccessRequest").json()["task"]["id"]),
            "organization_id": self._sealed,
            "tree": lambda: "production",
            "level": lambda: "0",
            "position": lambda: "000.p/1",
            "action": lambda: "scene.held",
            # Only a mail or the operator hands one out.
            "reset_token": lambda: "nobody's",
        }

    def perform(self, operation_id: str) -> httpx.Response:
        """Send an operation's example, or the operation alone where it takes no body."""
        return self.send(operation_id, json=self.example(operation_id))

    def send(
        self, operation_id: str, make: Callable[[str], str] | None = None, **body: Any
    ) -> httpx.Response:
        """Send an operation with its credential, its required parameters, and a body of one's own.

        Args:
            operation_id: which operation.
            make: gives a required parameter its value; `self.make` when left out.
            body: `json` or `content`, as httpx takes them.
        """
        path, method, operation = find(operation_id)
        make = make or self.make
        query = {}
        for name, place in required(operation):
            if place == "path":
                path = path.replace(f"{{{name}}}", make(name))
            else:
                query[name] = make(name)
        headers = self.credential(operation)

        def ask() -> httpx.Response:
            return self.owner.http.request(method, path, params=query, headers=headers, **body)

        answer = ask()
        while answer.status_code == 409 and "Retry-After" in answer.headers:
            # A row is part of a checkpoint after a second.
            time.sleep(float(answer.headers["Retry-After"]))
            answer = ask()
        return answer

    def credential(self, operation: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers that open an operation; empty ones take the client's own away."""
        names = {name for one in operation["security"] for name in one}
        # Asked for anew: an earlier operation may have replaced it.
        key = self.owner.http.get("/api/organization").json()["api_key"] if API_KEY in names else ""
        return {"Authorization": f"Bearer {self.owner.token}" if BEARER in names else "", "X-API-Key": key}

    def make(self, name: str) -> str:
        """Return the id of a new resource, by default from the example of the operation that creates it."""
        if name in self._makers:
            return self._makers[name]()
        paths = document()["paths"]
        creating = [
            item["post"]["operationId"]
            for path, item in paths.items()
            if "post" in item and f"{path}/{{{name}}}" in paths
        ]
        assert creating, (
            f"an operation speaks of {name!r}: say in tests/support/scene.py how such a thing is made"
        )
        return str(self.perform(creating[0]).json()["id"])

    def example(self, operation_id: str) -> Any:
        """Return an operation's example, its placeholders filled; None without a body."""
        schema = request_schema(operation_id)
        if schema is None:
            return None
        assert schema.get("examples"), (
            f"the body of {operation_id} has no example: write model_config = example(…) in its class"
        )
        example = self._filled(schema["examples"][0])
        if operation_id == "submitAccessRequest":
            example |= self._denied_evaluation()
        if "email" in example:
            example["email"] = self._email(operation_id)
        return example

    def _filled(self, example: Any) -> Any:
        match example:
            case dict():
                return {name: self._filled(value) for name, value in example.items()}
            case list():
                return [self._filled(value) for value in example]
            case str() if example.startswith("{"):
                return self.make(example[1:-1])
        return example

    def _invite(self) -> dict[str, Any]:
        body = {"email": self._email("invite"), "role": "member"}
        invited: dict[str, Any] = self._post("/api/team/invitations", json=body).json()
        return invited

    def _member(self) -> str:
        body = {"token": self.make("invitation_token"), "password": PASSWORD}
        return str(self._post("/auth/accept-invitation", json=body).json()["user"]["id"])

    def _email(self, operation_id: str) -> str:
        # A login is somebody's, a registration nobody's yet.
        return self.owner.email if operation_id == "login" else f"scene-{time.time_ns()}@example.test"

    def _decision(self) -> str:
        # A check that requires an approval writes its record before the response.
        return self._held().headers["X-Decision-ID"]

    def _sealed(self) -> str:
        """Return the id of the organization once its transparency log has a checkpoint."""
        until(lambda: self.owner.http.get("/api/transparency").status_code == 200)
        return str(self.owner.user["organization_id"])

    def _entry(self) -> str:
        key = self.owner.http.get("/api/organization").json()["api_key"]
        body = {"agent_id": self.agent, "action": "scene.logged", "status": "success", "context": {"n": 1}}
        answer = self._post("/sdk/log", json=body, headers={"X-API-Key": key})
        return str(answer.json()["id"])

    def _approval(self) -> str:
        return str(self._held().json()["approval_id"])

    def _held(self) -> httpx.Response:
        self.owner.http.post(
            f"/api/agents/{self.agent}/permissions", json={"action": "scene.held", "requires_approval": True}
        )
        key = self.owner.http.get("/api/organization").json()["api_key"]
        body = {"agent_id": self.agent, "action": "scene.held"}
        return self.owner.http.post("/sdk/check", json=body, headers={"X-API-Key": key})

    def _denied_evaluation(self) -> dict[str, Any]:
        """Return the members of an access request for an evaluation that was denied."""
        self._held()
        body = {
            "subject": {"type": "agent", "id": self.agent},
            "action": {"name": "call"},
            "resource": {"type": "tool", "id": "scene.held"},
            "context": {},
        }
        key = self.owner.http.get("/api/organization").json()["api_key"]
        answer = self.owner.http.post("/access/v1/evaluation", json=body, headers={"X-API-Key": key})
        context = answer.json()["context"]
        denial = {
            "evaluation_id": context["evaluation_id"],
            "expires_at": context["access_request"]["expires_at"],
        }
        return body | {"denial": denial}

    def _grant(self) -> str:
        approval = self._approval()
        self._post(f"/api/approvals/{approval}/approve", json={"grant": {"uses": 2, "seconds": 60}})
        return str(self.owner.http.get("/api/grants").json()[0]["id"])

    def _rule(self) -> str:
        # For an action of its own, so that it decides about nothing else.
        body = {"name": f"scene {time.time_ns()}", "effect": "require_approval", "actions": ["scene.ruled"]}
        return str(self._post("/api/rules", json=body).json()["id"])

    def _revision(self) -> str:
        """Apply two policies, and return the id of the revision of the first one."""
        before = self.owner.http.get("/api/policy").json()["policy"]
        rule = {"name": f"scene {time.time_ns()}", "effect": "forbid", "actions": ["scene.revised"]}
        numbers = []
        for policy in (before | {"rules": [*before["rules"], rule]}, before):
            base = self.owner.http.get("/api/policy").json()["digest"]
            answer = self._post("/api/policy/apply", json={"policy": policy, "base": base})
            numbers.append(answer.json()["revision"])
        listed = self.owner.http.get("/api/policy/revisions", params={"number": numbers[0]})
        return str(listed.json()[0]["id"])

    def _budget(self) -> str:
        body = {"name": f"scene {time.time_ns()}", "actions": ["scene.held"], "window": "day", "limit": 5}
        answer = self._post("/api/budgets", json=body)
        return str(answer.json()["id"])

    def _webhook_id(self) -> str:
        # One, so that a delivery is of the webhook that an operation names beside it.
        if self._webhook is None:
            body = {"url": "https://hooks.example.com/scene", "events": ["approval.reminder"]}
            self._webhook = str(self._post("/api/webhooks", json=body).json()["id"])
        return self._webhook

    def _link(self) -> str:
        # One member has one link.
        for former in self.owner.http.get("/api/slack/links").json():
            self.owner.http.delete(f"/api/slack/links/{former['id']}")
        return linked(self.owner)

    def _delivery(self) -> str:
        return str(self._post(f"/api/webhooks/{self._webhook_id()}/test").json()["id"])

    def _post(self, path: str, **body: Any) -> httpx.Response:
        answer = self.owner.http.post(path, **body)
        assert answer.is_success, answer.text
        return answer


def find(operation_id: str) -> tuple[str, str, dict[str, Any]]:
    """Return an operation's path, method and description."""
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            if operation["operationId"] == operation_id:
                return path, method.upper(), operation
    raise LookupError(operation_id)


def operation_ids() -> list[str]:
    """Return the ids of all operations."""
    return [operation["operationId"] for item in document()["paths"].values() for operation in item.values()]


def required(operation: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return name and place of the parameters in path and query that an operation cannot do without."""
    return [
        (parameter["name"], parameter["in"])
        for parameter in operation.get("parameters", ())
        if parameter["in"] in {"path", "query"} and parameter.get("required")
    ]


def request_schema(operation_id: str) -> dict[str, Any] | None:
    """Return the schema of an operation's body; None where it takes none."""
    body = find(operation_id)[2].get("requestBody")
    if body is None:
        return None
    schema: dict[str, Any] = resolved(document(), body["content"]["application/json"]["schema"])
    return schema


assert PASSWORD == "correct horse battery", "the examples of login and registration use it"
