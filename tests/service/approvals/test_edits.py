"""Approving with an edited context (decisions §5)."""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from support.crowd import together
from support.gateway import LiveGateway
from support.people import ALLOWED, Board, board
from support.shapes import complaints, refused

ASKED = {"amount": 80, "to": "eve@example.test", "lines": [{"sku": "a", "count": 2}]}
EDITED = {"amount": 50, "to": "ann@example.test", "lines": [{"sku": "a", "count": 1}]}
SECRET = {"$digest": "hmac-sha256:abcd", "bytes": 12}
MASKED = {"$redacted": "ls # token=[redacted]", "$digest": "hmac-sha256:cdef", "bytes": 18}


@pytest.fixture
def one(gateway: LiveGateway) -> Iterator[Board]:
    """An admin who approves alone, up to an amount of 100."""
    with board(gateway, 2, max_amount=100) as found:
        yield found


def test_another_request_takes_its_place(one: Board) -> None:
    """The original is `replaced` for good and names its successor, which is approved and bound to the edited context."""
    approval = one.ask(ASKED, run_id="r", call_id="c")
    answer = one.approved(approval, context=EDITED, note="half of it")
    assert (answer["id"], answer["status"], answer["context"]) == (approval, "replaced", ASKED)
    successor = one.shown(answer["replaced_by"])
    assert (successor["status"], successor["context"], successor["replaces"]) == (
        "approved",
        EDITED,
        approval,
    )
    assert (successor["run_id"], successor["call_id"], successor["note"]) == ("r", "c", "half of it")
    assert successor["digest"] != answer["digest"]
    for how in ("approve", "deny"):
        again = one.people[0].http.post(f"/api/approvals/{approval}/{how}")
        refused(again, 409, "Approval is no longer pending: it is replaced")


def test_the_agent_is_shown_what_was_approved(one: Board) -> None:
    """Both requests show `approved_context`; neither shows who edited."""
    approval = one.ask(ASKED)
    assert one.seen_by_agent(approval)["approved_context"] is None
    successor = one.approved(approval, context=EDITED)["replaced_by"]
    for which, status in ((approval, "replaced"), (successor, "approved")):
        seen = one.seen_by_agent(which)
        assert (seen["status"], seen["approved_context"]) == (status, EDITED)
        assert one.people[0].user["id"] not in str(seen)


def test_only_that_context_with_that_id_passes_once(one: Board) -> None:
    """The edited context passes with the successor's id alone, and once; the asked one is held anew."""
    approval = one.ask(ASKED)
    successor = one.approved(approval, context=EDITED)["replaced_by"]
    for wrong in (
        {"context": EDITED, "approval_id": approval},
        {"context": ASKED, "approval_id": successor},
        {"context": EDITED | {"amount": 49}, "approval_id": successor},
    ):
        result = one.check(**wrong)
        assert (result["allowed"], result["requires_approval"]) == (False, False), wrong
    assert one.ask(ASKED) not in {approval, successor}
    unnamed = one.ask(EDITED)
    assert unnamed != successor
    assert one.allowed(EDITED, approval_id=successor)
    assert not one.allowed(EDITED, approval_id=successor)
    assert one.shown(successor)["status"] == "consumed"
    assert one.seen_by_agent(approval)["approved_context"] == EDITED


def test_a_call_by_name_waits_for_its_edit(one: Board) -> None:
    """Asked again it names the request that was edited and makes no other; carried out as edited, it is over."""
    approval = one.ask(ASKED, run_id="r", call_id="c")
    successor = one.approved(approval, context=EDITED)["replaced_by"]
    assert one.ask(ASKED, run_id="r", call_id="c") == approval
    assert one.check(ASKED, run_id="r", call_id="c", dry_run=True)["approval_id"] == approval
    assert one.ask(ASKED, run_id="r", call_id="another") != approval
    assert one.allowed(EDITED, run_id="r", call_id="c", approval_id=successor)
    again = one.check(ASKED, run_id="r", call_id="c")
    assert (again["requires_approval"], again["reason"]) == (
        False,
        "Call 'c' has already been allowed once; use a new call_id for a new call",
    )


def test_an_edit_does_not_jump_the_permission(one: Board) -> None:
    """An amount above the maximum, or none at all, is 400 with the reason; the request goes on waiting."""
    approval = one.ask(ASKED)
    for context, reason in (
        (EDITED | {"amount": 101}, "above the maximum"),
        (EDITED | {"amount": "9"}, "must be a non-negative number"),
        (EDITED | {"amount": -1}, "must be a non-negative number"),
    ):
        assert reason in complaints(one.approve(approval, context=context))["context"][0]
    assert one.shown(approval)["status"] == "pending"
    assert one.shown(approval)["votes"] == []


