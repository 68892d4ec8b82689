"""The walk's table: for every route, who may use it and what those who may not are told.

A new route needs an entry. In paths and bodies `{agent_id}` and the like stand for things of the organization whose
things nobody else may see or touch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from support.gateway import PASSWORD

#: from the least to the greatest: whoever reads, changes, is logged in fully, administers; or who holds an API key
Right = Literal["none", "reader", "changer", "full", "admin", "key"]


@dataclass(frozen=True, slots=True)
class Stop:
    """One route.

    Attributes:
        right: what it takes.
        success: the status that the right caller gets.
        body: what is sent.
        query: likewise.
        foreign: the status for whoever names another's things; None where nothing is named.
        environment: whether `environment` chooses between the two worlds.
        spends: whether the right caller's token does not survive it.
        beside_agent: whether the path names something beside its agent.
    """

    right: Right
    success: int = 200
    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    foreign: int | None = None
    environment: bool = True
    spends: bool = False
    beside_agent: bool = False


_AGENT = {"agent_id": "{agent_id}", "action": "{action}"}
_ENTRY = _AGENT | {"status": "success", "context": {"said": "by a stranger"}}
_POLICY = {"version": "toolgate.policy/v1", "agents": [{"name": "walker"}]}
_INVALID_POLICY = _POLICY | {
    "rules": [{"name": "walked", "effect": "forbid", "actions": ["*"], "when": "args."}]
}
_SUBJECT = {"type": "agent", "id": "{agent_id}"}
_TOOL = {"type": "tool", "id": "{action}"}
_CALL = {"subject": _SUBJECT, "action": {"name": "call"}, "resource": _TOOL}
_DENIAL = {"evaluation_id": "{evaluation_id}", "expires_at": "{denial_expires_at}"}
#: 256 bits that no invitation and no reset has
_TOKEN = "A" * 43

WALK: Mapping[str, Stop] = {
    "POST /sdk/check": Stop("key", body=_AGENT, foreign=200),
    "POST /sdk/log": Stop("key", body=_ENTRY, foreign=404),
    "POST /sdk/logs": Stop("key", body={"entries": [_ENTRY]}, foreign=200),
    "GET /sdk/permissions": Stop("key", query={"agent_id": "{agent_id}"}, foreign=404),
    "GET /sdk/approvals/{approval_id}": Stop("key", foreign=404),
    "POST /sdk/approvals/{approval_id}/cancel": Stop("key", foreign=404),
    "POST /access/v1/evaluation": Stop("key", body=_CALL, foreign=200),
    "POST /access/v1/evaluations": Stop("key", body=_CALL | {"evaluations": [{}]}, foreign=200),
    "POST /access/v1/search/subject": Stop("key", body=_CALL, foreign=200),
    "POST /access/v1/search/resource": Stop("key", body=_CALL, foreign=200),
    "POST /access/v1/search/action": Stop("key", body=_CALL, foreign=200),
    "POST /access/v1/requests": Stop("key", 202, body=_CALL | {"denial": _DENIAL}, foreign=400),
    "GET /access/v1/requests/{access_request_id}": Stop("key", foreign=404),
    "POST /access/v1/requests/{access_request_id}/cancel": Stop("key", foreign=404),
    "GET /access/v1/jwks": Stop("none"),
    "GET /.well-known/authzen-configuration": Stop("none"),
    "GET /.well-known/authzen-configuration/{base_path:path}": Stop("none", 404),
    # Whoever has no account yet, or forgot the way into it. `success` is what a stranger gets.
    "POST /auth/register": Stop(
        "none", 400, {"email": "{email}", "password": PASSWORD, "organization_name": "Mine"}
    ),
    "POST /auth/login": Stop("none", 401, {"email": "{email}", "password": "not the password"}),
    "POST /auth/accept-invitation": Stop("none", 400, {"token": _TOKEN, "password": PASSWORD}),
    "POST /auth/password-reset": Stop("none", 202, {"email": "{email}"}),
    "POST /auth/password-reset/confirm": Stop("none", 400, {"token": _TOKEN, "new_password": PASSWORD}),
    "POST /billing/provider-events": Stop("none", 400, {"id": "evt_1", "customer": "{organization_id}"}),
    "POST /integrations/slack/{webhook_id}": Stop("none", 401, {"payload": "{}"}),
    "GET /openapi.json": Stop("none"),
    "GET /docs": Stop("none"),
    "GET /docs/swagger-ui.css": Stop("none"),
    "GET /docs/swagger-ui-bundle.js": Stop("none"),
    "GET /docs/initializer.js": Stop("none"),
    "GET /health": Stop("none"),
    "GET /health/ready": Stop("none"),
    # One's own account.
    "GET /auth/me": Stop("reader", environment=False),
    "POST /auth/logout": Stop("reader", 204, environment=False, spends=True),
    "POST /auth/password": Stop(
        "reader",
        200,
        {"current_password": PASSWORD, "new_password": PASSWORD},
        environment=False,
        spends=True,
    ),
    "GET /api/team": Stop("reader", environment=False),
    "POST /api/team/invitations": Stop(
        "admin", 201, {"email": "walked@example.test", "role": "admin"}, environment=False
    ),
    "DELETE /api/team/invitations/{invitation_id}": Stop("admin", 204, foreign=404, environment=False),
    "PUT /api/team/{user_id}": Stop("admin", 200, {"role": "admin"}, foreign=404, environment=False),
    "DELETE /api/team/{user_id}": Stop("admin", 204, foreign=404, environment=False),
    "GET /api/organization": Stop("reader", environment=False),
    "PUT /api/organization": Stop("admin", 200, {"name": "Renamed"}, environment=False),
    "GET /api/organization/allowed-networks": Stop("reader", environment=False),
    "PUT /api/organization/allowed-networks": Stop("admin", 200, {"networks": []}, environment=False),
    "POST /api/organization/regenerate-key": Stop("admin", environment=False),
    "GET /api/organization/test-key": Stop("reader", environment=False),
    "POST /api/organization/test-key/regenerate": Stop("admin", environment=False),
    "GET /api/agents": Stop("reader"),
    "POST /api/agents": Stop("changer", 201, {"name": "walked"}),
    "GET /api/agents/{agent_id}": Stop("reader", foreign=404),
    "PUT /api/agents/{agent_id}": Stop("changer", 200, {"status": "inactive"}, foreign=404),
    "DELETE /api/agents/{agent_id}": Stop("changer", 204, foreign=404),
    "GET /api/agents/{agent_id}/keys": Stop("reader", foreign=404),
    "POST /api/agents/{agent_id}/keys": Stop("admin", 201, foreign=404),
    "DELETE /api/agents/{agent_id}/keys/{key_id}": Stop("admin", 204, foreign=404, beside_agent=True),
    "GET /api/agents/{agent_id}/permissions": Stop("reader", foreign=404),
    "POST /api/agents/{agent_id}/permissions": Stop("admin", 201, {"action": "walked"}, foreign=404),
    "DELETE /api/agents/{agent_id}/permissions/{permission_id}": Stop(
        "full", 204, foreign=404, beside_agent=True
    ),
    "GET /api/agents/{agent_id}/denial-blocks": Stop("reader", foreign=404),
    "DELETE /api/agents/{agent_id}/denial-blocks": Stop(
        "admin", 204, query={"action": "{denied_action}"}, foreign=404
    ),
    "PUT /api/permissions/{permission_id}": Stop(
        "admin", 200, {"max_amount": 1}, foreign=404, environment=False
    ),
    # 403 and not 404: the specification says so, for this path alone.
    "DELETE /api/permissions/{permission_id}": Stop("full", 204, foreign=403, environment=False),
    "GET /api/approvals": Stop("reader"),
    "GET /api/approvals/{approval_id}": Stop("reader", foreign=404),
    "POST /api/approvals/{approval_id}/approve": Stop("full", 200, {"note": "walked"}, foreign=404),
    "POST /api/approvals/{approval_id}/deny": Stop("full", 200, {"note": "walked"}, foreign=404),
    "POST /api/approvals/{approval_id}/reject": Stop("full", 200, {"note": "walked"}, foreign=404),
    "GET /api/rules": Stop("reader"),
    "POST /api/rules": Stop("admin", 201, {"name": "walked", "effect": "allow", "actions": ["a.walked"]}),
    "GET /api/rules/{rule_id}": Stop("reader", foreign=404),
    "PUT /api/rules/{rule_id}": Stop("admin", 200, {"enabled": False}, foreign=404),
    "DELETE /api/rules/{rule_id}": Stop("admin", 204, foreign=404),
    "GET /api/budgets": Stop("reader"),
    "POST /api/budgets": Stop(
        "admin", 201, {"name": "walked", "actions": ["a.walked"], "window": "day", "limit": 1}
    ),
    "GET /api/budgets/reservations": Stop("reader"),
    "GET /api/budgets/{budget_id}": Stop("reader", foreign=404),
    "GET /api/budgets/{budget_id}/usage": Stop("reader", foreign=404),
    "PUT /api/budgets/{budget_id}": Stop("admin", 200, {"enabled": False}, foreign=404),
    "DELETE /api/budgets/{budget_id}": Stop("admin", 204, foreign=404),
    "GET /api/policy": Stop("reader"),
    "POST /api/policy/plan": Stop("reader", 200, {"policy": _POLICY}),
    "POST /api/policy/evaluate": Stop(
        "reader", 200, {"calls": [{"agent": "walker", "action": "a.b"}], "policy": _POLICY}
    ),
    "POST /api/policy/replay": Stop("reader", 200, {"policy": _POLICY}),
    # The policy changed since this base, which only an admin learns.
    "POST /api/policy/apply": Stop("admin", 409, {"policy": _POLICY, "base": "none"}),
    # A shadow policy that counts the checks of the walk would change rows: none is started.
    "GET /api/policy/shadow": Stop("reader", 404),
    "PUT /api/policy/shadow": Stop("admin", 400, {"policy": _INVALID_POLICY}),
    "DELETE /api/policy/shadow": Stop("admin", 404),
    "POST /api/policy/shadow/promote": Stop("admin", 404, {"base": "none"}),
    "GET /api/policy/suggestions": Stop("reader"),
    "GET /api/policy/revisions": Stop("reader"),
    "GET /api/policy/revisions/{revision_id}": Stop("reader", foreign=404),
    "POST /api/policy/revisions/{revision_id}/restore": Stop("admin", 409, {"base": "none"}, foreign=404),
    "GET /api/freeze": Stop("reader", environment=False),
    "POST /api/freeze": Stop(
        "changer",
        201,
        body={"agent_id": "{agent_id}", "action": "a.frozen", "reason": "x"},
        foreign=404,
        environment=False,
    ),
    "GET /api/freeze/{freeze_id}": Stop("reader", foreign=404, environment=False),
    "POST /api/freeze/{freeze_id}/lift": Stop("admin", foreign=404, environment=False),
    "GET /api/grants": Stop("reader"),
    "GET /api/grants/{grant_id}": Stop("reader", foreign=404),
    "POST /api/grants/{grant_id}/revoke": Stop("full", foreign=404),
    "GET /api/webhooks": Stop("reader"),
    "POST /api/webhooks": Stop(
        "admin", 201, {"url": "https://hooks.example.com/x", "events": ["approval.reminder"]}
    ),
    "GET /api/webhooks/{webhook_id}": Stop("reader", foreign=404),
    "PUT /api/webhooks/{webhook_id}": Stop("admin", 200, {"description": "walked"}, foreign=404),
    "DELETE /api/webhooks/{webhook_id}": Stop("admin", 204, foreign=404),
    "POST /api/webhooks/{webhook_id}/test": Stop("admin", 202, foreign=404),
    "POST /api/webhooks/{webhook_id}/rotate-secret": Stop("admin", foreign=404),
    "GET /api/webhooks/{webhook_id}/deliveries": Stop("reader", foreign=404),
    "POST /api/webhooks/{webhook_id}/deliveries/{delivery_id}/retry": Stop("admin", foreign=404),
    "POST /api/slack/link-codes": Stop("full", 201, environment=False),
    "GET /api/slack/links": Stop("reader", environment=False),
    # A link of one's own takes a login and no more: whoever has none of that id is told so.
    "DELETE /api/slack/links/{link_id}": Stop("full", 204, foreign=404, environment=False),
    "GET /api/logs": Stop("reader"),
    "GET /api/logs/export": Stop("reader", query={"format": "jsonl"}),
    "GET /api/decisions": Stop("reader"),
    "GET /api/decisions/export": Stop("reader", query={"format": "jsonl"}),
    "GET /api/decisions/{decision_id}": Stop("reader", foreign=404),
    "POST /api/logs/{entry_id}/erase": Stop("admin", 204, foreign=404),
    "GET /api/logs/{entry_id}/receipt": Stop("reader", foreign=404),
    "POST /api/decisions/{decision_id}/erase": Stop("admin", 204, foreign=404),
    "GET /api/decisions/{decision_id}/receipt": Stop("reader", foreign=404),
    # It waits for a decision, and is not erased before.
    "POST /api/approvals/{approval_id}/erase": Stop("admin", 409, foreign=404),
    "GET /api/approvals/{approval_id}/receipt": Stop("reader", foreign=404),
    "GET /api/transparency": Stop("reader"),
    "GET /api/transparency/export": Stop("reader"),
    "GET /tlog/{organization_id}/{tree}/checkpoint": Stop("none"),
    "GET /tlog/{organization_id}/{tree}/tile/{level}/{position:position}": Stop("none"),
    "GET /tlog/{organization_id}/{tree}/tile/entries/{position:position}": Stop(
        "reader", foreign=404, environment=False
    ),
    "GET /api/audit": Stop("reader"),
    "GET /api/billing/plan": Stop("reader", environment=False),
    "GET /api/billing/usage": Stop("reader", environment=False),
    # Nobody has bought anything here.
    "GET /api/billing/subscription": Stop("reader", 404, environment=False),
    "GET /api/billing/invoices": Stop("reader", environment=False),
}
