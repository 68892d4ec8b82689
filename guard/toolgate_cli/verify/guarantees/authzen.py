"""Guarantees about the AuthZEN API, which decides as a check does, and about advisory keys."""

from collections.abc import Mapping
from typing import Any

from toolgate_cli.verify.client import CALLERS, Answer, Call
from toolgate_cli.verify.organizations import expect
from toolgate_cli.verify.registry import NotTested, guarantee, require
from toolgate_cli.verify.trial import Agent, Trial

_PATH = "/access/v1/evaluation"


def _evaluation(agent: Agent, action: str, properties: Mapping[str, Any]) -> Call:
    body = {
        "subject": {"type": "agent", "id": agent.id},
        "action": {"name": "call", "properties": dict(properties)},
        "resource": {"type": "tool", "id": action},
    }
    return Call("POST", _PATH, body, {"Authorization": f"Bearer {agent.key}"})


def _is_permitted(answer: Answer) -> bool:
    if answer.status == 404:
        raise NotTested("the gateway has no AuthZEN API")
    decision = expect(answer, _PATH)["decision"]
    require(
        isinstance(decision, bool), f"the decision in the response is {decision!r} instead of true or false"
    )
    return bool(decision)


async def _evaluate(t: Trial, agent: Agent, action: str, **properties: Any) -> bool:
    return _is_permitted(await t.api.send(_evaluation(agent, action, properties)))


@guarantee(
    "authzen.decision", "An AuthZEN evaluation denies every call that a check denies", "9.5.1", "9.5.3"
)
async def decide_equally(t: Trial) -> None:
    agent, other = await t.agent(), await t.agent()
    await t.permit(agent, t.action(), max_amount=10)
    require(await _evaluate(t, agent, t.action(), amount=10), "an evaluation of a permitted call was denied")
    require(
        not await _evaluate(t, agent, t.action(), amount=11),
        "a call with an amount above the limit was permitted",
    )
    require(not await _evaluate(t, agent, t.action("other")), "an action without a permission was permitted")
    require(
        not await _evaluate(t, other, t.action()), "a call of an agent without a permission was permitted"
    )
    foreign = Agent(agent.id, t.other.key)
    require(
        not await _evaluate(t, foreign, t.action()),
        "an evaluation with the API key of another organization was permitted",
    )
    freeze = await t.admin.post("/api/freeze", {"agent_id": agent.id, "reason": "test"})
    require(not await _evaluate(t, agent, t.action(), amount=1), "a call of a frozen agent was permitted")
    await t.admin.post(f"/api/freeze/{freeze['id']}/lift")


@guarantee(
    "authzen.single-use", f"An approval permits only one of {CALLERS} parallel AuthZEN evaluations", "9.2.8"
)
async def permit_once(t: Trial) -> None:
    agent, action = await t.held_agent()
    require(not await _evaluate(t, agent, action, a=1), "an evaluation was permitted before the approval")
    [pending] = await t.approver.get(f"/api/approvals?agent_id={agent.id}&status=pending")
    await t.approve(pending["id"])
    require(not await _evaluate(t, agent, action, a=2), "an evaluation with other arguments was permitted")
    await t.must_not_allow(agent, action, {"a": 1}, what="a check with other arguments")
    answers = await t.api.together([_evaluation(agent, action, {"a": 1}) for _ in range(CALLERS)])
    permitted = sum(map(_is_permitted, answers))
    require(permitted == 1, f"{permitted} of {CALLERS} parallel evaluations were permitted by one approval")


@guarantee(
    "authzen.advisory",
    "An advisory API key cannot use approvals, create approval requests or write log entries",
    "9.2.8",
    "9.4.1",
)
async def use_nothing(t: Trial) -> None:
    agent, action = await t.held_agent()
    created = await t.admin.send("POST", f"/api/agents/{agent.id}/keys", {"advisory": True})
    key = expect(created, "/api/agents/{id}/keys")
    if not key.get("advisory"):
        raise NotTested("the gateway has no advisory keys")
    advisory = Agent(agent.id, key["api_key"])
    approval_id = await t.approved(agent, action, {"a": 1})
    await t.must_allow(advisory, action, {"a": 1}, dry_run=True)
    real = await t.check(advisory, action, {"a": 1})
    require(
        not (real.allowed and real.answer.is_success),
        "a check with an advisory key was allowed, although it was not a dry run",
    )
    await _evaluate(t, advisory, action, a=1)
    found = await t.approver.get(f"/api/approvals?agent_id={agent.id}")
    require([one["id"] for one in found] == [approval_id], "an advisory key created an approval request")
    require(found[0]["status"] == "approved", "an advisory key used an approval")
    entry = {"agent_id": agent.id, "action": action, "status": "success"}
    logged = await t.api.send(Call("POST", "/sdk/log", entry, advisory.credential))
    require(not logged.is_success, "an advisory key wrote a log entry")
    await t.must_allow(agent, action, {"a": 1})
