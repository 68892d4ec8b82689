"""The SDK against a live gateway in another process: every outcome, synchronous and asynchronous."""

import asyncio
import threading
from typing import Any

import pytest
from support.gateway import Owner
from support.insight import execute
from support.waiting import until

from toolgate import ActionDenied, ApprovalDenied, ApprovalExpired, ApprovalPending, Guard


def statuses(owner: Owner, **filters: str) -> list[str]:
    return [entry["status"] for entry in reversed(owner.entries(**filters))]


class Refunds:
    """A tool that counts what it really did, with an asynchronous twin."""

    def __init__(self, guard: Guard, **options: Any) -> None:
        self.done: list[tuple[str, float]] = []

        @guard.guarded("stripe.refund", **options)
        def refund(charge_id: str, amount: float = 1.0) -> str:
            self.done.append((charge_id, amount))
            return f"refunded {charge_id}"

        @guard.guarded("stripe.refund", **options)
        async def arefund(charge_id: str, amount: float = 1.0) -> str:
            await asyncio.sleep(0)
            self.done.append((charge_id, amount))
            return f"refunded {charge_id}"

        self._twins = {"sync": refund, "async": arefund}

    def call(self, kind: str, *args: Any, **kwargs: Any) -> Any:
        answer: Any = self._twins[kind](*args, **kwargs)
        return asyncio.run(answer) if kind == "async" else answer


both = pytest.mark.parametrize("kind", ["sync", "async"])


@both
def test_an_allowed_call_runs_once_and_is_recorded_with_its_arguments(kind, guard, owner, agent_id):
    """An allowed call returns the tool's value; the record has the bound arguments, defaults included."""
    owner.permit(agent_id, "stripe.refund", max_amount=100)
    refunds = Refunds(guard)
    assert refunds.call(kind, "ch_1") == "refunded ch_1"
    assert refunds.done == [("ch_1", 1.0)]
    (entry,) = owner.entries()
    assert (entry["action"], entry["status"], entry["agent_id"]) == ("stripe.refund", "success", agent_id)
    assert entry["context"]["charge_id"] == "ch_1"
    assert entry["context"]["amount"] == 1


@both
def test_a_blocked_call_does_not_run_and_is_recorded_as_denied(kind, guard, owner, agent_id):
    """An amount above the maximum is refused with the gateway's reason, and the tool stays untouched."""
    owner.permit(agent_id, "stripe.refund", max_amount=100)
    refunds = Refunds(guard)
    with pytest.raises(ActionDenied) as denied:
        refunds.call(kind, "ch_1", amount=100.01)
    assert (denied.value.action, denied.value.agent_id) == ("stripe.refund", agent_id)
    assert "100.01" in denied.value.reason
    assert refunds.done == []
    assert statuses(owner) == ["denied"]


@both
def test_a_held_call_runs_once_after_it_was_approved(kind, guard, owner, agent_id):
    """Held raises with the approval's id; after a person approved, the same call runs exactly once."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    refunds = Refunds(guard)
    with pytest.raises(ApprovalPending) as pending:
        refunds.call(kind, "ch_1", 5.0)
    with owner.login() as person:
        assert person.post(f"/api/approvals/{pending.value.approval_id}/approve").status_code == 200
    with pytest.raises(ApprovalPending):
        refunds.call(kind, "ch_1", 6.0)
    assert refunds.call(kind, "ch_1", 5.0) == "refunded ch_1"
    with pytest.raises(ApprovalPending) as anew:
        refunds.call(kind, "ch_1", 5.0)
    assert anew.value.approval_id != pending.value.approval_id
    assert refunds.done == [("ch_1", 5.0)]
    assert statuses(owner) == ["pending", "pending", "success", "pending"]


def decide(owner: Owner, verdict: str, note: str) -> threading.Thread:
    """Decide about the next pending approval as soon as there is one, in a thread."""

    def work() -> None:
        with owner.login() as person:
            pending = until(lambda: person.get("/api/approvals", params={"status": "pending"}).json())
            answer = person.post(f"/api/approvals/{pending[0]['id']}/{verdict}", json={"note": note})
            assert answer.status_code == 200, answer.text

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@both
def test_a_waiting_call_goes_on_when_a_person_approves(kind, guard, owner, agent_id):
    """With on_hold="wait" the call waits for the decision and then runs."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    refunds = Refunds(guard, on_hold="wait", hold_timeout=60)
    person = decide(owner, "approve", "fine")
    assert refunds.call(kind, "ch_1", 5.0) == "refunded ch_1"
    person.join()
    assert refunds.done == [("ch_1", 5.0)]
    assert statuses(owner) == ["pending", "success"]
    assert owner.http.get("/api/approvals").json()[0]["status"] == "consumed"


