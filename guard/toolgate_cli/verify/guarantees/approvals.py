"""Guarantees about approval requests: what they show, and how they end."""

import asyncio
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from toolgate_cli.verify.client import CALLERS, Call
from toolgate_cli.verify.registry import NotTested, guarantee, require
from toolgate_cli.verify.trial import Trial, refused

#: maximum seconds that a test waits for the expiry of an approved request
_LONGEST_USE = 30


@guarantee("approvals.held", "A call that needs an approval is not allowed before the approval", "9.2.1")
async def hold_calls(t: Trial) -> None:
    agent, action = await t.held_agent()
    approval_id = await t.hold(agent, action, {"a": 1})
    decision = await t.must_not_allow(agent, action, {"a": 1}, what="a pending call")
    require(decision.approval_id == approval_id, "a repeated check got another approval request")
    await t.must_not_allow(agent, action, {"a": 1}, approval_id=approval_id, what="a pending call")
    await t.approve(approval_id)
    await t.must_allow(agent, action, {"a": 1})


@guarantee("approvals.complete", "Approvers see all arguments of a call, unchanged", "9.2.2")
async def show_complete_arguments(t: Trial) -> None:
    agent, action = await t.held_agent()
    context: dict[str, Any] = {
        "to": "Zoë <zoe@example.com>\u202e\u200b",
        "amount": Decimal("12345678901234567890.123456789"),
        "count": 9007199254740993,
        "text": "x" * 20_000,
        "nested": {"list": [1, True, None, "", {"deep": [[]]}], "": "empty name"},
    }
    approval_id = await t.hold(agent, action, context)
    for place in range(len(t.api.urls)):
        answer = await t.approver.send("GET", f"/api/approvals/{approval_id}", replica=place)
        require(answer.is_success, f"the approver cannot read the request: status {answer.status}")
        shown = json.loads(answer.body, parse_float=Decimal)
        require(shown["context"] == context, "the arguments that approvers see differ from those of the call")
        require(
            shown["action"] == action and shown["agent_id"] == agent.id,
            "the approver sees another action or agent than the call has",
        )


@guarantee("approvals.rejected", "A rejected call stays denied, also with a new call id", "9.2.1")
async def deny_rejected_calls(t: Trial) -> None:
    agent, action = await t.held_agent()
    approval_id = await t.hold(agent, action, {"a": 1}, call_id="one")
    await t.approver.post(f"/api/approvals/{approval_id}/reject", {"note": "not today"})
    for fields in ({"call_id": "one"}, {"call_id": "two"}, {"call_id": "one", "approval_id": approval_id}):
        decision = await t.must_not_allow(agent, action, {"a": 1}, what="a rejected call", **fields)
        require(
            not decision.requires_approval,
            "a rejected call requires an approval again instead of being denied",
        )
        require(
            "not today" in decision.reason,
            "the agent does not receive the approver's reason for the rejection",
        )
    answer = await t.second.send("POST", f"/api/approvals/{approval_id}/approve", {})
    refused(answer, "an approval of a rejected request", 409)


@guarantee(
    "approvals.expiry", "A request that is not decided in time expires, and cannot be approved later", "9.6.2"
)
async def expire_requests(t: Trial) -> None:
    agent, action = await t.held_agent(approval_ttl_seconds=1)
    approval_id = await t.hold(agent, action, {"a": 1})

    async def has_expired() -> bool:
        found = await t.approver.get(f"/api/approvals/{approval_id}")
        return bool(found["status"] == "expired")

    shown = await t.approver.get(f"/api/approvals/{approval_id}")
    span = datetime.fromisoformat(shown["expires_at"]) - datetime.fromisoformat(shown["created_at"])
    require(span.total_seconds() == 1, f"the request expires after {span.total_seconds()} s instead of 1 s")
    await asyncio.sleep(1)
    answer = await t.approver.send("POST", f"/api/approvals/{approval_id}/approve", {})
    refused(answer, "an approval of an expired request", 409)
    await t.must_not_allow(
        agent, action, {"a": 1}, approval_id=approval_id, what="a call with an expired approval request"
    )
    await t.wait_for(has_expired, seconds=60, missing="the request is not shown as expired")