def test_what_was_lowered_since_the_edit_wins(one: Board) -> None:
    """The permission is judged again when the edited call is made."""
    approval = one.ask(ASKED)
    successor = one.approved(approval, context=EDITED)["replaced_by"]
    one.change(max_amount=40)
    assert "above the maximum" in one.check(EDITED, approval_id=successor)["reason"]
    one.change(max_amount=100)
    assert one.allowed(EDITED, approval_id=successor)


@pytest.mark.parametrize(
    "change",
    [
        {"key": SECRET | {"bytes": 13}},
        {"key": "plain"},
        {"key": None},
        {"nested": {"list": [1, SECRET | {"$digest": "hmac-sha256:ffff"}]}},
        {"nested": {"list": [SECRET, 1]}},
        {"new": {"$digest": "hmac-sha256:1234"}},
        {"nested": {}},
        {"script": MASKED | {"$redacted": "rm # token=[redacted]"}},
        {"script": "ls"},
    ],
)
def test_hidden_fields_cannot_be_edited(one: Board, change: dict[str, object]) -> None:
    """A hidden value changed, moved, removed or invented is 400 that names its place, and nothing is decided."""
    context = {"amount": 5, "key": SECRET, "nested": {"list": [1, SECRET]}, "script": MASKED}
    approval = one.ask(context)
    [message] = complaints(one.approve(approval, context=context | change))["context"]
    assert "is redacted and cannot be edited" in message
    assert one.shown(approval)["status"] == "pending"
    successor = one.approved(approval, context=context | {"amount": 4})["replaced_by"]
    assert one.allowed(context | {"amount": 4}, approval_id=successor)


@pytest.mark.parametrize(
    ("one_place", "other_place"),
    [
        ({"a": {"b": SECRET}}, {"a.b": SECRET}),
        ({"a": [SECRET]}, {"a[0]": SECRET}),
        ({"a": {"b.c": SECRET}}, {"a": {"b": {"c": SECRET}}}),
        ({"": {"a": SECRET}}, {"a": SECRET}),
        ({"a": {"": SECRET}}, {"a.": SECRET}),
    ],
)
def test_two_hidden_fields_are_never_taken_for_one(
    one: Board, one_place: dict[str, object], other_place: dict[str, object]
) -> None:
    """Whatever their names look like: a hidden value does not move, and none of two hides what became of the other."""
    for asked, edited in ((one_place, other_place), (other_place, one_place)):
        [message] = complaints(one.approve(one.ask(asked), context=edited))["context"]
        assert "is redacted and cannot be edited" in message
    if one_place.keys() != other_place.keys():
        changed = json.loads(json.dumps(one_place).replace("abcd", "ffff"))
        for edited in (changed | other_place, other_place | changed):
            [message] = complaints(one.approve(one.ask(one_place | other_place), context=edited))["context"]
            assert "is redacted and cannot be edited" in message


def test_an_edit_that_changes_nothing_is_an_approval(one: Board) -> None:
    """The same context, differently written, approves the request itself."""
    approval = one.ask({"amount": 5, "b": 1})
    answer = one.people[0].http.post(
        f"/api/approvals/{approval}/approve", content=b'{"context": {"b": 1.0, "amount": 5e0}}'
    )
    assert (answer.json()["status"], answer.json()["replaced_by"]) == ("approved", None)
    assert one.allowed({"amount": 5, "b": 1})


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ([], "valid dictionary"),
        ("x", "valid dictionary"),
        (5, "valid dictionary"),
        ({"a": "x" * 70_000}, "must not be larger"),
        ({"a": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}, "nested deeper"),
    ],
)
def test_what_is_no_context_is_named(one: Board, context: object, message: str) -> None:
    """The context is held to the rules of a check's."""
    approval = one.ask({"amount": 5})
    assert message in complaints(one.approve(approval, context=context))["context"][0]
    assert one.shown(approval)["status"] == "pending"


def test_an_edit_cannot_be_allowed_for_a_while(one: Board) -> None:
    """A grant is for what was asked: both together are 400."""
    approval = one.ask(ASKED)
    answer = one.approve(approval, context=EDITED, grant={"uses": 1, "seconds": 60})
    assert answer.status_code == 400, answer.text
    assert one.shown(approval)["status"] == "pending"


def test_editing_gains_no_time(gateway: LiveGateway) -> None:
    """Where several must approve, the successor waits no longer than the original would have."""
    with board(gateway, required_approvals=2) as found:
        approval = found.ask(ASKED)
        until = found.shown(approval)["expires_at"]
        successor = found.approved(approval, context=EDITED)["replaced_by"]
        assert found.shown(successor)["expires_at"] == until


