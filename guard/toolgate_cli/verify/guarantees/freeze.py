"""Guarantees about freezes, with the measured time until they take effect."""

import time
from typing import Any

from toolgate_cli.verify.client import Call
from toolgate_cli.verify.organizations import User
from toolgate_cli.verify.registry import guarantee, require
from toolgate_cli.verify.trial import Agent, Trial, refused

#: checks to each replica after a freeze
_ROUNDS = 5
#: maximum seconds until a freeze takes effect
_LONGEST = 5.0


async def _measure(t: Trial, frozen: Agent, called: str, owner: User, **fields: Any) -> str:
    """Create a freeze, require that no later check is allowed, and return the time to effect.

    The time is measured from the request of the freeze to the last allowed call, or to the response if there is none.
    """
    for decision in await t.check_everywhere(frozen, called):
        require(decision.allowed, f"a call before the freeze got the decision {decision.code!r}")
    began = time.monotonic()
    freeze = await owner.post("/api/freeze", {"reason": "toolgate verify", **fields})
    acknowledged = time.monotonic() - began
    last_allowed = 0.0
    for _ in range(_ROUNDS):
        for decision in await t.check_everywhere(frozen, called):
            if decision.allowed:
                last_allowed = time.monotonic() - began
            else:
                require(decision.code == "frozen", f"a frozen call got the decision {decision.code!r}")
    require(
        not last_allowed,
        f"a call was allowed {last_allowed:.3f} s after the freeze, which the gateway acknowledged after {acknowledged:.3f} s",
    )
    lifter = t.admin if owner in t.main.users else owner
    await lifter.post(f"/api/freeze/{freeze['id']}/lift")
    for decision in await t.check_everywhere(frozen, called):
        require(decision.allowed, f"a call after the freeze got the decision {decision.code!r}")
    replicas = len(t.api.urls)
    return f"{acknowledged:.3f} s until the freeze was in effect on {replicas} replica{'s' if replicas > 1 else ''}"


@guarantee(
    "freeze.agent",
    "After a freeze of an agent, every replica denies the agent's next check",
    "9.1.3",
    "9.6.1",
)
async def freeze_agents(t: Trial) -> str:
    agent, action = await t.agent(), t.action()
    await t.permit(agent, action)
    return await _measure(t, agent, action, t.approver, agent_id=agent.id)


@guarantee("freeze.action", "A freeze of an action pattern denies matching calls, and no others", "9.1.3")
async def freeze_actions(t: Trial) -> str:
    agent = await t.agent()
    for name in ("db.drop", "db.read", "web.read"):
        await t.permit(agent, t.action(name))
    found = await _measure(t, agent, t.action("db.drop"), t.admin, action=t.action("db.*"))
    freeze = await t.admin.post("/api/freeze", {"action": t.action("db.*"), "reason": "test"})
    await t.must_not_allow(
        agent, t.action("db.read"), what="a call of an action that the frozen pattern matches"
    )
    await t.must_allow(agent, t.action("web.read"))
    await t.admin.post(f"/api/freeze/{freeze['id']}/lift")
    return found


@guarantee(
    "freeze.organization",
    "A freeze of the organization denies all calls within five seconds, in both environments",
    "9.1.3",
    "9.6.1",
    exclusive=True,
)
async def freeze_organizations(t: Trial) -> str:
    owner = t.other.users[0]
    agent = await t.agent(owner=owner, key=t.other.key)
    await t.permit(agent, t.action(), owner=owner)
    tested = await t.agent(owner=owner, key=t.other.test_key, query="?environment=test")
    await t.permit(tested, t.action(), owner=owner, query="?environment=test")
    freeze = await owner.post("/api/freeze", {"reason": "test"})
    for one in (agent, tested):
        await t.must_not_allow(one, t.action(), what="a call of a frozen organization")
    await owner.post(f"/api/freeze/{freeze['id']}/lift")
    found = await _measure(t, agent, t.action(), owner)
    require(
        float(found.partition(" ")[0]) <= _LONGEST, f"the freeze needed more than {_LONGEST:.0f} s: {found}"
    )
    return found


@guarantee(
    "freeze.approved",
    ("A frozen agent cannot use its approvals, but can use them after the freeze is lifted"),
    "9.1.3",
)
async def freeze_approved_calls(t: Trial) -> None:
    agent, action = await t.held_agent()
    approval_id = await t.approved(agent, action, {"a": 1})
    freeze = await t.admin.post("/api/freeze", {"agent_id": agent.id, "reason": "test"})
    await t.must_not_allow(agent, action, {"a": 1}, what="an approved call of a frozen agent")
    await t.must_not_allow(
        agent, action, {"a": 1}, approval_id=approval_id, what="an approved call of a frozen agent"
    )
    await t.admin.post(f"/api/freeze/{freeze['id']}/lift")
    await t.must_allow(agent, action, {"a": 1})


@guarantee(
    "freeze.rights",
    "Members can create freezes, only admins can lift freezes, and API keys can do neither",
    "9.6.3",
)
async def restrict_freezes(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    await t.permit(agent, action)
    freeze = await t.approver.post("/api/freeze", {"agent_id": agent.id, "reason": "test"})
    lift = f"/api/freeze/{freeze['id']}/lift"
    refused(await t.approver.send("POST", lift), "lifting a freeze as a member", 403)
    for credential in (agent.credential, {"Authorization": f"Bearer {agent.key}"}):
        refused(
            await t.api.send(Call("POST", lift, None, credential)), "lifting a freeze with an API key", 401
        )
        body = {"reason": "test", "agent_id": agent.id}
        answer = await t.api.send(Call("POST", "/api/freeze", body, credential))
        refused(answer, "a freeze with an API key", 401)
    await t.must_not_allow(agent, action, what="a call of a frozen agent")
    await t.admin.post(lift)
    await t.must_allow(agent, action)
