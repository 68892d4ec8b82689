"""What was proposed with a request ends with it, and what an editor made of one with its time."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway
from support.insight import execute
from support.people import Board, board

TERMS = {"uses": 2, "seconds": 600, "except_fields": ["order"]}
PAST = "2020-01-01T00:00:00.000000Z"


@pytest.fixture
def two(gateway: LiveGateway) -> Iterator[Board]:
    """Three admins, of whom two must approve."""
    with board(gateway, required_approvals=2) as found:
        yield found


def proposal(who: Board, approval: str) -> str:
    [grant] = [one for one in who.grants() if one["approval_id"] == approval]
    status: str = grant["status"]
    return status


def test_a_withdrawn_request_takes_its_proposal_along(two: Board) -> None:
    """Nobody can join it any more, and the list does not say that somebody could."""
    approval = two.ask({"order": 1})
    two.approved(approval, 0, grant=TERMS)
    headers = {"X-API-Key": two.people[0].key}
    assert two.people[0].http.post(f"/sdk/approvals/{approval}/cancel", headers=headers).is_success
    assert proposal(two, approval) == "revoked"


def test_a_request_that_another_grant_covers_takes_its_proposal_along(two: Board) -> None:
    """Approved by another's grant, what was proposed with it never becomes one."""
    covered, other = two.ask({"order": 1}), two.ask({"order": 2})
    two.approved(covered, 0, grant=TERMS)
    two.approved(other, 0, grant=TERMS)
    two.approved(other, 1, grant=TERMS)
    assert two.shown(covered)["status"] == "approved"
    assert proposal(two, covered) == "revoked"


def test_proposal_ends_when_its_only_voter_completes_the_approval(gateway: LiveGateway) -> None:
    with board(gateway, required_approvals=1) as found:
        approval = found.ask({"order": 1})
        found.change(required_approvals=2)
        found.approved(approval, 0, grant=TERMS)
        assert proposal(found, approval) == "proposed"
        found.change(required_approvals=1)
        assert found.approved(approval, 0)["status"] == "approved"
        assert proposal(found, approval) == "revoked"


def test_what_ran_out_is_no_longer_shown_as_approved(gateway: LiveGateway, two: Board) -> None:
    """By the clock alone, before any job has marked it: `approved_context` is null again."""
    approval = two.ask({"order": 1})
    successor = two.approved(approval, 0, context={"order": 2})["replaced_by"]
    two.approved(successor, 1)
    assert two.seen_by_agent(approval)["approved_context"] == {"order": 2}
    assert execute(gateway, "UPDATE approvals SET expires_at = ? WHERE id = ?", PAST, successor) == 1
    for which in (approval, successor):
        assert two.seen_by_agent(which)["approved_context"] is None
