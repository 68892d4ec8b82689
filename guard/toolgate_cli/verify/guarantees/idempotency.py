"""Guarantees about requests that are sent again."""

from toolgate_cli.verify.client import Call
from toolgate_cli.verify.registry import guarantee, require
from toolgate_cli.verify.trial import Trial, count_allowed

_RETRIES = 16


@guarantee(
    "idempotency.check", "A repeated check with the same idempotency key gets the same decision", "9.2.8"
)
async def repeat_decisions(t: Trial) -> None:
    agent, action = await t.held_agent()
    await t.approved(agent, action, {"a": 1})
    call = t.check_call(agent, action, {"a": 1}, idempotency_key=f"{t.prefix}-1")
    decisions = await t.race([call] * _RETRIES)
    require(count_allowed(decisions) == _RETRIES, "a repeated check got another decision than the first one")
    require(len({one.id for one in decisions}) == 1, "a repeated check got another decision id")
    await t.must_not_allow(agent, action, {"a": 1}, what="a second call with another idempotency key")


@guarantee(
    "idempotency.check-body",
    "An idempotency key of an allowed check cannot be used for a different check",
    "9.2.8",
)
async def bind_keys_to_checks(t: Trial) -> None:
    agent, action = await t.held_agent()
    key = f"{t.prefix}-1"
    await t.approved(agent, action, {"a": 1})
    await t.must_allow(agent, action, {"a": 1}, idempotency_key=key)
    await t.must_not_allow(
        agent,
        action,
        {"a": 2},
        idempotency_key=key,
        what="a check with other arguments and a used idempotency key",
    )
    other = await t.agent()
    await t.permit(other, action, requires_approval=True)
    await t.must_not_allow(
        other,
        action,
        {"a": 1},
        idempotency_key=key,
        what="a check of another agent with a used idempotency key",
    )


@guarantee("idempotency.log", "A log entry that is sent several times is stored once", "12.1.2")
async def store_entries_once(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    body = {"agent_id": agent.id, "action": action, "status": "success", "context": {"a": 1}}
    headers = {"Idempotency-Key": f"{t.prefix}-log"}
    call = Call("POST", "/sdk/log", body, agent.credential, headers)
    answers = await t.api.together([call] * _RETRIES)
    require(all(answer.is_success for answer in answers), "a repeated log entry was refused")
    require(len({answer.json()["id"] for answer in answers}) == 1, "a repeated log entry got another id")
    found = await t.admin.get(f"/api/logs?agent_id={agent.id}")
    require(len(found) == 1, f"{len(found)} entries are stored for one entry that was sent {_RETRIES} times")


@guarantee("idempotency.budget", "A repeated check reserves its amount in a budget only once", "9.1.2")
async def reserve_once(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    await t.permit(agent, action)
    budget = {"name": t.prefix, "actions": [action], "window": "day", "limit": 2, "at_limit": "deny"}
    await t.admin.post("/api/budgets", budget)
    call = t.check_call(agent, action, idempotency_key=f"{t.prefix}-1")
    decisions = await t.race([call] * _RETRIES)
    require(count_allowed(decisions) == _RETRIES, "a repeated check was denied")
    await t.must_allow(agent, action)
    await t.must_not_allow(agent, action, what="a third call with a budget of two calls")


@guarantee("idempotency.scope", "The idempotency keys of two organizations do not affect each other", "5.3.1")
async def separate_keys(t: Trial) -> None:
    key = f"{t.prefix}-shared"
    for organization, owner in ((t.main, t.admin), (t.other, t.other.users[0])):
        agent = await t.agent(owner=owner, key=organization.key)
        body = {"agent_id": agent.id, "action": t.action(), "status": "success"}
        answer = await t.api.send(Call("POST", "/sdk/log", body, agent.credential, {"Idempotency-Key": key}))
        require(answer.is_success, f"a log entry was refused: {answer.text[:200]}")
        require(
            answer.json()["agent_id"] == agent.id,
            "the gateway returned the response to a request of another organization",
        )
