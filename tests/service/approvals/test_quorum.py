"""Several people must approve (decisions §5): distinct, with the right, when they decide and when it is used."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest
from support.crowd import together
from support.gateway import LiveGateway
from support.insight import set_role
from support.people import Board, board
from support.shapes import complaints, refused


@pytest.fixture
def two_of_three(gateway: LiveGateway) -> Iterator[Board]:
    """Three admins, of whom two must approve."""
    with board(gateway, required_approvals=2) as found:
        yield found


def test_one_of_two_is_not_enough(two_of_three: Board) -> None:
    """After the first vote the request goes on waiting, shows it, and lets nothing through."""
    approval = two_of_three.ask({"amount": 5})
    first = two_of_three.approved(approval, note="fine by me")
    assert (first["status"], first["required_approvals"], first["decided_by"]) == ("pending", 2, None)
    assert [(vote["user_id"], vote["decision"], vote["note"]) for vote in first["votes"]] == [
        (two_of_three.people[0].user["id"], "approved", "fine by me")
    ]
    assert two_of_three.ask({"amount": 5}) == approval
    assert not two_of_three.allowed({"amount": 5}, approval_id=approval)


def test_the_second_distinct_person_lets_it_through_once(two_of_three: Board) -> None:
    """Two users approve: the check passes once and is held anew."""
    approval = two_of_three.ask()
    two_of_three.approved(approval, 0)
    last = two_of_three.approved(approval, 1, note="go")
    assert (last["status"], last["decided_by"]) == ("approved", two_of_three.people[1].user["id"])
    assert len(last["votes"]) == 2
    assert two_of_three.allowed()
    assert two_of_three.ask() != approval


def test_nobody_counts_twice(two_of_three: Board) -> None:
    """The same user's second approval is 409 and counts for nothing, also from another session."""
    approval = two_of_three.ask()
    two_of_three.approved(approval)
    refused(
        two_of_three.approve(approval),
        409,
        "You have already approved this request; it needs the approval of another user",
    )
    with two_of_three.people[0].login() as again:
        assert again.post(f"/api/approvals/{approval}/approve").status_code == 409
    assert two_of_three.shown(approval)["status"] == "pending"


def test_one_no_ends_it(two_of_three: Board) -> None:
    """A denial after an approval denies, also by whoever had approved."""
    for by in (0, 1):
        approval = two_of_three.ask({"by": by})
        two_of_three.approved(approval, 0)
        denied = two_of_three.deny(approval, by, note="no").json()
        assert denied["status"] == "denied"
        assert two_of_three.people[by].user["id"] in {
            vote["user_id"] for vote in denied["votes"] if vote["decision"] == "denied"
        }
        assert not two_of_three.allowed({"by": by})


def test_an_approver_who_lost_the_right_is_not_counted_at_the_end(
    gateway: LiveGateway, two_of_three: Board
) -> None:
    """Two approved and one of them became a viewer: the approval no longer counts; a viewer's vote never did."""
    approval = two_of_three.ask()
    two_of_three.approved(approval, 0)
    two_of_three.approved(approval, 1)
    set_role(gateway, two_of_three.people[1], "viewer")
    named = two_of_three.check(approval_id=approval)
    assert (named["allowed"], named["requires_approval"]) == (False, False)
    assert "is no longer valid" in named["reason"]
    assert two_of_three.ask() != approval


def test_an_early_vote_of_somebody_who_lost_the_right_does_not_help(
    gateway: LiveGateway, two_of_three: Board
) -> None:
    """A vote counts only while its user may approve: after a demotion two others are needed."""
    approval = two_of_three.ask()
    two_of_three.approved(approval, 1)
    set_role(gateway, two_of_three.people[1], "viewer")
    assert two_of_three.approved(approval, 0)["status"] == "pending"
    assert two_of_three.approved(approval, 2)["status"] == "approved"
    assert two_of_three.allowed()


def test_a_vote_that_counts_again_needs_no_third_person(gateway: LiveGateway, two_of_three: Board) -> None:
    """One of two voters was a viewer meanwhile: once both may approve again, the word of either ends the waiting."""
    approval = two_of_three.ask()
    two_of_three.approved(approval, 1)
    set_role(gateway, two_of_three.people[1], "viewer")
    assert two_of_three.approved(approval, 0)["status"] == "pending"
    assert two_of_three.approve(approval, 0).status_code == 409
    set_role(gateway, two_of_three.people[1], "admin")
    assert two_of_three.approved(approval, 0)["status"] == "approved"
    assert two_of_three.allowed()


def test_a_quorum_that_was_raised_since_wins(two_of_three: Board) -> None:
    """Raised after the approvals: they no longer suffice. Lowered: a request keeps what it was made with."""
    approval = two_of_three.ask()
    two_of_three.approved(approval, 0)
    two_of_three.approved(approval, 1)
    two_of_three.change(required_approvals=3)
    reason = two_of_three.check(approval_id=approval)["reason"]
    assert "3 users must approve the call, but only 2 of the approvals are valid" in reason
    two_of_three.change(required_approvals=2)
    assert two_of_three.allowed()
    waiting = two_of_three.ask()
    two_of_three.change(required_approvals=1)
    assert two_of_three.approved(waiting, 0)["status"] == "pending"


def test_of_votes_at_once_exactly_the_last_approves(two_of_three: Board) -> None:
    """Three people at once: two are 200, one finds it approved; the check passes once."""
    approval = two_of_three.ask()
    answers = together(*(partial(two_of_three.approve, approval, by) for by in range(3)))
    assert Counter(answer.status_code for answer in answers) == {200: 2, 409: 1}
    assert Counter(answer.json().get("status") for answer in answers if answer.is_success) == {
        "pending": 1,
        "approved": 1,
    }
    assert [two_of_three.allowed() for _ in range(2)] == [True, False]


def test_the_same_person_at_once_counts_once(two_of_three: Board) -> None:
    """Eight parallel approvals of one user are one vote."""
    approval = two_of_three.ask()
    answers = together(*[partial(two_of_three.approve, approval)] * 8)
    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 7}
    assert two_of_three.shown(approval)["status"] == "pending"


def test_a_vote_is_audited(two_of_three: Board) -> None:
    """Every single vote is in the audit."""
    approval = two_of_three.ask()
    two_of_three.approved(approval, 0)
    two_of_three.approved(approval, 1)
    assert two_of_three.audited(approval) == ["approval.approved", "approval.approved"]


@pytest.mark.parametrize("value", [None, 0, -1, 11, 1.5, "2", True, 10**30])
def test_a_wrong_number_of_people_is_named(two_of_three: Board, value: object) -> None:
    """`required_approvals` is a whole number from 1 to 10, when granting and when changing."""
    owner = two_of_three.people[0]
    body = {"required_approvals": value}
    granted = owner.http.post(f"/api/agents/{two_of_three.agent}/permissions", json={"action": "x", **body})
    assert list(complaints(granted)) == ["required_approvals"]
    changed = owner.http.put(f"/api/permissions/{two_of_three.permission}", json=body)
    assert list(complaints(changed)) == ["required_approvals"]


def test_separation_of_duties_holds_for_each(gateway: LiveGateway) -> None:
    """With both, the creator is not one of the two."""
    with board(gateway, required_approvals=2, separation_of_duties=True) as found:
        approval = found.ask()
        assert found.approve(approval, 0).status_code == 403
        assert found.approved(approval, 1)["status"] == "pending"
        assert found.approved(approval, 2)["status"] == "approved"
        assert found.allowed()
