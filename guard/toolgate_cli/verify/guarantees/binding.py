"""Guarantees about what an approval is bound to."""

from decimal import Decimal
from typing import Any

from toolgate_cli.verify.client import Call
from toolgate_cli.verify.registry import guarantee, require
from toolgate_cli.verify.trial import Trial, refused


@guarantee("binding.arguments", "An approval covers only the approved arguments", "9.2.8")
async def bind_arguments(t: Trial) -> None:
    agent, action = await t.held_agent()
    context = {"to": "alice", "amount": 10, "nested": {"list": [1, 2]}}
    approval_id = await t.approved(agent, action, context)
    others: list[dict[str, Any]] = [
        {**context, "amount": 11},
        {**context, "to": "mallory"},
        {**context, "extra": 1},
        {"to": "alice", "amount": 10},
        {**context, "nested": {"list": [2, 1]}},
        {},
    ]
    for other in others:
        await t.must_not_allow(agent, action, other, what=f"a call with other arguments {other!r}")
        decision = await t.must_not_allow(
            agent,
            action,
            other,
            approval_id=approval_id,
            what="a call with other arguments and the id of the approval",
        )
        require(
            decision.code == "approval_not_found",
            f"a call with other arguments got the decision {decision.code!r}",
        )
    await t.must_allow(agent, action, context)


@guarantee(
    "binding.types",
    "An approval does not cover arguments with another JSON type or a slightly different number",
    "9.2.8",
)
async def bind_types(t: Trial) -> None:
    agent, action = await t.held_agent()
    pairs: list[tuple[Any, Any]] = [
        (1, "1"),
        (True, 1),
        (False, None),
        (9007199254740992, 9007199254740993),
        (Decimal("0.1"), Decimal("0.10000000000000000001")),
        ("a", ["a"]),
        ({"a": None}, {}),
        ("é", "e\u0301"),
    ]
    for approved, other in pairs:
        await t.approved(agent, action, {"value": approved})
        await t.must_not_allow(
            agent,
            action,
            {"value": other},
            what=f"a call with the argument {other!r} instead of {approved!r}",
        )
        await t.must_allow(agent, action, {"value": approved})


@guarantee("binding.action", "An approval covers only the approved action", "9.2.8")
async def bind_action(t: Trial) -> None:
    agent = await t.agent()
    for name in ("refund", "payout"):
        await t.permit(agent, t.action(name), requires_approval=True)
    approval_id = await t.approved(agent, t.action("refund"), {"a": 1})
    await t.must_not_allow(agent, t.action("payout"), {"a": 1}, what="another action with the same arguments")
    await t.must_not_allow(
        agent,
        t.action("payout"),
        {"a": 1},
        approval_id=approval_id,
        what="another action with the id of the approval",
    )
    await t.must_allow(agent, t.action("refund"), {"a": 1})


@guarantee("binding.agent", "An approval covers only calls of the agent that requested it", "9.2.8")
async def bind_agent(t: Trial) -> None:
    agent, action = await t.held_agent()
    other = await t.agent()
    await t.permit(other, action, requires_approval=True)
    approval_id = await t.approved(agent, action, {"a": 1})
    await t.must_not_allow(other, action, {"a": 1}, what="the call of another agent")
    await t.must_not_allow(other, action, {"a": 1}, approval_id=approval_id, what="the call of another agent")
    key = (await t.admin.post(f"/api/agents/{other.id}/keys"))["api_key"]
    read = Call("GET", f"/sdk/approvals/{approval_id}", None, {"X-API-Key": key})
    refused(await t.api.send(read), "reading the approval request of another agent", 404)
    cancel = Call("POST", f"/sdk/approvals/{approval_id}/cancel", None, {"X-API-Key": key})
    refused(await t.api.send(cancel), "cancelling the approval request of another agent", 404)
    await t.must_allow(agent, action, {"a": 1})


@guarantee("binding.run", "An approval covers only calls of the run that requested it", "9.2.8")
async def bind_run(t: Trial) -> None:
    agent, action = await t.held_agent()
    approval_id = await t.approved(agent, action, {"a": 1}, run_id="run-1")
    for fields in ({"run_id": "run-2"}, {}, {"run_id": "run-2", "approval_id": approval_id}):
        await t.must_not_allow(agent, action, {"a": 1}, what="the call of another run", **fields)
    await t.must_allow(agent, action, {"a": 1}, run_id="run-1")


@guarantee(
    "binding.call", "An approval of a call with a call id covers only calls with the same call id", "9.2.8"
)
async def bind_call(t: Trial) -> None:
    agent, action = await t.held_agent()
    await t.approved(agent, action, {"a": 1}, call_id="call-1")
    for fields in ({"call_id": "call-2"}, {}):
        await t.must_not_allow(agent, action, {"a": 1}, what="a call with another call id", **fields)
    await t.must_allow(agent, action, {"a": 1}, call_id="call-1")


@guarantee(
    "binding.edited",
    "After an approver edited the arguments, only the edited call is allowed",
    "9.2.8",
    "9.2.2",
)
async def bind_edited_arguments(t: Trial) -> None:
    agent, action = await t.held_agent()
    original, edited = {"amount": 100}, {"amount": 10}
    approval_id = await t.hold(agent, action, original, call_id="call-1")
    successor = (await t.approve(approval_id, context=edited))["replaced_by"]
    await t.must_not_allow(agent, action, original, call_id="call-1", what="the call before the edit")
    await t.must_not_allow(
        agent,
        action,
        original,
        approval_id=successor,
        what="the call before the edit, with the id of the new request",
    )
    await t.must_not_allow(agent, action, edited, what="an equal call without the id of the edited request")
    await t.must_allow(agent, action, edited, call_id="call-1", approval_id=successor)


@guarantee("binding.edit-limits", "The limit of the permission applies to edited arguments", "9.5.6", "9.2.2")
async def limit_edits(t: Trial) -> None:
    agent, action = await t.held_agent(max_amount=100)
    approval_id = await t.hold(agent, action, {"amount": 50})
    for context in ({"amount": 101}, {"amount": "1"}):
        answer = await t.approver.send("POST", f"/api/approvals/{approval_id}/approve", {"context": context})
        refused(answer, f"an edit to {context!r} above the limit", 400)
    await t.must_not_allow(agent, action, {"amount": 101}, what="an edited call above the limit")


@guarantee(
    "binding.edit-rules",
    "After an approver edited a call, the gateway decides the edited call with the current rules",
    "9.5.6",
)
async def decide_edits_again(t: Trial) -> None:
    agent, action = await t.agent(), t.action()
    permission = await t.permit(agent, action, requires_approval=True, max_amount=100)
    approval_id = await t.hold(agent, action, {"amount": 50}, call_id="call-1")
    successor = (await t.approve(approval_id, context={"amount": 90}))["replaced_by"]
    await t.admin.put(f"/api/permissions/{permission}", {"max_amount": 60})
    await t.must_not_allow(
        agent,
        action,
        {"amount": 90},
        call_id="call-1",
        approval_id=successor,
        what="an edited call above the current limit",
    )
