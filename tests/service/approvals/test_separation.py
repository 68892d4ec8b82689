"""Separation of duties, and the approver's right when the approval is used (decisions §5)."""

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.insight import execute, move_into, set_role
from support.shapes import complaints

ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}


@dataclass(frozen=True)
class Two:
    """An organization's two admins, and an agent that the first created."""

    first: Owner
    second: Owner
    agent: str

    def permit(self, by: Owner, **fields: object) -> str:
        """Grant `db.drop`, which requires approval, as one of the two."""
        return by.permit(self.agent, "db.drop", requires_approval=True, **fields)

    def ask(self) -> str:
        """Return the id of a held check's approval."""
        approval: str = self.first.check(self.agent, "db.drop").json()["approval_id"]
        assert approval is not None
        return approval


@pytest.fixture
def two(gateway: LiveGateway) -> Iterator[Two]:
    """Two admins of one organization."""
    with Owner(gateway.url, organization="Two") as first, Owner(gateway.url) as second:
        move_into(gateway, second, first)
        yield Two(first, second, first.agent())


def approve(by: Owner, approval: str) -> httpx.Response:
    return by.http.post(f"/api/approvals/{approval}/approve")


def test_it_is_off_by_default(two: Two) -> None:
    """Whoever created agent and permission may approve."""
    two.permit(two.first)
    assert approve(two.first, two.ask()).status_code == 200
    assert two.first.check(two.agent, "db.drop").json() == ALLOWED


@pytest.mark.parametrize("creator", ["agent", "permission"])
def test_a_creator_may_not_approve(two: Two, creator: str) -> None:
    """Neither the agent's nor the permission's creator approves: 403 with the reason; the request goes on waiting."""
    two.permit(two.first if creator == "agent" else two.second, separation_of_duties=True)
    approval = two.ask()
    by = two.first if creator == "agent" else two.second
    answer = approve(by, approval)
    assert (answer.status_code, list(answer.json())) == (403, ["detail", "code"])
    assert "separation of duties" in answer.json()["detail"]
    assert two.ask() == approval
    assert by.http.get(f"/api/approvals/{approval}").json()["status"] == "pending"


def test_somebody_else_approves(two: Two) -> None:
    """A user who created neither lets the action through."""
    two.permit(two.first, separation_of_duties=True)
    assert approve(two.second, two.ask()).status_code == 200
    assert two.first.check(two.agent, "db.drop").json() == ALLOWED


def test_a_creator_may_deny(two: Two) -> None:
    """Refusing needs no second person."""
    two.permit(two.first, separation_of_duties=True)
    answer = two.first.http.post(f"/api/approvals/{two.ask()}/deny")
    assert (answer.status_code, answer.json()["status"]) == (200, "denied")


def test_it_is_looked_at_again_when_the_approval_is_used(two: Two) -> None:
    """Switched on after a creator approved, that approval no longer counts; switched off, it does again."""
    permission = two.permit(two.first)
    approval = two.ask()
    assert approve(two.first, approval).status_code == 200
    path = f"/api/permissions/{permission}"
    assert (
        two.first.http.put(path, json={"separation_of_duties": True}).json()["separation_of_duties"] is True
    )
    for dry_run in (True, False):
        named = two.first.check(two.agent, "db.drop", approval_id=approval, dry_run=dry_run).json()
        assert (named["allowed"], named["requires_approval"], named["approval_id"]) == (False, False, None)
        assert "is no longer valid" in named["reason"]
        assert "separation of duties" in named["reason"]
        assert two.first.user["id"] not in named["reason"]
    assert two.ask() != approval
    two.first.http.put(path, json={"separation_of_duties": False})
    assert two.first.check(two.agent, "db.drop").json() == ALLOWED


@pytest.mark.parametrize("lost", ["demoted", "removed", "moved"])
def test_an_approver_who_lost_the_right_no_longer_counts(
    gateway: LiveGateway, rival: Owner, two: Two, lost: str
) -> None:
    """A viewer's, a removed user's and another organization's user's approval lets nothing through; the check is held anew."""
    two.permit(two.first)
    approval = two.ask()
    assert approve(two.second, approval).status_code == 200
    if lost == "demoted":
        set_role(gateway, two.second, "viewer")
    elif lost == "removed":
        moment = "2026-11-20T00:00:00.000000Z"
        user = two.second.user["id"]
        assert execute(gateway, "UPDATE users SET removed_at = ? WHERE id = ?", moment, user) == 1
    else:
        move_into(gateway, two.second, rival)
    named = two.first.check(two.agent, "db.drop", approval_id=approval).json()
    assert (named["allowed"], named["requires_approval"]) == (False, False)
    assert "is no longer valid" in named["reason"]
    assert two.second.email not in named["reason"]
    anew = two.ask()
    assert anew != approval
    assert approve(two.first, anew).status_code == 200
    assert two.first.check(two.agent, "db.drop").json() == ALLOWED


def test_a_valid_approval_counts_beside_one_that_no_longer_does(gateway: LiveGateway, two: Two) -> None:
    """The newer approval is used, whichever other had lost its right."""
    two.permit(two.first)
    lost = two.ask()
    assert approve(two.second, lost).status_code == 200
    set_role(gateway, two.second, "viewer")
    valid = two.ask()
    assert approve(two.first, valid).status_code == 200
    set_role(gateway, two.second, "admin")
    passed = [two.first.check(two.agent, "db.drop").json()["allowed"] for _ in range(3)]
    assert passed == [True, True, False]


@pytest.mark.parametrize("value", [None, "yes", 1])
def test_a_wrong_flag_is_named(two: Two, value: object) -> None:
    """`separation_of_duties` is true or false, when granting and when changing."""
    permission = two.permit(two.first)
    body = {"separation_of_duties": value}
    granted = two.first.http.post(f"/api/agents/{two.agent}/permissions", json={"action": "x", **body})
    assert list(complaints(granted)) == ["separation_of_duties"]
    changed = two.first.http.put(f"/api/permissions/{permission}", json=body)
    assert list(complaints(changed)) == ["separation_of_duties"]
