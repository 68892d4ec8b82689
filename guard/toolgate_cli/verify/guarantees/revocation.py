"""Guarantees about revocations, which apply to the next check on every replica."""

from toolgate_cli.verify.client import Call
from toolgate_cli.verify.registry import guarantee, require
from toolgate_cli.verify.trial import Agent, Trial, refused


async def _warm(t: Trial, agent: Agent, action: str) -> None:
    """Let each replica allow the call, so that its caches contain the permission."""
    for _ in range(2):
        decisions = await t.check_everywhere(agent, action, {"amount": 1})
        require(all(one.allowed for one in decisions), "a permitted call was not allowed by every replica")


@guarantee("revocation.permission", "After a permission is deleted, the next check is denied", "9.5.6")
async def revoke_permissions(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    permission = await t.permit(agent, action)
    await _warm(t, agent, action)
    await t.admin.delete(f"/api/permissions/{permission}")
    await t.must_not_allow(agent, action, {"amount": 1}, what="a call whose permission was deleted")


@guarantee(
    "revocation.tightened",
    "After a permission is changed to require an approval, the next check needs one",
    "9.5.6",
)
async def require_approvals_at_once(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    permission = await t.permit(agent, action)
    await _warm(t, agent, action)
    await t.admin.put(f"/api/permissions/{permission}", {"requires_approval": True})
    await t.must_not_allow(agent, action, {"amount": 1}, what="a call that needs an approval now")


@guarantee(
    "revocation.limit",
    "After a limit is lowered, the next check of an amount above the new limit is denied",
    "9.5.6",
)
async def lower_limits_at_once(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    permission = await t.permit(agent, action, max_amount=10)
    await _warm(t, agent, action)
    await t.admin.put(f"/api/permissions/{permission}", {"max_amount": 0.5})
    await t.must_not_allow(agent, action, {"amount": 1}, what="a call above the lowered limit")


@guarantee("revocation.rule", "After a rule forbids an action, the next check is denied", "9.5.6")
async def forbid_at_once(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    await t.permit(agent, action)
    await _warm(t, agent, action)
    rule = await t.admin.post("/api/rules", {"name": t.prefix, "effect": "forbid", "actions": [action]})
    await t.must_not_allow(agent, action, {"amount": 1}, what="a call that a new rule forbids")
    await t.admin.put(f"/api/rules/{rule['id']}", {"enabled": False})
    await _warm(t, agent, action)


@guarantee(
    "revocation.agent", "After an agent is disabled or deleted, its next check is denied", "9.5.6", "9.6.1"
)
async def disable_agents(t: Trial) -> None:
    for deletes in (False, True):
        agent, action = await t.agent(), t.action()
        await t.permit(agent, action)
        await _warm(t, agent, action)
        if deletes:
            await t.admin.delete(f"/api/agents/{agent.id}")
        else:
            await t.admin.put(f"/api/agents/{agent.id}", {"status": "inactive"})
        what = f"a call of a {'deleted' if deletes else 'disabled'} agent"
        await t.must_not_allow(agent, action, {"amount": 1}, what=what)


@guarantee(
    "revocation.agent-key",
    "After an API key of an agent is deleted, the next check with the key is rejected",
    "9.4.1",
    "9.5.6",
)
async def revoke_agent_keys(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    await t.permit(agent, action)
    created = await t.admin.post(f"/api/agents/{agent.id}/keys")
    keyed = Agent(agent.id, created["api_key"])
    await _warm(t, keyed, action)
    await t.admin.delete(f"/api/agents/{agent.id}/keys/{created['id']}")
    for decision in await t.check_everywhere(keyed, action, {"amount": 1}):
        refused(decision.answer, "a check with a deleted API key", 401)


@guarantee(
    "revocation.organization-key",
    "After the API key of an organization is replaced, the next check with the old key is rejected",
    "9.4.1",
)
async def replace_organization_keys(t: Trial) -> None:
    owner = t.other.users[0]
    agent = await t.agent(owner=owner, key=t.other.key)
    await t.permit(agent, t.action(), owner=owner)
    await _warm(t, agent, t.action())
    former = t.other.key
    t.other.key = (await owner.post("/api/organization/regenerate-key"))["api_key"]
    for decision in await t.check_everywhere(Agent(agent.id, former), t.action(), {"amount": 1}):
        refused(decision.answer, "a check with a replaced API key", 401)
    await t.must_allow(Agent(agent.id, t.other.key), t.action())


@guarantee(
    "revocation.approved",
    "After a permission is deleted, requests that were approved before allow no calls",
    "9.5.6",
)
async def end_approvals_with_permissions(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    permission = await t.permit(agent, action, requires_approval=True)
    approval_id = await t.approved(agent, action, {"a": 1})
    await t.admin.delete(f"/api/permissions/{permission}")
    await t.permit(agent, action, requires_approval=True)
    await t.must_not_allow(agent, action, {"a": 1}, what="an approved call whose permission was deleted")
    await t.must_not_allow(
        agent, action, {"a": 1}, approval_id=approval_id, what="an approved call whose permission was deleted"
    )


@guarantee(
    "revocation.disabled-approval",
    "After an agent is disabled, its approved requests allow no calls, even if it is enabled again",
    "9.5.6",
)
async def end_approvals_with_agents(t: Trial) -> None:
    agent, action = await t.held_agent()
    await t.approved(agent, action, {"a": 1})
    await t.admin.put(f"/api/agents/{agent.id}", {"status": "inactive"})
    await t.admin.put(f"/api/agents/{agent.id}", {"status": "active"})
    await t.must_not_allow(
        agent, action, {"a": 1}, what="a call that was approved before the agent was disabled"
    )


@guarantee(
    "revocation.session",
    ("After a user logs out or is removed, the gateway rejects the user's session"),
    "9.5.6",
    "10.2.1",
)
async def end_sessions(t: Trial) -> None:
    leaver, removed = t.take_spare(), t.take_spare()
    for user in (leaver, removed):
        for place in range(len(t.api.urls)):
            require(
                (await user.send("GET", "/auth/me", replica=place)).is_success,
                "a replica rejects the valid session of a user",
            )
    await leaver.post("/auth/logout")
    await t.admin.delete(f"/api/team/{removed.id}")
    for user in (leaver, removed):
        for place in range(len(t.api.urls)):
            refused(
                await user.send("GET", "/auth/me", replica=place),
                "a request with the token of an ended session",
                401,
            )


@guarantee(
    "revocation.role",
    "After a user gets a lower role, the user loses the rights of the former role",
    "9.5.6",
)
async def lower_roles(t: Trial) -> None:
    spare = t.take_spare()
    agent, action = await t.held_agent()
    approval_id = await t.hold(agent, action, {"a": 1})
    await t.admin.put(f"/api/team/{spare.id}", {"role": "viewer"})
    for place in range(len(t.api.urls)):
        answer = await spare.send("POST", f"/api/approvals/{approval_id}/approve", {}, replica=place)
        refused(answer, "an approval of a user who is now a viewer", 401, 403)


@guarantee(
    "revocation.forged", "A session token with a wrong signature or without a signature is rejected", "10.2.2"
)
async def reject_forged_tokens(t: Trial) -> None:
    header, payload, signature = t.admin.token.split(".")
    other = t.viewer.token.split(".")
    unsigned = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0"  # {"alg":"none","typ":"JWT"}
    forged = [
        f"{header}.{payload}.{signature[::-1]}",
        f"{header}.{payload}.{other[2]}",
        f"{unsigned}.{payload}.",
        f"{header}.{other[1]}.{signature}",
        f"{header}.{payload}.",
    ]
    for token in forged:
        answer = await t.api.send(Call("GET", "/auth/me", None, {"Authorization": f"Bearer {token}"}))
        refused(answer, "a request with a forged session token", 401)
