"""Every change is audited: read from the application, so that a new route without an entry fails (decisions §3)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from pydantic import SecretStr
from support.conformity import document
from support.gateway import PASSWORD, SECRET, LiveGateway, Owner
from support.scene import Scene

from toolgate_service.api.app import _fastapi_app
from toolgate_service.core.settings import Settings
from toolgate_service.gateway import Gateway

Route: TypeAlias = tuple[str, str]
#: sends the request of a route
Sends: TypeAlias = Callable[[Owner], httpx.Response]

#: routes that change something and leave no entry of their own, and why
UNAUDITED: dict[Route, str] = {
    ("POST", "/auth/register"): "begins an organization: there is nobody yet to whom it would be told",
    ("POST", "/auth/login"): "a session is no change of the organization",
    ("POST", "/auth/logout"): "a session is no change of the organization",
    ("POST", "/auth/password-reset"): "anybody may ask; the entry is made when the link is used",
    (
        "POST",
        "/auth/password-reset/confirm",
    ): "held by the tests of the reset, which read the link from the mail",
    ("POST", "/sdk/check"): "an agent's question: the approval is its record",
    ("POST", "/sdk/log"): "an agent's record is the log itself",
    ("POST", "/sdk/logs"): "an agent's records are the log itself",
    ("POST", "/sdk/approvals/{approval_id}/cancel"): "an agent's own withdrawal, written in the approval",
    ("POST", "/access/v1/requests"): "an agent's request: the access request is its record",
    (
        "POST",
        "/access/v1/requests/{access_request_id}/cancel",
    ): "an agent's own withdrawal, written in the approval",
    ("POST", "/api/slack/link-codes"): "a code is no link: the entry is made when it is typed in Slack",
    (
        "POST",
        "/integrations/slack/{webhook_id}",
    ): "Slack's words; links and decisions by it are audited as the member's",
    ("POST", "/api/policy/plan"): "nothing is changed",
    ("POST", "/api/policy/evaluate"): "nothing is changed",
    ("POST", "/api/policy/replay"): "nothing is changed",
    ("POST", "/billing/provider-events"): "no user's; what it changes is audited by the billing rules",
}


def clear_denials(owner: Owner) -> httpx.Response:
    agent = owner.agent()
    owner.permit(agent, "x", requires_approval=True)
    for number in range(10):
        held = owner.check(agent, "x", {"n": number}).json()["approval_id"]
        owner.http.post(f"/api/approvals/{held}/deny")
    return owner.http.delete(f"/api/agents/{agent}/denial-blocks", params={"action": "x"})


def end_shadow(owner: Owner, method: str, path: str) -> httpx.Response:
    state = owner.http.get("/api/policy").json()
    owner.http.put("/api/policy/shadow", json={"policy": state["policy"]})
    body = {"base": state["digest"]} if path else None
    return owner.http.request(method, f"/api/policy/shadow{path}", json=body)


def erase_closed_request(owner: Owner) -> httpx.Response:
    approval = Scene(owner).make("approval_id")
    assert owner.http.post(f"/api/approvals/{approval}/deny").status_code == 200
    return owner.http.post(f"/api/approvals/{approval}/erase")


def change_password(owner: Owner) -> httpx.Response:
    body = {"current_password": PASSWORD, "new_password": PASSWORD + "!"}
    answer = owner.http.post("/auth/password", json=body)
    logged_in = owner.http.post("/auth/login", json={"email": owner.email, "password": PASSWORD + "!"})
    owner.http.headers["Authorization"] = f"Bearer {logged_in.json()['access_token']}"
    return answer


#: the other routes, with the kinds of their audit events
AUDITED: dict[Route, str] = {
    ("POST", "/auth/password"): "user.password_changed",
    ("POST", "/auth/accept-invitation"): "team.joined",
    ("POST", "/api/team/invitations"): "team.invited",
    ("DELETE", "/api/team/invitations/{invitation_id}"): "team.invitation_revoked",
    ("PUT", "/api/team/{user_id}"): "team.role_changed",
    ("DELETE", "/api/team/{user_id}"): "team.removed",
    ("GET", "/api/organization"): "organization.key_shown",
    ("PUT", "/api/organization"): "organization.updated",
    ("PUT", "/api/organization/allowed-networks"): "organization.networks_changed",
    ("POST", "/api/organization/regenerate-key"): "organization.key_regenerated",
    ("GET", "/api/organization/test-key"): "organization.key_shown",
    ("POST", "/api/organization/test-key/regenerate"): "organization.key_regenerated",
    ("POST", "/api/agents"): "agent.created",
    ("PUT", "/api/agents/{agent_id}"): "agent.updated",
    ("DELETE", "/api/agents/{agent_id}"): "agent.deleted",
    ("POST", "/api/agents/{agent_id}/keys"): "agent.key_created",
    ("DELETE", "/api/agents/{agent_id}/keys/{key_id}"): "agent.key_deleted",
    ("POST", "/api/agents/{agent_id}/permissions"): "permission.created",
    ("DELETE", "/api/agents/{agent_id}/permissions/{permission_id}"): "permission.deleted",
    ("PUT", "/api/permissions/{permission_id}"): "permission.updated",
    ("DELETE", "/api/permissions/{permission_id}"): "permission.deleted",
    ("POST", "/api/rules"): "rule.created",
    ("PUT", "/api/rules/{rule_id}"): "rule.updated",
    ("DELETE", "/api/rules/{rule_id}"): "rule.deleted",
    ("POST", "/api/budgets"): "budget.created",
    ("PUT", "/api/budgets/{budget_id}"): "budget.updated",
    ("DELETE", "/api/budgets/{budget_id}"): "budget.deleted",
    ("POST", "/api/policy/apply"): "policy.applied",
    ("PUT", "/api/policy/shadow"): "policy.shadow_started",
    ("DELETE", "/api/policy/shadow"): "policy.shadow_discarded",
    ("POST", "/api/policy/shadow/promote"): "policy.shadow_promoted",
    ("POST", "/api/policy/revisions/{revision_id}/restore"): "policy.restored",
    ("POST", "/api/freeze"): "freeze.created",
    ("POST", "/api/freeze/{freeze_id}/lift"): "freeze.lifted",
    ("DELETE", "/api/agents/{agent_id}/denial-blocks"): "agent.denial_block_cleared",
    ("POST", "/api/webhooks"): "webhook.created",
    ("PUT", "/api/webhooks/{webhook_id}"): "webhook.updated",
    ("DELETE", "/api/webhooks/{webhook_id}"): "webhook.deleted",
    ("POST", "/api/webhooks/{webhook_id}/test"): "webhook.tested",
    ("POST", "/api/webhooks/{webhook_id}/rotate-secret"): "webhook.secret_rotated",
    ("POST", "/api/webhooks/{webhook_id}/deliveries/{delivery_id}/retry"): "webhook.delivery_retried",
    ("DELETE", "/api/slack/links/{link_id}"): "slack.unlinked",
    ("POST", "/api/approvals/{approval_id}/approve"): "approval.approved",
    ("POST", "/api/approvals/{approval_id}/deny"): "approval.denied",
    ("POST", "/api/approvals/{approval_id}/reject"): "approval.denied",
    ("POST", "/api/grants/{grant_id}/revoke"): "grant.revoked",
    ("POST", "/api/logs/{entry_id}/erase"): "log_entry.erased",
    ("POST", "/api/decisions/{decision_id}/erase"): "decision.erased",
    ("POST", "/api/approvals/{approval_id}/erase"): "approval.erased",
}
#: requests of routes whose example in the OpenAPI document has no effect or ends the session; others send the example
SENDS: dict[Route, Sends] = {
    ("POST", "/auth/password"): change_password,
    ("DELETE", "/api/agents/{agent_id}/denial-blocks"): clear_denials,
    ("DELETE", "/api/policy/shadow"): lambda owner: end_shadow(owner, "DELETE", ""),
    ("POST", "/api/approvals/{approval_id}/erase"): erase_closed_request,
    ("POST", "/api/policy/shadow/promote"): lambda owner: end_shadow(owner, "POST", "/promote"),
}


def test_every_route_that_changes_something_is_here(tmp_path: Path) -> None:
    """A new route is audited and added above, or listed with the reason why not."""
    settings = Settings(
        database_url=f"sqlite:///{tmp_path}/x.db",
        secret=SecretStr(SECRET),
        stripe_webhook_secret=SecretStr(SECRET),
    )
    changing = {
        (method.upper(), path)
        for path, methods in _fastapi_app(Gateway(settings)).openapi()["paths"].items()
        for method in methods
        if method in {"post", "put", "patch", "delete"}
    }
    assert len(changing) > 20
    assert changing - AUDITED.keys() - UNAUDITED.keys() == set()
    assert not AUDITED.keys() & UNAUDITED.keys()


def trail(owner: Owner) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for environment in ("test", "production"):
        answer = owner.http.get("/api/audit", params={"limit": 100, "environment": environment})
        assert answer.status_code == 200, answer.text
        entries += answer.json()
    return sorted(entries, key=lambda entry: (entry["created_at"], entry["id"]))


@pytest.mark.parametrize("route", AUDITED, ids=" ".join)
def test_a_change_leaves_its_entry(gateway: LiveGateway, route: Route) -> None:
    """One entry that says who did it and from where, and tells no secret."""
    kind, (method, path) = AUDITED[route], route
    with Owner(gateway.url, organization="One change") as owner:
        scene = Scene(owner)
        before = [entry for entry in trail(owner) if entry["kind"] == kind]
        operation = document()["paths"][path][method.lower()]["operationId"]
        answer = SENDS[route](owner) if route in SENDS else scene.perform(operation)
        assert answer.is_success, answer.text
        after = [entry for entry in trail(owner) if entry["kind"] == kind]
        assert after[:-1] == before
        entry = after[-1]
        assert entry["ip_address"] == "127.0.0.1"
        assert entry["user_email"]
        if kind != "team.joined":
            assert (entry["user_id"], entry["user_email"]) == (owner.user["id"], owner.email)
        for secret in (owner.key, PASSWORD, owner.token, "whsec_"):
            assert secret not in str(entry)
