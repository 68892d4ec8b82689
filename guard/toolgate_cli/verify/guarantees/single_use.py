"""Guarantees about the number of calls that an approval allows."""

from typing import Any

from toolgate_cli.verify.client import CALLERS
from toolgate_cli.verify.registry import guarantee, require
from toolgate_cli.verify.trial import Trial, count_allowed


@guarantee("single_use.repeated", "An approval allows one call", "9.2.8")
async def allow_one_call(t: Trial) -> None:
    agent, action = await t.held_agent()
    approval_id = await t.approved(agent, action, {"a": 1})
    await t.must_allow(agent, action, {"a": 1})
    await t.must_not_allow(agent, action, {"a": 1}, what="a second call")
    await t.must_not_allow(
        agent, action, {"a": 1}, approval_id=approval_id, what="a second call with the approval"
    )
    shown = await t.approver.get(f"/api/approvals/{approval_id}")
    require(shown["status"] == "consumed", f"a used approval has the status {shown['status']!r}")


@guarantee("single_use.parallel", f"An approval allows only one of {CALLERS} parallel calls", "9.2.8")
async def allow_one_of_many(t: Trial) -> None:
    agent, action = await t.held_agent()
    for number in range(3):
        context = {"number": number}
        approval_id = await t.approved(agent, action, context)
        named: dict[str, Any] = {"approval_id": approval_id} if number % 2 else {}
        calls = [
            t.check_call(agent, action, context, idempotency_key=f"{t.prefix}-{number}-{caller}", **named)
            for caller in range(CALLERS)
        ]
        allowed = count_allowed(await t.race(calls))
        require(allowed == 1, f"{allowed} of {CALLERS} parallel calls were allowed by one approval")


@guarantee(
    "single_use.call-id", "After a call is allowed, no other call with the same call id is allowed", "9.2.8"
)
async def allow_call_ids_once(t: Trial) -> None:
    agent, action = await t.held_agent()
    await t.approved(agent, action, {"a": 1}, call_id="call-1")
    await t.must_allow(agent, action, {"a": 1}, call_id="call-1")
    for context in ({"a": 1}, {"a": 2}):
        decision = await t.must_not_allow(
            agent, action, context, call_id="call-1", what="a second call with the same call id"
        )
        require(not decision.requires_approval, "a second call with the same call id can be approved")


@guarantee(
    "single_use.many", "If parallel calls use different approvals, each approval allows one call", "9.2.8"
)
async def use_one_approval_each(t: Trial) -> None:
    agent, action = await t.held_agent()
    contexts = [{"number": number} for number in range(4)]
    for context in contexts:
        await t.approved(agent, action, context)
    calls = [t.check_call(agent, action, context) for context in contexts for _ in range(CALLERS // 4)]
    decisions = await t.race(calls)
    for place in range(len(contexts)):
        part = decisions[place * CALLERS // 4 : (place + 1) * CALLERS // 4]
        require(count_allowed(part) == 1, f"{count_allowed(part)} calls were allowed by one approval")
