"""Guarantees about the separation of organizations: a walk through the API with the ids of another organization."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolgate_cli.verify.client import Call
from toolgate_cli.verify.registry import guarantee, require
from toolgate_cli.verify.trial import Agent, Trial, refused

_MISSING = (403, 404)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the main organization, which the other organization must not see."""

    agent: Agent
    action: str
    permission: str
    pending: str
    grant: str
    rule: str
    budget: str
    freeze: str
    decision: str
    entry: str
    key: str

    def ids(self) -> set[str]:
        """Return all ids of rows."""
        return {
            *(self.agent.id, self.permission, self.pending, self.grant, self.rule),
            *(self.budget, self.freeze, self.decision, self.entry, self.key),
        }


async def _rows(t: Trial) -> _Rows:
    """Create one row of each kind in the main organization."""
    agent, action = await t.held_agent()
    permission = (await t.admin.get(f"/api/agents/{agent.id}/permissions"))[0]["id"]
    first = await t.hold(agent, action, {"a": 0})
    await t.approve(first, grant={"max_uses": 1, "duration_seconds": 600})
    grant = (await t.admin.get(f"/api/grants?agent_id={agent.id}"))[0]["id"]
    pending = await t.hold(agent, action, {"secret": t.prefix})
    decision = (await t.check(agent, action, {"a": 2})).id
    rule = {"name": t.prefix, "effect": "forbid", "actions": [t.action("forbidden")]}
    budget = {
        "name": t.prefix,
        "actions": [t.action("free")],
        "window": "day",
        "limit": 1,
        "at_limit": "deny",
    }
    freeze = {"agent_id": agent.id, "action": t.action("frozen"), "reason": t.prefix}
    entry = {"agent_id": agent.id, "action": action, "status": "success", "context": {"secret": t.prefix}}
    logged = await t.api.send(Call("POST", "/sdk/log", entry, agent.credential))
    return _Rows(
        agent,
        action,
        permission,
        pending,
        grant,
        (await t.admin.post("/api/rules", rule))["id"],
        (await t.admin.post("/api/budgets", budget))["id"],
        (await t.admin.post("/api/freeze", freeze))["id"],
        decision,
        logged.json()["id"],
        (await t.admin.post(f"/api/agents/{agent.id}/keys"))["id"],
    )


@guarantee("tenancy.read", "An organization cannot read the data of another organization", "5.3.1")
async def hide_rows(t: Trial) -> None:
    rows, foreign = await _rows(t), t.other.users[0]
    paths = [
        f"/api/agents/{rows.agent.id}",
        f"/api/agents/{rows.agent.id}/keys",
        f"/api/agents/{rows.agent.id}/permissions",
        f"/api/agents/{rows.agent.id}/denial-blocks",
        f"/api/approvals/{rows.pending}",
        f"/api/approvals/{rows.pending}/receipt",
        f"/api/grants/{rows.grant}",
        f"/api/rules/{rows.rule}",
        f"/api/budgets/{rows.budget}",
        f"/api/budgets/{rows.budget}/usage",
        f"/api/freeze/{rows.freeze}",
        f"/api/decisions/{rows.decision}",
        f"/api/decisions/{rows.decision}/receipt",
        f"/api/logs/{rows.entry}/receipt",
        f"/tlog/{t.main.id}/production/tile/entries/000.p/1",
    ]
    for path in paths:
        answer = await foreign.send("GET", path)
        refused(answer, f"GET {path} by another organization", *_MISSING)
        require(t.prefix not in answer.text, f"GET {path} shows data of another organization")


@guarantee("tenancy.lists", "Lists contain no data of another organization", "5.3.1")
async def separate_lists(t: Trial) -> None:
    rows, foreign = await _rows(t), t.other.users[0]
    paths = [
        *("/api/agents", "/api/approvals", "/api/grants", "/api/rules", "/api/budgets", "/api/freeze"),
        *("/api/logs", "/api/decisions", "/api/audit", "/api/team", "/api/policy", "/api/webhooks"),
        *("/api/budgets/reservations", "/api/logs/export", "/api/decisions/export", "/api/billing/usage"),
        f"/api/approvals?agent_id={rows.agent.id}",
        f"/api/logs?agent_id={rows.agent.id}",
        f"/api/decisions?agent_id={rows.agent.id}",
        f"/api/grants?agent_id={rows.agent.id}",
    ]
    for path in paths:
        answer = await foreign.send("GET", path)
        require(answer.is_success or answer.status in _MISSING, f"GET {path}: status {answer.status}")
        leaked = [one for one in (*rows.ids(), t.prefix, t.main.id, t.admin.email) if one in answer.text]
        # The filter of a list may be part of the link to the next page, but not of the body.
        require(not leaked, f"GET {path} shows data of another organization")


