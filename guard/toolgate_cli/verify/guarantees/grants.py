"""Guarantees about temporary approvals, which cover further matching calls."""

from typing import Any

from toolgate_cli.verify.client import CALLERS
from toolgate_cli.verify.registry import guarantee, require
from toolgate_cli.verify.trial import Agent, Trial, count_allowed, refused


async def _grant(t: Trial, agent: Agent, action: str, context: dict[str, Any], **terms: object) -> str:
    """Approve a call together with a temporary approval, use the approval, and return the id of the temporary one."""
    approval_id = await t.hold(agent, action, context)
    grant = {"max_uses": 3, "duration_seconds": 600, **terms}
    await t.approve(approval_id, grant=grant)
    found = await t.approver.get(f"/api/grants?agent_id={agent.id}")
    require(len(found) == 1, f"{len(found)} temporary approvals exist after one was approved")
    return str(found[0]["id"])


@guarantee(
    "grants.uses",
    "A temporary approval of three calls allows exactly three of many parallel calls",
    "9.2.8",
)
async def limit_uses(t: Trial) -> None:
    agent, action = await t.held_agent()
    grant_id = await _grant(t, agent, action, {"a": 1})
    calls = [t.check_call(agent, action, {"a": 1}) for _ in range(CALLERS)]
    allowed = count_allowed(await t.race(calls))
    after = await t.approver.get(f"/api/grants/{grant_id}")
    # The approval itself allows one call, and the temporary approval three further ones.
    require(
        allowed == 1 + 3,
        f"{allowed} calls were allowed by an approval and a temporary approval of three calls",
    )
    require(
        after["uses_left"] == 0,
        f"{after['uses_left']} uses of the temporary approval are left after all calls",
    )


@guarantee(
    "grants.fields",
    "A temporary approval covers calls that differ only in the fields that the approver ignored",
    "9.2.8",
)
async def cover_ignored_fields(t: Trial) -> None:
    agent, action = await t.held_agent()
    context = {"to": "alice", "text": "one"}
    await _grant(t, agent, action, context, ignored_fields=["text"])
    await t.must_allow(agent, action, context)
    await t.must_allow(agent, action, {"to": "alice", "text": "two"})
    for other in (
        {"to": "mallory", "text": "one"},
        {"to": "alice", "text": "one", "cc": "mallory"},
        {"text": "one"},
    ):
        await t.must_not_allow(
            agent, action, other, what=f"a call that the approval does not cover: {other!r}"
        )


@guarantee(
    "grants.amount", "A temporary approval covers no amount above the approved amount", "9.2.8", "9.1.2"
)
async def limit_covered_amounts(t: Trial) -> None:
    agent, action = await t.held_agent()
    approval_id = await t.hold(agent, action, {"amount": 10, "any": 1})
    grant = {"max_uses": 3, "duration_seconds": 600, "ignored_fields": ["amount"]}
    answer = await t.approver.send("POST", f"/api/approvals/{approval_id}/approve", {"grant": grant})
    refused(answer, "a temporary approval of any amount", 400)
    await _grant(t, agent, action, {"amount": 10})
    await t.must_allow(agent, action, {"amount": 10})
    await t.must_allow(agent, action, {"amount": 9})
    for amount in (11, "9", None):
        await t.must_not_allow(agent, action, {"amount": amount}, what=f"the amount {amount!r}")


@guarantee("grants.revoked", "A revoked temporary approval allows no further call", "9.5.6")
async def revoke_grants(t: Trial) -> None:
    agent, action = await t.held_agent()
    grant_id = await _grant(t, agent, action, {"a": 1})
    await t.must_allow(agent, action, {"a": 1})
    await t.second.post(f"/api/grants/{grant_id}/revoke")
    await t.must_not_allow(agent, action, {"a": 1}, what="a call after its temporary approval was revoked")


@guarantee("grants.agent", "A temporary approval does not cover other agents", "9.2.8")
async def bind_grants_to_agents(t: Trial) -> None:
    agent, action = await t.held_agent()
    other = await t.agent()
    await t.permit(other, action, requires_approval=True)
    await _grant(t, agent, action, {"a": 1})
    await t.must_not_allow(other, action, {"a": 1}, what="the call of another agent")


@guarantee(
    "grants.quorum", "A temporary approval needs as many approvers as an approval of a single call", "9.2.1"
)
async def require_quorum(t: Trial) -> None:
    agent, action = await t.held_agent(required_approvals=2)
    approval_id = await t.hold(agent, action, {"a": 1})
    grant = {"max_uses": 3, "duration_seconds": 600}
    await t.approve(approval_id, grant=grant)
    await t.must_not_allow(agent, action, {"a": 1}, what="a call with only one of two required approvals")
    again = await t.approver.send("POST", f"/api/approvals/{approval_id}/approve", {"grant": grant})
    refused(again, "a second approval of the same user", 409)
