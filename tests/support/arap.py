"""A policy enforcement point that follows only the text of the AuthZEN Access Request and Approval Profile.

It reads the endpoints from the metadata and from the decisions, and treats tasks, tokens and approvals as opaque values.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

WELL_KNOWN = "/.well-known/authzen-configuration"
CAPABILITY = "urn:openid:authzen:capability:access-request"
ERROR = "urn:openid:authzen:access-request:error:"

Tuple = dict[str, Any]
Wait = Callable[[float], object]


@dataclass(frozen=True)
class Denied(Exception):
    """The access is denied, and no approval is to be expected.

    Attributes:
        context: context of the decision, or the task.
    """

    context: dict[str, Any]


class AccessRequestPep:
    """A client of a policy decision point.

    Args:
        base_url: URL of the policy decision point.
        key: its credential.
        wait: called before each further poll with the seconds that the service asks for.
    """

    def __init__(self, base_url: str, key: str, wait: Wait = lambda _: None) -> None:
        self.http = httpx.Client(timeout=30, headers={"Authorization": f"Bearer {key}"})
        self.wait = wait
        self.metadata: dict[str, Any] = self.http.get(base_url + WELL_KNOWN).json()
        assert CAPABILITY in self.metadata["capabilities"]

    def evaluate(self, access: Tuple, approval: object = None, **headers: str) -> dict[str, Any]:
        """Return the decision about an access, with the approval of an access request if there is one."""
        body = dict(access)
        if approval is not None:
            body["context"] = dict(access.get("context", {})) | {"approval": approval}
        answer = self.http.post(self.metadata["access_evaluation_endpoint"], json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        decision: dict[str, Any] = answer.json()
        return decision

    def submission(self, access: Tuple, decision: dict[str, Any], **members: object) -> dict[str, Any]:
        """Return the body of an access request for a denied access."""
        return dict(access) | {"denial": denial_of(decision)} | members

    def submit(
        self, body: dict[str, Any], decision: dict[str, Any] | None = None, key: str | None = None
    ) -> httpx.Response:
        """Submit an access request to the endpoint of the decision, or to that of the metadata."""
        given = {} if decision is None else decision["context"]["access_request"]
        endpoint = given.get("endpoint", self.metadata["access_request_endpoint"])
        # Credentials are sent only to the origin that the metadata names.
        assert urlsplit(endpoint)[:2] == urlsplit(self.metadata["access_request_endpoint"])[:2]
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        return self.http.post(endpoint, json=body, headers=headers)

    def request(self, access: Tuple, decision: dict[str, Any] | None = None) -> dict[str, Any]:
        """Evaluate an access that is denied, and return the task of its access request."""
        decision = decision or self.evaluate(access)
        answer = self.submit(self.submission(access, decision), decision)
        assert answer.status_code in {201, 202}, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def poll(self, task: dict[str, Any]) -> httpx.Response:
        """Read a task once."""
        return self.http.get(task["status_endpoint"])

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Read a task until it is decided, and return the approval.

        Raises:
            Denied: the task ends without an enforceable result.
        """
        task = body["task"]
        while body["task"]["status"] == "pending":
            answer = self.poll(task)
            assert answer.status_code == 200, answer.text
            body = answer.json()
            if body["task"]["status"] == "pending":
                self.wait(float(answer.headers.get("Retry-After", "5")))
        result = body.get("result", {})
        if body["task"]["status"] != "approved" or result.get("mode") != "reevaluate":
            raise Denied(body)
        approval: dict[str, Any] = result["approval"]
        return approval

    def enforce(self, access: Tuple) -> dict[str, Any]:
        """Return the context of the decision that permits an access, after an approval if one is needed.

        Raises:
            Denied: the access is not permitted.
        """
        decision = self.evaluate(access)
        if not decision["decision"]:
            if "access_request" not in decision.get("context", {}):
                raise Denied(decision["context"])
            approval = self.complete(self.request(access, decision))
            decision = self.evaluate(access, approval)
        if not decision["decision"]:
            raise Denied(decision["context"])
        context: dict[str, Any] = decision.get("context", {})
        return context

    def close(self) -> None:
        self.http.close()


def denial_of(decision: dict[str, Any]) -> dict[str, Any]:
    """Return the member `denial` of a submission, with the members of a decision unchanged."""
    context = decision["context"]
    given = context["access_request"]
    names = ("evaluation_id", "evaluated_at", "reason")
    echoed = {name: context[name] for name in names if name in context}
    return echoed | {
        name: given[name] for name in ("expires_at", "binding_token", "template") if name in given
    }