@both
def test_a_waiting_call_ends_when_a_person_declines(kind, guard, owner, agent_id):
    """A person's no raises ApprovalDenied with the note, and the tool does not run."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    refunds = Refunds(guard, on_hold="wait", hold_timeout=60)
    person = decide(owner, "deny", "not this customer")
    with pytest.raises(ApprovalDenied, match="not this customer"):
        refunds.call(kind, "ch_1", 5.0)
    person.join()
    assert refunds.done == []
    assert statuses(owner) == ["pending", "denied"]


@both
def test_a_waiting_call_that_nobody_decides_stays_pending(kind, guard, owner, agent_id):
    """When the time to wait is over the request still stands: that is pending, and nobody's no."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    refunds = Refunds(guard, on_hold="wait", hold_timeout=1)
    with pytest.raises(ApprovalPending) as pending:
        refunds.call(kind, "ch_1", 5.0)
    assert refunds.done == []
    approval = owner.http.get(f"/api/approvals/{pending.value.approval_id}").json()
    assert approval["status"] == "pending"


@both
def test_a_failing_tool_is_recorded_and_its_exception_goes_on(kind, guard, owner, agent_id):
    """The very same exception reaches the caller; the record has its type and message."""
    owner.permit(agent_id, "tool.fail")
    error = LookupError("no such charge: ch_9")

    @guard.guarded("tool.fail")
    def fail() -> None:
        raise error

    @guard.guarded("tool.fail")
    async def afail() -> None:
        raise error

    with pytest.raises(LookupError) as raised:
        asyncio.run(afail()) if kind == "async" else fail()
    assert raised.value is error
    (entry,) = owner.entries()
    assert entry["status"] == "failed"
    assert entry["context"]["error"] == {"type": "LookupError", "message": "no such charge: ch_9"}


@both
def test_an_action_block_adds_to_its_record(kind, guard, owner, agent_id):
    """What the block puts into act.context reaches the log entry, beside the context that was checked."""
    owner.permit(agent_id, "db.drop")

    async def drop() -> None:
        async with guard.action("db.drop", context={"table": "users"}) as act:
            act.context["rows"] = 12

    if kind == "async":
        asyncio.run(drop())
    else:
        with guard.action("db.drop", context={"table": "users"}) as act:
            act.context["rows"] = 12
    (entry,) = owner.entries()
    assert (entry["status"], entry["context"]["table"], entry["context"]["rows"]) == ("success", "users", 12)


def test_two_equal_calls_that_wait_need_two_approvals(guard, owner, agent_id):
    """One approval lets one of them run; the other is held anew, and runs after its own."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    refunds = Refunds(guard, on_hold="wait", hold_timeout=60)
    calls = [threading.Thread(target=refunds.call, args=("sync", "ch_1", 5.0)) for _ in range(2)]
    for call in calls:
        call.start()
    until(lambda: statuses(owner) == ["pending", "pending"])
    decide(owner, "approve", "the first").join()
    until(lambda: sorted(statuses(owner)) == ["pending", "pending", "pending", "success"])
    assert refunds.done == [("ch_1", 5.0)]
    decide(owner, "approve", "the second").join()
    for call in calls:
        call.join()
    assert refunds.done == [("ch_1", 5.0)] * 2


def test_secrets_never_reach_the_gateway(guard, owner, agent_id):
    """A password is bound by a keyed digest: it is on no page of the record, and another password is another call."""
    owner.permit(agent_id, "vault.open", requires_approval=True)

    @guard.guarded("vault.open")
    def open_vault(name: str, password: str) -> str:
        return name

    with pytest.raises(ApprovalPending) as first:
        open_vault("main", "hunter2-and-more")
    with pytest.raises(ApprovalPending) as second:
        open_vault("main", "another password")
    assert first.value.approval_id != second.value.approval_id
    assert guard.flush()
    seen = owner.http.get("/api/approvals").text + owner.http.get("/api/logs").text
    assert "hunter2" not in seen
    assert seen.count('"$digest":"hmac-sha256:') == 4


def test_an_expired_request_is_no_persons_no(guard, owner, agent_id, live_gateway):
    """When a request runs out while a call waits, the call raises ApprovalExpired, which is not a denial."""
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    refunds = Refunds(guard, on_hold="wait", hold_timeout=60)

    def run_out() -> None:
        until(lambda: owner.http.get("/api/approvals", params={"status": "pending"}).json())
        execute(live_gateway, "UPDATE approvals SET expires_at = created_at WHERE agent_id = ?", agent_id)

    thread = threading.Thread(target=run_out)
    thread.start()
    with pytest.raises(ApprovalExpired) as expired:
        refunds.call("sync", "ch_1", 5.0)
    thread.join()
    assert not isinstance(expired.value, ActionDenied)
    assert refunds.done == []
