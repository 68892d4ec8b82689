"""A grant of fewer people than a request was asked for allows nothing for it (decisions §5): the stricter wins."""

from collections.abc import Iterator

import pytest
from support.gateway import LiveGateway
from support.insight import set_role
from support.people import Board, board

TERMS = {"uses": 3, "seconds": 600, "except_fields": ["order"]}


@pytest.fixture
def lowered(gateway: LiveGateway) -> Iterator[Board]:
    """Three admins, of whom two must approve; a test lowers that to one."""
    with board(gateway, required_approvals=2) as found:
        yield found


def left(who: Board, approval: str) -> int:
    """Return how many uses are left of the grant that was given with a request."""
    [uses] = [one["uses_left"] for one in who.grants() if one["approval_id"] == approval]
    return int(uses)


def test_what_waits_for_two_is_not_approved_by_what_one_allowed(lowered: Board) -> None:
    """Covered, but asked for when two were demanded: it waits on, uses nothing up, and two people may approve it."""
    asked_of_two = lowered.ask({"order": 1})
    lowered.change(required_approvals=1)
    asked_of_one, given_with = lowered.ask({"order": 2}), lowered.ask({"order": 3})
    lowered.approved(given_with, 0, grant=TERMS)
    assert lowered.shown(asked_of_one)["status"] == "approved"
    waits = lowered.shown(asked_of_two)
    assert (waits["status"], waits["grant_id"], waits["required_approvals"]) == ("pending", None, 2)
    assert left(lowered, given_with) == 2
    assert [lowered.approved(asked_of_two, by)["status"] for by in (1, 2)] == ["pending", "approved"]


def test_a_check_that_waits_for_two_is_not_let_through_by_what_one_allowed(lowered: Board) -> None:
    """Repeated, also as a dry run, it is held by its own request; others pass by the grant."""
    asked_of_two = lowered.ask({"order": 1})
    lowered.change(required_approvals=1)
    given_with = lowered.ask({"order": 2})
    lowered.approved(given_with, 0, grant=TERMS)
    assert lowered.ask({"order": 1}) == asked_of_two
    assert lowered.ask({"order": 1}, dry_run=True) == asked_of_two
    assert lowered.shown(asked_of_two)["status"] == "pending"
    assert left(lowered, given_with) == 3
    assert lowered.allowed({"order": 3})
    assert left(lowered, given_with) == 2


def test_of_two_grants_the_one_of_enough_people_lets_it_through(gateway: LiveGateway, lowered: Board) -> None:
    """Though what one person allowed ends first: the waiting request becomes a use of what two allowed."""
    given_by_two = lowered.ask({"order": 1})
    for by in (1, 2):
        lowered.approved(given_by_two, by, grant=TERMS | {"seconds": 3600})
    set_role(gateway, lowered.people[1], "viewer")
    asked_of_two = lowered.ask({"order": 2})
    lowered.change(required_approvals=1)
    given_by_one = lowered.ask({"order": 3, "other": True})
    lowered.approved(given_by_one, 0, grant=TERMS | {"except_fields": ["order", "other"]})
    set_role(gateway, lowered.people[1], "admin")
    assert lowered.allowed({"order": 2})
    assert lowered.shown(asked_of_two)["status"] == "consumed"
    assert (left(lowered, given_by_two), left(lowered, given_by_one)) == (2, 3)


def test_what_an_approver_made_of_another_call_is_not_used_up(lowered: Board) -> None:
    """An edited request waits on for its two people, whatever is allowed for a while to who asks just for that."""
    asked = lowered.ask({"order": 1, "to": "ann"})
    edited = lowered.approved(asked, 0, context={"order": 2})["replaced_by"]
    lowered.change(required_approvals=1)
    given_with = lowered.ask({"order": 3})
    lowered.approved(given_with, 0, grant=TERMS)
    assert lowered.allowed({"order": 2})
    assert lowered.shown(edited)["status"] == "pending"
    assert left(lowered, given_with) == 2
