"""A denied call that has a name stays denied, however late it is checked again."""

from typing import Any

import pytest
from support.asking import Ask, Decide
from support.gateway import LiveGateway, Owner
from support.insight import execute

LONG_AGO = "2026-01-01T00:00:00.000000Z"


def blocked(reason: str) -> dict[str, Any]:
    return {"allowed": False, "requires_approval": False, "reason": reason, "approval_id": None}


def forget(gateway: LiveGateway, approval: str) -> None:
    """Let the denial memory of an approval request run out."""
    assert execute(gateway, "UPDATE approvals SET decided_at = ? WHERE id = ?", LONG_AGO, approval) == 1


def count(acme: Owner) -> int:
    return len(acme.http.get("/api/approvals").json())


@pytest.mark.parametrize("dry_run", [False, True])
def test_denied_call_reads_the_note_long_after(
    gateway: LiveGateway, acme: Owner, ask: Ask, decide: Decide, dry_run: bool
) -> None:
    approval = ask({"t": 1}, call_id="call-1", run_id="run-1")["approval_id"]
    decide(approval, "deny", note="not our customer")
    forget(gateway, approval)
    before = count(acme)
    denial = blocked("Denied by a person: not our customer")
    for named in (
        {"call_id": "call-1"},
        {"approval_id": approval},
        {"call_id": "call-1", "approval_id": approval},
    ):
        assert ask({"t": 1}, run_id="run-1", dry_run=dry_run, **named) == denial
    assert count(acme) == before


def test_denial_ends_for_calls_without_that_name(gateway: LiveGateway, ask: Ask, decide: Decide) -> None:
    approval = ask({"t": 1}, call_id="call-1", run_id="run-1")["approval_id"]
    decide(approval, "deny")
    # Within the denial memory another name is no way around the denial.
    assert ask({"t": 1}, call_id="call-2", run_id="run-1") == blocked("Denied by a person")
    forget(gateway, approval)
    for other in ({"call_id": "call-2", "run_id": "run-1"}, {"call_id": "call-1", "run_id": "run-2"}, {}):
        assert ask({"t": 1}, **other)["requires_approval"] is True
    assert ask({"t": 2}, call_id="call-1", run_id="run-1")["requires_approval"] is True


def test_unnamed_call_may_be_asked_again(gateway: LiveGateway, ask: Ask, decide: Decide) -> None:
    approval = ask({"t": 1})["approval_id"]
    decide(approval, "deny")
    forget(gateway, approval)
    again = ask({"t": 1})
    assert again["requires_approval"] is True
    assert again["approval_id"] != approval


def test_temporary_approval_does_not_let_a_denied_call_run(
    gateway: LiveGateway, ask: Ask, decide: Decide
) -> None:
    denied = ask({"t": 1}, call_id="call-1")["approval_id"]
    decide(denied, "deny", note="no")
    forget(gateway, denied)
    decide(ask({"t": 1}, call_id="call-2")["approval_id"], grant={"uses": 5, "seconds": 600})
    assert ask({"t": 1}, call_id="call-1") == blocked("Denied by a person: no")
    assert ask({"t": 1}, call_id="call-3")["allowed"] is True


@pytest.mark.parametrize("status", ["pending", "approved"])
def test_expired_call_is_asked_again_and_never_reads_as_denied(
    gateway: LiveGateway, ask: Ask, decide: Decide, status: str
) -> None:
    approval = ask({"t": 1}, call_id="call-1")["approval_id"]
    if status == "approved":
        decide(approval)
    assert execute(gateway, "UPDATE approvals SET expires_at = ? WHERE id = ?", LONG_AGO, approval) == 1
    named = ask({"t": 1}, call_id="call-1", approval_id=approval)
    assert named == blocked(f"Approval {approval!r} is expired; check again without approval_id")
    again = ask({"t": 1}, call_id="call-1")
    assert again["requires_approval"] is True
    assert again["approval_id"] not in {None, approval}


def test_withdrawn_call_is_asked_again(acme: Owner, ask: Ask) -> None:
    approval = ask({"t": 1}, call_id="call-1")["approval_id"]
    path = f"/sdk/approvals/{approval}/cancel"
    assert acme.http.post(path, headers={"X-API-Key": acme.key}).status_code == 200
    named = ask({"t": 1}, call_id="call-1", approval_id=approval)
    assert named == blocked(f"Approval {approval!r} is cancelled; check again without approval_id")
    assert ask({"t": 1}, call_id="call-1")["approval_id"] not in {None, approval}