def test_with_a_quorum_others_must_approve_the_edited_one(gateway: LiveGateway) -> None:
    """Votes for the original do not count for what became of it; the editor's is the first for that."""
    with board(gateway, required_approvals=2) as found:
        approval = found.ask(ASKED)
        found.approved(approval, 0)
        answer = found.approved(approval, 1, context=EDITED)
        successor = answer["replaced_by"]
        shown = found.shown(successor)
        assert (shown["status"], [vote["user_id"] for vote in shown["votes"]]) == (
            "pending",
            [found.people[1].user["id"]],
        )
        assert found.seen_by_agent(approval)["approved_context"] is None
        assert not found.allowed(EDITED, approval_id=successor)
        assert found.approved(successor, 0)["status"] == "approved"
        assert found.seen_by_agent(approval)["approved_context"] == EDITED
        assert found.allowed(EDITED, approval_id=successor)


def test_an_edited_request_may_be_edited_again(gateway: LiveGateway) -> None:
    """Each edit is a request of its own; only the last one passes."""
    with board(gateway, required_approvals=2) as found:
        first = found.ask(ASKED)
        second = found.approved(first, 0, context=EDITED)["replaced_by"]
        third = found.approved(second, 1, context=EDITED | {"amount": 1})["replaced_by"]
        found.approved(third, 0)
        assert not found.allowed(EDITED, approval_id=second)
        assert found.allowed(EDITED | {"amount": 1}, approval_id=third)


def test_an_edit_into_what_waits_already_is_a_conflict(gateway: LiveGateway) -> None:
    """The very context waits by itself: 409 names that request, and nothing is replaced."""
    with board(gateway, required_approvals=2) as found:
        waiting = found.ask(EDITED)
        approval = found.ask(ASKED)
        answer = found.approve(approval, context=EDITED)
        assert answer.status_code == 409
        assert waiting in answer.json()["detail"]
        assert found.shown(approval)["status"] == "pending"


def test_an_equal_check_meets_the_waiting_successor(gateway: LiveGateway) -> None:
    """While the successor waits, a check with its context is told its id and makes no second request."""
    with board(gateway, required_approvals=2) as found:
        successor = found.approved(found.ask(ASKED), context=EDITED)["replaced_by"]
        assert found.ask(EDITED) == successor


def test_what_replaced_something_ends_with_its_permission(one: Board) -> None:
    """Deleting the permission cancels the successor too."""
    successor = one.approved(one.ask(ASKED), context=EDITED)["replaced_by"]
    owner = one.people[0]
    assert owner.http.delete(f"/api/permissions/{one.permission}").status_code == 204
    assert one.shown(successor)["status"] == "cancelled"
    owner.permit(one.agent, "stripe.refund", requires_approval=True)
    assert not one.allowed(EDITED, approval_id=successor)


def test_of_edits_at_once_one_wins(one: Board) -> None:
    """Two people edit at once: one successor, one conflict; and it passes once among many checks."""
    approval = one.ask(ASKED)
    answers = together(
        *(partial(one.approve, approval, by, context=EDITED | {"amount": by}) for by in (0, 1))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    successor = one.shown(one.shown(approval)["replaced_by"])
    results = together(*[partial(one.check, successor["context"], approval_id=successor["id"])] * 10)
    assert results.count(ALLOWED) == 1


def test_an_edit_is_audited(one: Board) -> None:
    """The audit says which request was replaced and which was approved."""
    approval = one.ask(ASKED)
    successor = one.approved(approval, context=EDITED)["replaced_by"]
    assert one.audited(approval) == ["approval.replaced"]
    assert one.audited(successor) == ["approval.approved"]


def test_pending_edited_request_is_found_behind_many_newer_ones(gateway: LiveGateway) -> None:
    """Uses of a temporary approval are stored as newer requests with equal arguments."""
    with board(gateway, required_approvals=2) as people:
        grant = {"max_uses": 100, "duration_seconds": 600, "ignored_fields": ["n"]}
        first = people.ask({"n": 0, "other": 1})
        people.approved(first, 0, grant=grant)
        people.approved(first, 1, grant=grant)
        edited = people.approved(people.ask({"n": 5, "other": 2}), 0, context={"n": 5, "other": 1})
        for _ in range(21):
            assert people.allowed({"n": 5, "other": 1})
        admin = people.people[0]
        (active,) = admin.http.get("/api/grants").json()
        assert admin.http.post(f"/api/grants/{active['id']}/revoke").status_code == 200
        answer = admin.check(people.agent, "stripe.refund", {"n": 5, "other": 1})
        assert answer.status_code == 200
        assert answer.json()["approval_id"] == edited["replaced_by"]
