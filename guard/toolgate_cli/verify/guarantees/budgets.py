"""Guarantees about budgets."""

import asyncio
from decimal import Decimal

from toolgate_cli.verify.client import CALLERS, Call
from toolgate_cli.verify.registry import guarantee, require
from toolgate_cli.verify.trial import Agent, Decision, Trial, count_allowed


async def _budget(t: Trial, limit: float | Decimal, **fields: object) -> str:
    """Create a budget for all actions of the test, and return its id."""
    body = {
        "name": t.prefix,
        "actions": [f"{t.prefix}.*"],
        "window": "day",
        "limit": limit,
        "at_limit": "deny",
        **fields,
    }
    created: dict[str, str] = await t.admin.post("/api/budgets", body)
    return created["id"]


async def _agent(t: Trial) -> tuple[Agent, str]:
    agent, action = await t.agent(), t.action()
    await t.permit(agent, action)
    return agent, action


@guarantee(
    "budgets.count",
    f"A budget of five calls allows exactly five of {CALLERS} parallel calls",
    "9.1.2",
    "9.1.1",
)
async def limit_calls(t: Trial) -> None:
    agent, action = await _agent(t)
    await _budget(t, 5)
    calls = [t.check_call(agent, action, idempotency_key=f"{t.prefix}-{caller}") for caller in range(CALLERS)]
    allowed = count_allowed(await t.race(calls))
    require(allowed == 5, f"{allowed} calls were allowed by a budget of 5 calls")


@guarantee(
    "budgets.sum", "A budget adds amounts exactly, and parallel calls cannot exceed the budget", "9.1.2"
)
async def limit_sums(t: Trial) -> None:
    agent, action = await _agent(t)
    budget = await _budget(t, 1, measure="sum(args.amount)")
    calls = [t.check_call(agent, action, {"amount": Decimal("0.1")}) for _ in range(CALLERS)]
    allowed = count_allowed(await t.race(calls))
    require(allowed == 10, f"{allowed} amounts of 0.1 were allowed by a budget of 1")
    await t.must_not_allow(agent, action, {"amount": Decimal("0.000001")}, what="an amount above the budget")
    usage = await t.admin.get(f"/api/budgets/{budget}/usage")
    require([one["reserved"] for one in usage] == [1], f"the budget shows the usage {usage!r}")


@guarantee("budgets.invalid", "A budget that limits amounts denies a call without a valid amount", "9.1.2")
async def require_amounts(t: Trial) -> None:
    agent, action = await _agent(t)
    await _budget(t, 100, measure="sum(args.amount)")
    await t.must_allow(agent, action, {"amount": 1})
    for context in ({}, {"amount": "1"}, {"amount": -1}, {"amount": None}, {"amount": True}):
        await t.must_not_allow(agent, action, context, what=f"the arguments {context!r}")


async def _log(t: Trial, agent: Agent, action: str, decision: Decision, status: str, amount: object) -> None:
    body = {
        "agent_id": agent.id,
        "action": action,
        "status": status,
        "context": {"amount": amount},
        "decision_id": decision.id,
    }
    answer = await t.api.send(Call("POST", "/sdk/log", body, agent.credential))
    require(answer.is_success, f"a log entry was refused: {answer.text[:200]}")


@guarantee(
    "budgets.settled",
    "The amount of a call stays used in a budget unless a log entry reports that the call failed",
    "9.1.2",
)
async def settle_amounts(t: Trial) -> None:
    agent, action = await _agent(t)
    await _budget(t, 10, measure="sum(args.amount)")
    done = await t.must_allow(agent, action, {"amount": 6})
    failed = await t.must_allow(agent, action, {"amount": 4})
    await t.must_not_allow(agent, action, {"amount": 1}, what="an amount above the budget")
    await _log(t, agent, action, done, "success", 6)
    await t.must_not_allow(
        agent, action, {"amount": 1}, what="a call above the budget after a successful call was logged"
    )
    await _log(t, agent, action, failed, "failed", 4)
    await _log(t, agent, action, failed, "failed", 4)
    await t.must_allow(agent, action, {"amount": 4})
    await t.must_not_allow(
        agent, action, {"amount": 1}, what="a call above the budget after a failed call was logged twice"
    )


@guarantee(
    "budgets.window",
    "A used-up budget with a rolling window allows calls again only after the window",
    "9.1.2",
)
async def respect_windows(t: Trial) -> None:
    agent, action = await _agent(t)
    await _budget(t, 1, window="rolling(3)")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await t.must_allow(agent, action)
    denied = await t.check(agent, action)
    if loop.time() - began < 3:
        require(not denied.allowed, "a second call within the window was allowed")

    async def is_allowed() -> bool:
        return (await t.check(agent, action)).allowed

    await t.wait_for(is_allowed, seconds=60, missing="no call is allowed after the window")
    # The window is measured by the gateway's clock: the first call was sent after `began`.
    require(loop.time() - began >= 2.9, "a second call was allowed before the window ended")


@guarantee("budgets.scope", "A budget per agent counts the calls of each agent separately", "9.1.2")
async def separate_agents(t: Trial) -> None:
    agent, action = await _agent(t)
    other = await t.agent()
    await t.permit(other, action)
    await _budget(t, 1, scope="agent")
    for one in (agent, other):
        await t.must_allow(one, action)
        await t.must_not_allow(one, action, what="a second call of an agent with a budget of one call")


@guarantee("budgets.approval", "A budget can require an approval for calls above its limit", "9.1.2", "9.2.1")
async def hold_calls_above(t: Trial) -> None:
    agent, action = await _agent(t)
    await _budget(t, 1, at_limit="require_approval")
    await t.must_allow(agent, action, {"a": 1})
    approval_id = await t.hold(agent, action, {"a": 2})
    await t.approve(approval_id)
    await t.must_allow(agent, action, {"a": 2})
    await t.must_not_allow(agent, action, {"a": 3}, what="a further call above the limit without an approval")


@guarantee("budgets.approved", "An approved call is denied if a budget does not cover it", "9.1.2")
async def deny_approved_calls(t: Trial) -> None:
    agent, action = await t.held_agent()
    await _budget(t, 1)
    for number in (1, 2):
        await t.approved(agent, action, {"number": number})
    await t.must_allow(agent, action, {"number": 1})
    await t.must_not_allow(agent, action, {"number": 2}, what="an approved call above the budget")


@guarantee("budgets.dry-run", "A dry run does not use a budget", "9.1.2")
async def keep_budgets_in_dry_runs(t: Trial) -> None:
    agent, action = await _agent(t)
    await _budget(t, 1)
    for _ in range(2):
        await t.must_allow(agent, action, dry_run=True)
    await t.must_allow(agent, action)
    await t.must_not_allow(agent, action, dry_run=True, what="a dry run above the budget")