@guarantee("approvals.use-expiry", "An approval that no call uses in time expires", "9.6.2", "9.2.8")
async def expire_approvals(t: Trial) -> str:
    agent, action = await t.held_agent()
    approval_id = await t.hold(agent, action, {"a": 1})
    approved = await t.approve(approval_id)
    ends, decided = (datetime.fromisoformat(approved[name]) for name in ("expires_at", "decided_at"))
    seconds = (ends - decided).total_seconds()
    require(seconds > 0 and ends > datetime.now(UTC).replace(year=1971), "an approval has no expiry time")
    if seconds > _LONGEST_USE:
        raise NotTested(
            f"approvals are valid for {seconds:.0f} s; set TOOLGATE_APPROVAL_USE_TTL_SECONDS to at most {_LONGEST_USE} "
            "in a staging deployment to test their expiry"
        )
    await asyncio.sleep(seconds)
    await t.must_not_allow(
        agent, action, {"a": 1}, approval_id=approval_id, what="a call with an expired approval"
    )
    await t.must_not_allow(agent, action, {"a": 1}, what="a call with an expired approval")
    return f"{seconds:.0f} s"


@guarantee("approvals.cancelled", "A cancelled request can neither be approved nor used", "9.2.1")
async def end_cancelled_requests(t: Trial) -> None:
    agent, action = await t.held_agent()
    approved = await t.approved(agent, action, {"a": 1})
    cancel = Call("POST", f"/sdk/approvals/{approved}/cancel", None, agent.credential)
    require((await t.api.send(cancel)).is_success, "an agent cannot cancel its approval request")
    await t.must_not_allow(agent, action, {"a": 1}, approval_id=approved, what="a cancelled call")
    answer = await t.approver.send("POST", f"/api/approvals/{approved}/approve", {})
    refused(answer, "an approval of a cancelled request", 409)


@guarantee("approvals.one-request", "Parallel checks of one call share one approval request", "9.2.1")
async def share_one_request(t: Trial) -> None:
    agent, action = await t.held_agent()
    decisions = await t.race([t.check_call(agent, action, {"a": 1}) for _ in range(CALLERS)])
    found = {one.approval_id for one in decisions}
    require(
        len(found) == 1 and None not in found, f"{CALLERS} parallel checks got {len(found)} approval requests"
    )


@guarantee(
    "approvals.one-decision",
    "If several users decide a request at the same time, exactly one decision takes effect",
    "9.2.1",
)
async def decide_once(t: Trial) -> None:
    agent, action = await t.held_agent()
    for number in range(4):
        approval_id = await t.hold(agent, action, {"number": number})
        calls = [
            Call("POST", f"/api/approvals/{approval_id}/{verb}", {}, user.credential)
            for user in (t.approver, t.second)
            for verb in ("approve", "reject")
        ]
        answers = await t.api.together(calls)
        accepted = sum(answer.is_success for answer in answers)
        require(accepted == 1, f"{accepted} of 4 parallel decisions about a request were accepted")


@guarantee("approvals.dry-run", "A dry run consumes no approval and creates no approval request", "9.2.8")
async def keep_approvals_in_dry_runs(t: Trial) -> None:
    agent, action = await t.held_agent()
    decision = await t.check(agent, action, {"a": 1}, dry_run=True)
    require(not decision.allowed and decision.approval_id is None, "a dry run created an approval request")
    approval_id = await t.approved(agent, action, {"a": 1})
    await t.must_allow(agent, action, {"a": 1}, dry_run=True)
    shown = await t.approver.get(f"/api/approvals/{approval_id}")
    require(shown["status"] == "approved", "a dry run used the approval")
    await t.must_allow(agent, action, {"a": 1})