@guarantee("tenancy.change", "An organization cannot change the data of another organization", "5.3.1")
async def refuse_changes(t: Trial) -> None:
    rows, foreign = await _rows(t), t.other.users[0]
    changes: list[tuple[str, str, Mapping[str, Any] | None]] = [
        ("POST", f"/api/approvals/{rows.pending}/approve", {}),
        ("POST", f"/api/approvals/{rows.pending}/reject", {}),
        ("PUT", f"/api/agents/{rows.agent.id}", {"status": "inactive"}),
        ("POST", f"/api/agents/{rows.agent.id}/permissions", {"action": t.action("own")}),
        ("POST", f"/api/agents/{rows.agent.id}/keys", None),
        ("DELETE", f"/api/agents/{rows.agent.id}/keys/{rows.key}", None),
        ("PUT", f"/api/permissions/{rows.permission}", {"requires_approval": False}),
        ("DELETE", f"/api/permissions/{rows.permission}", None),
        ("POST", f"/api/grants/{rows.grant}/revoke", None),
        ("PUT", f"/api/rules/{rows.rule}", {"enabled": False}),
        ("DELETE", f"/api/rules/{rows.rule}", None),
        ("PUT", f"/api/budgets/{rows.budget}", {"limit": 1000}),
        ("DELETE", f"/api/budgets/{rows.budget}", None),
        ("POST", f"/api/freeze/{rows.freeze}/lift", None),
        ("POST", f"/api/logs/{rows.entry}/erase", None),
        ("POST", f"/api/decisions/{rows.decision}/erase", None),
        ("PUT", f"/api/team/{t.viewer.id}", {"role": "admin"}),
        ("DELETE", f"/api/team/{t.viewer.id}", None),
        ("POST", "/api/freeze", {"agent_id": rows.agent.id, "reason": "foreign"}),
        ("DELETE", f"/api/agents/{rows.agent.id}", None),
    ]
    for method, path, body in changes:
        answer = await foreign.send(method, path, body)
        refused(answer, f"{method} {path} by another organization", *_MISSING)
    shown = await t.admin.get(f"/api/approvals/{rows.pending}")
    require(shown["status"] == "pending", "another organization decided an approval request")
    require((await t.admin.get(f"/api/rules/{rows.rule}"))["enabled"], "another organization changed a rule")


@guarantee(
    "tenancy.sdk",
    "The API key of an organization is not valid for agents of another organization",
    "5.3.1",
    "9.4.1",
)
async def separate_agents(t: Trial) -> None:
    rows = await _rows(t)
    foreign = Agent(rows.agent.id, t.other.key)
    await t.permit(rows.agent, t.action("read"))
    await t.must_allow(rows.agent, t.action("read"))
    await t.must_not_allow(foreign, t.action("read"), what="a call with the API key of another organization")
    entry = {"agent_id": rows.agent.id, "action": rows.action, "status": "success"}
    calls = [
        Call("POST", "/sdk/log", entry, foreign.credential),
        Call("GET", f"/sdk/approvals/{rows.pending}", None, foreign.credential),
        Call("POST", f"/sdk/approvals/{rows.pending}/cancel", None, foreign.credential),
        Call("GET", f"/sdk/permissions?agent_id={rows.agent.id}", None, foreign.credential),
    ]
    for call in calls:
        refused(await t.api.send(call), f"{call.method} {call.path} by another organization", *_MISSING)


@guarantee(
    "tenancy.approvals",
    "An approval of one organization allows no call of another organization",
    "5.3.1",
    "9.2.8",
)
async def separate_approvals(t: Trial) -> None:
    agent, action = await t.held_agent()
    owner = t.other.users[0]
    foreign = await t.agent(owner=owner, key=t.other.key)
    await t.permit(foreign, action, owner=owner, requires_approval=True)
    approval_id = await t.approved(agent, action, {"a": 1})
    await t.must_not_allow(foreign, action, {"a": 1}, what="a call of another organization")
    await t.must_not_allow(
        foreign, action, {"a": 1}, approval_id=approval_id, what="a call of another organization"
    )


@guarantee(
    "tenancy.rules",
    "Rules, budgets and freezes of one organization do not affect another organization",
    "5.3.1",
)
async def separate_settings(t: Trial) -> None:
    owner = t.other.users[0]
    foreign = await t.agent(owner=owner, key=t.other.key)
    await t.permit(foreign, t.action(), owner=owner)
    agent = await t.agent()
    await t.permit(agent, t.action())
    await t.admin.post("/api/freeze", {"action": t.action(), "reason": "test"})
    await t.must_not_allow(agent, t.action(), what="a frozen call")
    await t.must_allow(foreign, t.action())
    await owner.post("/api/rules", {"name": t.prefix, "effect": "allow", "actions": [t.action("own")]})
    await t.must_not_allow(agent, t.action("own"), what="a call that a rule of another organization allows")
    await t.must_allow(foreign, t.action("own"))
