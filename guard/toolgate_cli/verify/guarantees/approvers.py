"""Guarantees about who may approve: quorum, separation of duties, named approvers and roles."""

from toolgate_cli.verify.client import Call
from toolgate_cli.verify.registry import guarantee, require
from toolgate_cli.verify.trial import Trial, refused


@guarantee("approvers.quorum", "A call that needs two approvals is not allowed after one", "9.2.1")
async def require_quorum(t: Trial) -> None:
    agent, action = await t.held_agent(required_approvals=2)
    approval_id = await t.hold(agent, action, {"a": 1})
    first = await t.approve(approval_id)
    require(first["status"] == "pending", "a request that needs two approvals is approved after one")
    again = await t.approver.send("POST", f"/api/approvals/{approval_id}/approve", {})
    refused(again, "a second approval of the same user", 409)
    await t.must_not_allow(agent, action, {"a": 1}, what="a call with only one of two required approvals")
    last = await t.approve(approval_id, t.second)
    require(last["status"] == "approved", "a request is not approved after two approvals")
    await t.must_allow(agent, action, {"a": 1})


@guarantee("approvers.quorum-parallel", "Parallel approvals of one user count once", "9.2.1")
async def count_users_once(t: Trial) -> None:
    agent, action = await t.held_agent(required_approvals=2)
    approval_id = await t.hold(agent, action, {"a": 1})
    path = f"/api/approvals/{approval_id}/approve"
    await t.api.together([Call("POST", path, {}, t.approver.credential) for _ in range(16)])
    shown = await t.admin.get(f"/api/approvals/{approval_id}")
    require(shown["status"] == "pending", "parallel approvals of one user reached the quorum of two")
    require(len(shown["votes"]) == 1, f"the request has {len(shown['votes'])} votes of one user")


@guarantee("approvers.rejection", "One rejection ends a request that needs two approvals", "9.2.1")
async def end_by_one_rejection(t: Trial) -> None:
    agent, action = await t.held_agent(required_approvals=2)
    approval_id = await t.hold(agent, action, {"a": 1})
    await t.approve(approval_id)
    await t.second.post(f"/api/approvals/{approval_id}/reject", {})
    answer = await t.admin.send("POST", f"/api/approvals/{approval_id}/approve", {})
    refused(answer, "an approval of a rejected request", 409)
    await t.must_not_allow(agent, action, {"a": 1}, what="a rejected call")


@guarantee(
    "approvers.separation", "With separation of duties, the creator of the permission cannot approve", "9.2.1"
)
async def separate_duties(t: Trial) -> None:
    agent, action = await t.held_agent(separation_of_duties=True)
    approval_id = await t.hold(agent, action, {"a": 1})
    answer = await t.admin.send("POST", f"/api/approvals/{approval_id}/approve", {})
    refused(answer, "an approval of the user who created the permission", 403)
    await t.must_not_allow(
        agent, action, {"a": 1}, what="a call that only the creator of the permission approved"
    )
    await t.approve(approval_id)
    await t.must_allow(agent, action, {"a": 1})


@guarantee(
    "approvers.loosened",
    "With separation of duties, a user who raised the limit of the permission cannot approve",
    "9.2.1",
)
async def separate_changes(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    permission = await t.permit(
        agent, action, requires_approval=True, separation_of_duties=True, max_amount=1
    )
    changer = next(user for user in t.main.with_role("admin") if user is not t.admin)
    await changer.put(f"/api/permissions/{permission}", {"max_amount": 1000})
    approval_id = await t.hold(agent, action, {"amount": 500})
    answer = await changer.send("POST", f"/api/approvals/{approval_id}/approve", {})
    refused(answer, "an approval of the user who raised the limit", 403)


@guarantee("approvers.named", "If a rule names approvers, other users cannot approve", "9.2.1")
async def require_named_approvers(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    await t.permit(agent, action)
    rule = {
        "name": t.prefix,
        "effect": "require_approval",
        "actions": [action],
        "approval": {"approvers": [t.second.email]},
    }
    await t.admin.post("/api/rules", rule)
    approval_id = await t.hold(agent, action, {"a": 1})
    for user in (t.approver, t.admin):
        answer = await user.send("POST", f"/api/approvals/{approval_id}/approve", {})
        refused(answer, "an approval of a user whom the rule does not name", 403)
    await t.must_not_allow(
        agent, action, {"a": 1}, what="a call that the user named in the rule did not approve"
    )
    await t.approve(approval_id, t.second)
    await t.must_allow(agent, action, {"a": 1})


@guarantee("approvers.viewer", "Viewers cannot approve or reject", "9.2.1", "5.2.1")
async def reject_viewers(t: Trial) -> None:
    agent, action = await t.held_agent()
    approval_id = await t.hold(agent, action, {"a": 1})
    for verb in ("approve", "reject"):
        answer = await t.viewer.send("POST", f"/api/approvals/{approval_id}/{verb}", {})
        refused(answer, f"{verb} as a viewer", 403)
    await t.must_not_allow(agent, action, {"a": 1}, what="a call that a viewer approved")


@guarantee("approvers.agent", "The credentials of an agent cannot approve", "9.2.9")
async def reject_agents(t: Trial) -> None:
    agent, action = await t.held_agent()
    key = (await t.admin.post(f"/api/agents/{agent.id}/keys"))["api_key"]
    approval_id = await t.hold(agent, action, {"a": 1})
    credentials = [
        {"X-API-Key": t.main.key},
        {"Authorization": f"Bearer {t.main.key}"},
        {"X-API-Key": key},
        {"Authorization": f"Bearer {key}"},
    ]
    for credential in credentials:
        answer = await t.api.send(Call("POST", f"/api/approvals/{approval_id}/approve", {}, credential))
        refused(answer, "an approval with an API key", 401)
    await t.must_not_allow(agent, action, {"a": 1}, what="a call that the agent approved itself")


@guarantee(
    "approvers.demoted", "An approval does not count after its approver lost the right to approve", "9.5.6"
)
async def ignore_demoted_approvers(t: Trial) -> None:
    agent, action = await t.held_agent()
    spare = t.take_spare()
    approval_id = await t.hold(agent, action, {"a": 1})
    await t.approve(approval_id, spare)
    await t.admin.put(f"/api/team/{spare.id}", {"role": "viewer"})
    await t.must_not_allow(agent, action, {"a": 1}, what="a call whose approver is a viewer now")


@guarantee(
    "approvers.tightened",
    "If a permission is changed to require two approvals, one earlier approval is not enough",
    "9.5.6",
)
async def apply_stricter_terms(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    permission = await t.permit(agent, action, requires_approval=True)
    approval_id = await t.approved(agent, action, {"a": 1})
    await t.admin.put(f"/api/permissions/{permission}", {"required_approvals": 2})
    await t.must_not_allow(
        agent, action, {"a": 1}, what="a call with one of two approvals that are required now"
    )
    await t.must_not_allow(
        agent,
        action,
        {"a": 1},
        approval_id=approval_id,
        what="a call with one of two approvals that are required now",
    )
