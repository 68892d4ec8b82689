"""Work of an agent and its approvers that causes rows of every kind in the transparency log."""

import time
from typing import Any

import httpx

from support.gateway import Owner

HELD, FREE = "mail.send", "stripe.refund"


def check(owner: Owner, agent: str, action: str, **fields: Any) -> httpx.Response:
    """Send a check and return the response."""
    body = {"agent_id": agent, "action": action, **fields}
    return owner.http.post("/sdk/check", json=body, headers={"X-API-Key": owner.key})


def hold(owner: Owner, agent: str, **context: Any) -> str:
    """Return the id of a new approval request."""
    return str(check(owner, agent, HELD, context=context).json()["approval_id"])


def work(owner: Owner) -> str:
    """Cause rows of every kind and approvals in every state, and return the agent's id."""
    agent = owner.agent(f"bot {time.time_ns()}")
    owner.permit(agent, FREE, max_amount=100)
    owner.permit(agent, HELD, requires_approval=True)
    for number in range(5):
        allowed = check(owner, agent, FREE, context={"amount": number, "to": f"größe {number}"})
        decision = allowed.headers["x-decision-id"]
        assert owner.log(agent, FREE, context={"n": number}, decision_id=decision).status_code == 200
    check(owner, agent, FREE, context={"amount": 1000})
    check(owner, agent, "x.unknown")
    assert owner.log(agent, FREE, "failed", decision_id="not an id", run_id="r").status_code == 200
    for number in range(2):
        headers = {"X-API-Key": owner.key, "Idempotency-Key": "once"}
        body = {"agent_id": agent, "action": FREE, "status": "success", "context": {"n": number}}
        assert owner.http.post("/sdk/log", json=body, headers=headers).status_code == 200
    approve(owner, agent)
    state = owner.http.get("/api/policy").json()
    policy = state["policy"] | {
        "agents": [*state["policy"]["agents"], {"name": f"from a policy {time.time_ns()}"}]
    }
    applied = owner.http.post("/api/policy/apply", json={"policy": policy, "base": state["digest"]})
    assert applied.status_code == 200
    return agent


def approve(owner: Owner, agent: str) -> None:
    """Make approval requests that are approved, used, edited, rejected, cancelled and covered by a temporary approval."""
    used = hold(owner, agent, to="used")
    assert owner.http.post(f"/api/approvals/{used}/approve", json={"note": "fine"}).status_code == 200
    decided = check(owner, agent, HELD, context={"to": "used"}, approval_id=used)
    assert decided.json()["allowed"]
    owner.log(agent, HELD, approval_id=used, decision_id=decided.headers["x-decision-id"])
    edited = hold(owner, agent, to="edited")
    change = {"context": {"to": "other"}}
    assert owner.http.post(f"/api/approvals/{edited}/approve", json=change).status_code == 200
    assert owner.http.post(f"/api/approvals/{hold(owner, agent, to='no')}/reject").status_code == 200
    cancelled = hold(owner, agent, to="cancelled")
    headers = {"X-API-Key": owner.key}
    assert owner.http.post(f"/sdk/approvals/{cancelled}/cancel", headers=headers).status_code == 200
    hold(owner, agent, to="pending")
    granted = hold(owner, agent, to="granted")
    terms = {"grant": {"uses": 3, "seconds": 3600}}
    assert owner.http.post(f"/api/approvals/{granted}/approve", json=terms).status_code == 200
    assert check(owner, agent, HELD, context={"to": "granted"}).json()["allowed"]
