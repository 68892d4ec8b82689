"""Every change is audited: read from the application, so that a new route without an entry fails (decisions §3)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from pydantic import SecretStr
from support.gateway import PASSWORD, SECRET, LiveGateway, Owner
from support.slack import linked
from support.team import Colleague, accept, fresh_email, invite, token_of

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
    ("POST", "/api/slack/link-codes"): "a code is no link: the entry is made when it is typed in Slack",
    (
        "POST",
        "/integrations/slack/{webhook_id}",
    ): "Slack's words; links and decisions by it are audited as the member's",
    ("POST", "/billing/provider-events"): "no user's; what it changes is audited by the billing rules",
}


def permission(owner: Owner, agent: str | None = None) -> str:
    return owner.permit(agent or owner.agent(), "x", requires_approval=True)


def approval(owner: Owner) -> str:
    agent = owner.agent()
    permission(owner, agent)
    identifier: str = owner.check(agent, "x").json()["approval_id"]
    return identifier


def agent_key(owner: Owner, agent: str) -> str:
    identifier: str = owner.http.post(f"/api/agents/{agent}/keys").json()["id"]
    return identifier


def delete_key(owner: Owner) -> httpx.Response:
    agent = owner.agent()
    return owner.http.delete(f"/api/agents/{agent}/keys/{agent_key(owner, agent)}")


def delete_own_permission(owner: Owner) -> httpx.Response:
    agent = owner.agent()
    return owner.http.delete(f"/api/agents/{agent}/permissions/{permission(owner, agent)}")


def clear_denials(owner: Owner) -> httpx.Response:
    agent = owner.agent()
    permission(owner, agent)
    for number in range(10):
        held = owner.check(agent, "x", {"n": number}).json()["approval_id"]
        owner.http.post(f"/api/approvals/{held}/deny")
    return owner.http.delete(f"/api/agents/{agent}/denial-blocks", params={"action": "x"})


def revoke_grant(owner: Owner) -> httpx.Response:
    terms = {"grant": {"uses": 2, "seconds": 60}}
    assert owner.http.post(f"/api/approvals/{approval(owner)}/approve", json=terms).status_code == 200
    return owner.http.post(f"/api/grants/{owner.http.get('/api/grants').json()[0]['id']}/revoke")


def revoke(owner: Owner) -> httpx.Response:
    return owner.http.delete(f"/api/team/invitations/{invite(owner).json()['id']}")


def change_password(owner: Owner) -> httpx.Response:
    body = {"current_password": PASSWORD, "new_password": PASSWORD + "!"}
    answer = owner.http.post("/auth/password", json=body)
    logged_in = owner.http.post("/auth/login", json={"email": owner.email, "password": PASSWORD + "!"})
    owner.http.headers["Authorization"] = f"Bearer {logged_in.json()['access_token']}"
    return answer


def webhook(owner: Owner) -> str:
    body = {"url": "https://hooks.example.com/audited", "events": ["approval.reminder"]}
    answer = owner.http.post("/api/webhooks", json=body)
    assert answer.status_code == 201, answer.text
    return f"/api/webhooks/{answer.json()['id']}"


def retry(owner: Owner) -> httpx.Response:
    path = webhook(owner)
    delivery = owner.http.post(f"{path}/test").json()["id"]
    return owner.http.post(f"{path}/deliveries/{delivery}/retry")


#: the others, with the kind of their entry
AUDITED: dict[Route, tuple[str, Sends]] = {
    ("POST", "/auth/password"): ("user.password_changed", change_password),
    ("POST", "/auth/accept-invitation"): (
        "team.joined",
        lambda owner: accept(owner.url, token_of(invite(owner))),
    ),
    ("POST", "/api/team/invitations"): ("team.invited", lambda owner: invite(owner, fresh_email())),
    ("DELETE", "/api/team/invitations/{invitation_id}"): ("team.invitation_revoked", revoke),
    ("PUT", "/api/team/{user_id}"): (
        "team.role_changed",
        lambda owner: owner.http.put(f"/api/team/{Colleague(owner).id}", json={"role": "viewer"}),
    ),
    ("DELETE", "/api/team/{user_id}"): (
        "team.removed",
        lambda owner: owner.http.delete(f"/api/team/{Colleague(owner).id}"),
    ),
    ("GET", "/api/organization"): (
        "organization.key_shown",
        lambda owner: owner.http.get("/api/organization"),
    ),
    ("PUT", "/api/organization"): (
        "organization.updated",
        lambda owner: owner.http.put("/api/organization", json={"name": "Renamed"}),
    ),
    ("PUT", "/api/organization/allowed-networks"): (
        "organization.networks_changed",
        lambda owner: owner.http.put("/api/organization/allowed-networks", json={"networks": ["::/0"]}),
    ),
    ("POST", "/api/organization/regenerate-key"): (
        "organization.key_regenerated",
        lambda owner: owner.http.post("/api/organization/regenerate-key"),
    ),
    ("GET", "/api/organization/test-key"): (
        "organization.key_shown",
        lambda owner: owner.http.get("/api/organization/test-key"),
    ),
    ("POST", "/api/organization/test-key/regenerate"): (
        "organization.key_regenerated",
        lambda owner: owner.http.post("/api/organization/test-key/regenerate"),
    ),
    ("POST", "/api/agents"): (
        "agent.created",
        lambda owner: owner.http.post("/api/agents", json={"name": "a"}),
    ),
    ("PUT", "/api/agents/{agent_id}"): (
        "agent.updated",
        lambda owner: owner.http.put(f"/api/agents/{owner.agent()}", json={"status": "inactive"}),
    ),
    ("DELETE", "/api/agents/{agent_id}"): (
        "agent.deleted",
        lambda owner: owner.http.delete(f"/api/agents/{owner.agent()}"),
    ),
    ("POST", "/api/agents/{agent_id}/keys"): (
        "agent.key_created",
        lambda owner: owner.http.post(f"/api/agents/{owner.agent()}/keys"),
    ),
    ("DELETE", "/api/agents/{agent_id}/keys/{key_id}"): ("agent.key_deleted", delete_key),
    ("POST", "/api/agents/{agent_id}/permissions"): (
        "permission.created",
        lambda owner: owner.http.post(f"/api/agents/{owner.agent()}/permissions", json={"action": "x"}),
    ),
    ("DELETE", "/api/agents/{agent_id}/permissions/{permission_id}"): (
        "permission.deleted",
        delete_own_permission,
    ),
    ("PUT", "/api/permissions/{permission_id}"): (
        "permission.updated",
        lambda owner: owner.http.put(f"/api/permissions/{permission(owner)}", json={"max_amount": 5}),
    ),
    ("DELETE", "/api/permissions/{permission_id}"): (
        "permission.deleted",
        lambda owner: owner.http.delete(f"/api/permissions/{permission(owner)}"),
    ),
    ("DELETE", "/api/agents/{agent_id}/denial-blocks"): ("agent.denial_block_cleared", clear_denials),
    ("POST", "/api/webhooks"): (
        "webhook.created",
        lambda owner: owner.http.post("/api/webhooks", json={"url": "https://hooks.example.com/audited"}),
    ),
    ("PUT", "/api/webhooks/{webhook_id}"): (
        "webhook.updated",
        lambda owner: owner.http.put(webhook(owner), json={"is_active": False}),
    ),
    ("DELETE", "/api/webhooks/{webhook_id}"): (
        "webhook.deleted",
        lambda owner: owner.http.delete(webhook(owner)),
    ),
    ("POST", "/api/webhooks/{webhook_id}/test"): (
        "webhook.tested",
        lambda owner: owner.http.post(f"{webhook(owner)}/test"),
    ),
    ("POST", "/api/webhooks/{webhook_id}/rotate-secret"): (
        "webhook.secret_rotated",
        lambda owner: owner.http.post(f"{webhook(owner)}/rotate-secret"),
    ),
    ("POST", "/api/webhooks/{webhook_id}/deliveries/{delivery_id}/retry"): (
        "webhook.delivery_retried",
        retry,
    ),
    ("DELETE", "/api/slack/links/{link_id}"): (
        "slack.unlinked",
        lambda owner: owner.http.delete(f"/api/slack/links/{linked(owner)}"),
    ),
    ("POST", "/api/approvals/{approval_id}/approve"): (
        "approval.approved",
        lambda owner: owner.http.post(f"/api/approvals/{approval(owner)}/approve"),
    ),
    ("POST", "/api/approvals/{approval_id}/deny"): (
        "approval.denied",
        lambda owner: owner.http.post(f"/api/approvals/{approval(owner)}/deny"),
    ),
    ("POST", "/api/approvals/{approval_id}/reject"): (
        "approval.denied",
        lambda owner: owner.http.post(f"/api/approvals/{approval(owner)}/reject"),
    ),
    ("POST", "/api/grants/{grant_id}/revoke"): ("grant.revoked", revoke_grant),
}


def test_every_route_that_changes_something_is_here(tmp_path: Path) -> None:
    """A new route is audited and added above, or listed with the reason why not."""
    settings = Settings(
        database_url=f"sqlite:///{tmp_path}/x.db",
        secret=SecretStr(SECRET),
        provider_webhook_secret=SecretStr(SECRET),
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
    kind, send = AUDITED[route]
    with Owner(gateway.url, organization="One change") as owner:
        before = [entry for entry in trail(owner) if entry["kind"] == kind]
        answer = send(owner)
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
