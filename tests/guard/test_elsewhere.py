"""Calls whose tools another process runs: permitted here, recorded by a word of their own."""

from typing import Any

import pytest

from toolgate import ActionDenied, ApprovalPending, ConfigurationError, Guard, tool_call
from toolgate.testing import FakeGateway


def test_what_is_permitted_leaves_no_entry() -> None:
    """An allowed call is handed over with what was asked, and the log waits for whoever runs it."""
    fake = FakeGateway(allow=["db.drop"])
    guard = fake.guard()
    permitted = guard.action("db.drop", {"table": "users", "password": "hunter22"}, edits=True).authorize()
    assert permitted.context == {"table": "users", "password": "hunter22"}
    assert "hunter22" not in str(permitted.asked)
    assert (permitted.decision_id is not None, permitted.approval_id) == (True, None)
    assert guard.flush(5)
    assert fake.entries == []


def test_what_is_refused_is_recorded_and_raised() -> None:
    """Blocked and held calls are as with a block: one entry each, and an error in place of a permission."""
    fake = FakeGateway(require_approval=["db.drop"])
    guard = fake.guard()
    with pytest.raises(ActionDenied):
        guard.action("db.read", {}).authorize()
    with pytest.raises(ApprovalPending) as pending:
        guard.action("db.drop", {"table": "users"}).authorize()
    fake.approve(pending.value.approval_id)
    with guard.resume(pending.value.approval_id):
        permitted = guard.action("db.drop", {"table": "users"}).authorize()
    assert permitted.approval_id == pending.value.approval_id
    assert guard.flush(5)
    assert sorted(each.status for each in fake.entries) == ["denied", "pending"]


def test_an_edit_is_permitted_as_it_was_made() -> None:
    """What the approver changed is in the context, once the edited request lets the call through."""
    fake = FakeGateway(require_approval=["db.drop"])
    guard = fake.guard()

    def change(pending: ApprovalPending) -> Any:
        fake.approve(pending.approval_id, context={"table": "old_users"})
        return "wait"

    permitted = guard.action("db.drop", {"table": "users"}, on_hold=change, edits=True).authorize()
    assert permitted.context == {"table": "old_users"}


def test_a_permission_is_asked_for_once_and_never_fails_open() -> None:
    """A block serves one call, and one that may run unasked cannot be recorded elsewhere as what it was."""
    guard = FakeGateway(allow=["db.drop"]).guard()
    block = guard.action("db.drop", {})
    block.authorize()
    with pytest.raises(ConfigurationError, match="has already been used"):
        block.authorize()
    with pytest.raises(ConfigurationError, match="with fail_open=True"):
        guard.action("db.drop", {}, fail_open=True).authorize()


async def test_a_coroutine_is_permitted_as_a_function_is() -> None:
    """Handed over with what was asked, edited as the approver did, refused with the same errors, and once."""
    fake = FakeGateway(allow=["db.read"], require_approval=["db.drop"])
    guard = fake.guard()

    async def change(pending: ApprovalPending) -> Any:
        fake.approve(pending.approval_id, context={"table": "old_users"})
        return "wait"

    block = guard.action("db.read", {"table": "users"})
    assert (await block.aauthorize()).context == {"table": "users"}
    with pytest.raises(ConfigurationError, match="has already been used"):
        await block.aauthorize()
    with pytest.raises(ActionDenied):
        await guard.action("db.write", {}).aauthorize()
    with pytest.raises(ConfigurationError, match="with fail_open=True"):
        await guard.action("db.read", {}, fail_open=True).aauthorize()
    held = guard.action("db.drop", {"table": "users"}, on_hold=change, edits=True)
    assert (await held.aauthorize()).context == {"table": "old_users"}
    assert await guard.aflush(5)
    assert "success" not in [each.status for each in fake.entries]


def test_what_became_of_it_is_recorded_with_what_hides(guard: Guard, gateway: Any) -> None:
    """The outcome stands beside the details, and an error's message is told without what is hidden in them."""
    details = {"table": "users", "password": "hunter22", "duration_ms": "long"}
    with tool_call(None, run_id="run-1"):
        guard.record(
            "db.drop",
            "failed",
            details,
            call_id="call-1",
            decision_id="decision-1",
            error=OSError("hunter22 does not work"),
            facts={"duration_ms": 7},
        )
    assert guard.flush(5)
    (entry,) = gateway.logs
    assert (entry["run_id"], entry["call_id"], entry["decision_id"]) == ("run-1", "call-1", "decision-1")
    assert (entry["context"]["duration_ms"], entry["context"]["duration_ms_"]) == ("long", 7)
    assert entry["context"]["error"]["type"] == "OSError"
    assert "hunter22" not in str(entry)
