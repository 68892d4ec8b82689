"""What a guard asks besides the calls it guards: dry checks, and approvals by their id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from toolgate import ApprovalPending, ConfigurationError, GatewayProtocolError, Guard
from toolgate.embedded import EmbeddedGateway
from toolgate.testing import FakeGateway


@pytest.fixture(params=["fake", "embedded"])
def held(request: pytest.FixtureRequest) -> Iterator[tuple[Guard, FakeGateway | EmbeddedGateway]]:
    """A guard that must ask a person about mails, with whoever decides."""
    if request.param == "fake":
        fake = FakeGateway(require_approval=["mail.send"])
        yield fake.guard(), fake
        return
    with Guard.embedded(":memory:", agent="bot", require_approval=["mail.send"]) as guard:
        yield guard, guard.gateway


def ask(guard: Guard, to: str = "you") -> str:
    with pytest.raises(ApprovalPending) as pending, guard.action("mail.send", {"to": to}):
        pytest.fail("it is held")
    return pending.value.approval_id


def test_approval_and_cancel(held: tuple[Guard, Any]) -> None:
    """A request is looked at, withdrawn before and after it was approved, and withdrawing it again changes nothing."""
    guard, gateway = held
    first, second = ask(guard, "a"), ask(guard, "b")
    gateway.approve(second)
    assert [guard.approval(each).status for each in (first, second)] == ["pending", "approved"]
    assert guard.approval(first).context == {"to": "a"}
    assert [guard.cancel(each).status for each in (first, second)] == ["cancelled", "cancelled"]
    assert guard.cancel(first).status == "cancelled"
    # What was withdrawn lets nothing through: the same call asks anew.
    assert ask(guard, "b") not in {first, second}


async def test_approval_and_cancel_async(held: tuple[Guard, Any]) -> None:
    """As the synchronous test."""
    guard, gateway = held
    first, second = ask(guard, "a"), ask(guard, "b")
    gateway.approve(second)
    assert [(await guard.aapproval(each)).status for each in (first, second)] == ["pending", "approved"]
    assert [(await guard.acancel(each)).status for each in (first, second)] == ["cancelled", "cancelled"]
    assert (await guard.acancel(first)).status == "cancelled"


async def test_the_newest_of_an_edited_request(held: tuple[Guard, Any]) -> None:
    """Asked for the newest it is what an approver made of the request, by its own id; otherwise the request itself."""
    guard, gateway = held
    approval_id = ask(guard)
    gateway.approve(approval_id, context={"to": "her"})
    first = guard.approval(approval_id)
    assert (first.status, first.approval_id) == ("replaced", approval_id)
    for newest in (
        guard.approval(approval_id, newest=True),
        await guard.aapproval(approval_id, newest=True),
    ):
        assert (newest.status, newest.approval_id) == ("approved", first.replaced_by)


async def test_edits_without_end(guard: Guard, gateway: Any) -> None:
    """Requests that replace each other in a circle are no answer, and looking at them ends."""
    circle = [
        {"id": "a", "status": "replaced", "note": None, "replaced_by": "b"},
        {"id": "b", "status": "replaced", "note": None, "replaced_by": "a"},
    ]
    gateway.approval = [*circle, *circle]
    with pytest.raises(GatewayProtocolError, match="too long chain"):
        guard.approval("a", newest=True)
    with pytest.raises(GatewayProtocolError, match="too long chain"):
        await guard.aapproval("a", newest=True)


def test_a_reason_replaces_no_argument(guard: Guard, gateway: Any) -> None:
    """An argument that is called `reason` is evidence: why a call was refused stands beside it."""
    guard.record("a.b", "denied", {"reason": "damaged goods"}, reason="rejected by the clerk")
    (entry,) = gateway.logs
    assert entry["context"] == {"reason": "damaged goods", "reason_": "rejected by the clerk"}


async def test_what_was_used_stays_used(held: tuple[Guard, Any]) -> None:
    """A request that was carried out cannot be withdrawn any more, and says so."""
    guard, gateway = held
    approval_id = ask(guard)
    gateway.approve(approval_id)
    with guard.action("mail.send", {"to": "you"}):
        pass
    assert guard.cancel(approval_id).status == "consumed"
    assert (await guard.acancel(approval_id)).status == "consumed"


async def test_unknown_approvals(held: tuple[Guard, Any]) -> None:
    """An id that the gateway does not know, or that can be none, is the caller's mistake and says so."""
    guard, _ = held
    for wrong in ("nothing", "..", ""):
        with pytest.raises(ConfigurationError, match="approval"):
            guard.approval(wrong)
        with pytest.raises(ConfigurationError, match="approval"):
            guard.cancel(wrong)
        with pytest.raises(ConfigurationError, match="approval"):
            await guard.aapproval(wrong)
        with pytest.raises(ConfigurationError, match="approval"):
            await guard.acancel(wrong)


async def test_a_dry_check_changes_nothing(held: tuple[Guard, Any]) -> None:
    """A dry check makes no request and uses up no approval, for the named call as for any other."""
    guard, gateway = held
    assert guard.check("mail.send", {"to": "you"}, call_id="c1", dry_run=True).held
    assert (await guard.acheck("mail.send", {"to": "you"}, call_id="c1", dry_run=True)).held
    assert list(gateway.pending()) == []
    approval_id = guard.check("mail.send", {"to": "you"}, call_id="c1").approval_id
    gateway.approve(approval_id)
    assert guard.check("mail.send", {"to": "you"}, call_id="c1", dry_run=True).allowed
    assert guard.check("mail.send", {"to": "you"}, call_id="c2", dry_run=True).held
    assert guard.check("mail.send", {"to": "you"}, call_id="c1").allowed
    with pytest.raises(ConfigurationError, match="dry_run is 'yes'"):
        guard.check("mail.send", dry_run="yes")  # type: ignore[arg-type]  # a caller without types


def test_record_is_sent_behind_the_back(guard: Guard, gateway: Any) -> None:
    """What is recorded reaches the gateway when it is next up, and a named call's refusal is one entry."""
    gateway.log = [ConnectionError("down")]
    for _ in range(2):
        guard.record(
            "a.b", "denied", {"reason": "no", "token": "s3cr3t-value"}, approval_id="appr-1", call_id="c1"
        )
    guard.record("a.b", "success")
    guard.flush()
    assert guard.flush()
    first, second, third = gateway.taken
    assert first == second
    assert (first["call_id"], first["approval_id"], first["context"]["reason"]) == ("c1", "appr-1", "no")
    assert "s3cr3t" not in str(first)
    assert (third["status"], "call_id" in third) == ("success", False)
    with pytest.raises(ConfigurationError, match="status is 'done'"):
        guard.record("a.b", "done")  # type: ignore[arg-type]  # a caller without types
