"""Allowing for a while: the same agent and action, so often, for so long, within what was seen."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.crowd import together
from support.gateway import LiveGateway
from support.insight import execute, set_role
from support.people import ACTION, ALLOWED, Board, board
from support.shapes import complaints, refused

from toolgate_service.core.clock import from_wire, utcnow, wire

SEEN = {"amount": 50, "to": "ann@example.test", "order": "o-1"}


@pytest.fixture
def one(gateway: LiveGateway) -> Iterator[Board]:
    """An admin who approves alone."""
    with board(gateway, 2, max_amount=100) as found:
        yield found


def granted(who: Board, context: object = SEEN, *, uses: int = 3, seconds: int = 600, **terms: Any) -> str:
    """Approve a request for a while, use the approval itself, and return the grant's id."""
    approval = who.ask(context)
    who.approved(approval, grant={"uses": uses, "seconds": seconds, **terms})
    assert who.allowed(context, approval_id=approval)
    [grant] = [one for one in who.grants() if one["approval_id"] == approval]
    found: str = grant["id"]
    return found


def test_so_many_further_calls_pass(one: Board) -> None:
    """Three uses beside the approval itself; then the check is held again."""
    grant = granted(one, uses=3)
    assert [one.allowed(SEEN) for _ in range(4)] == [True, True, True, False]
    [shown] = one.grants()
    assert (shown["id"], shown["status"], shown["uses"], shown["uses_left"]) == (grant, "exhausted", 3, 0)


def test_it_is_shown_with_what_the_approver_saw(one: Board) -> None:
    """The list shows agent, action, context, what may differ, who gave it and until when."""
    granted(one, uses=5, seconds=120, except_fields=["order"])
    [shown] = one.grants(status="active", agent_id=one.agent)
    assert (shown["agent_id"], shown["agent_name"], shown["action"]) == (one.agent, "bot", ACTION)
    assert (shown["context"], shown["except_fields"]) == (SEEN, ["order"])
    assert [vote["user_id"] for vote in shown["votes"]] == [one.people[0].user["id"]]
    assert from_wire(shown["expires_at"]) - from_wire(shown["starts_at"]) == timedelta(seconds=120)
    assert one.people[0].http.get(f"/api/grants/{shown['id']}").json() == shown
    assert one.grants(status="revoked") == []


@pytest.mark.parametrize(
    ("context", "covered"),
    [
        (SEEN | {"order": "o-2"}, True),
        (SEEN | {"amount": 49.99}, True),
        (SEEN | {"amount": 50.01}, False),
        (SEEN | {"to": "eve@example.test"}, False),
        (SEEN | {"more": 1}, False),
        ({"to": "ann@example.test", "order": "o-1"}, False),
        ({"amount": 50, "to": "ann@example.test"}, True),
    ],
)
def test_only_what_was_left_open_may_differ(one: Board, context: dict[str, object], covered: bool) -> None:
    """Every other field is equal, and the amount at most what was seen."""
    granted(one, except_fields=["order"])
    assert one.allowed(context) is covered


def test_each_use_is_on_record(one: Board) -> None:
    """A use is an approval that was consumed by the grant, with its own context, and the check has its decision's id."""
    grant = granted(one, except_fields=["order"])
    context = SEEN | {"order": "o-7"}
    answer = one.people[0].check(one.agent, ACTION, context, call_id="c-7", run_id="r")
    assert answer.json() == ALLOWED
    newest = one.people[0].http.get("/api/approvals", params={"status": "consumed"}).json()[0]
    assert (newest["grant_id"], newest["context"]) == (grant, context)
    assert (newest["call_id"], newest["run_id"], newest["decided_by"]) == ("c-7", "r", None)


def test_one_call_is_let_through_once(one: Board) -> None:
    """The same `call_id` is blocked the second time; a repeated answer costs no second use."""
    granted(one)
    again = one.people[0].check(one.agent, ACTION, SEEN, call_id="c")
    assert again.json() == ALLOWED
    assert "has already been allowed once" in one.check(SEEN, call_id="c")["reason"]
    body = {"agent_id": one.agent, "action": ACTION, "context": SEEN, "call_id": "d"}
    headers = {"X-API-Key": one.people[0].key, "Idempotency-Key": "attempt"}
    answers = [one.people[0].http.post("/sdk/check", json=body, headers=headers) for _ in range(2)]
    assert [answer.json() for answer in answers] == [ALLOWED] * 2
    assert len({answer.headers["X-Decision-ID"] for answer in answers}) == 1
    assert one.grants()[0]["uses_left"] == 1


def test_a_dry_run_uses_nothing(one: Board) -> None:
    """It answers that the call would pass."""
    granted(one)
    assert [one.allowed(SEEN, dry_run=True) for _ in range(5)] == [True] * 5
    assert one.grants()[0]["uses_left"] == 3


def test_of_many_at_once_so_many_pass(one: Board) -> None:
    """Thirty parallel checks under a grant for five: exactly five pass."""
    granted(one, uses=5, except_fields=["order"])
    works = [partial(one.check, SEEN | {"order": f"o-{number % 10}"}) for number in range(30)]
    results = together(*works)
    assert results.count(ALLOWED) == 5
    assert one.grants()[0]["uses_left"] == 0


def test_it_ends_with_its_time(gateway: LiveGateway, one: Board) -> None:
    """Past its end it lets nothing through and is shown as expired."""
    grant = granted(one)
    past = wire(utcnow() - timedelta(seconds=1))
    assert execute(gateway, "UPDATE grants SET expires_at = ? WHERE id = ?", past, grant) == 1
    assert not one.allowed(SEEN)
    assert [shown["status"] for shown in one.grants(status="expired")] == ["expired"]
    refused(
        one.people[0].http.post(f"/api/grants/{grant}/revoke"),
        409,
        "Grant is no longer active: it is expired",
    )


def test_a_revoked_one_lets_nothing_through(one: Board) -> None:
    """The very next check is held; anybody who may decide may revoke; a second time is 409."""
    grant = granted(one)
    assert one.allowed(SEEN)
    answer = one.people[1].http.post(f"/api/grants/{grant}/revoke")
    assert (answer.status_code, answer.json()["status"]) == (200, "revoked")
    assert answer.json()["revoked_by"] == one.people[1].user["id"]
    assert not one.allowed(SEEN)
    refused(
        one.people[0].http.post(f"/api/grants/{grant}/revoke"),
        409,
        "Grant is no longer active: it is revoked",
    )


@pytest.mark.parametrize("how", ["permission deleted", "agent switched off", "agent deleted"])
def test_it_ends_with_its_permission_and_agent(one: Board, how: str) -> None:
    """Whatever it belongs to goes, it is revoked for good; granting the permission again revives nothing."""
    grant = granted(one)
    owner = one.people[0]
    match how:
        case "permission deleted":
            owner.http.delete(f"/api/permissions/{one.permission}")
            owner.permit(one.agent, ACTION, requires_approval=True)
        case "agent switched off":
            for status in ("inactive", "active"):
                owner.http.put(f"/api/agents/{one.agent}", json={"status": status})
        case _:
            owner.http.delete(f"/api/agents/{one.agent}")
    assert not one.allowed(SEEN)
    assert owner.http.get(f"/api/grants/{grant}").json()["status"] == "revoked"


def test_what_was_lowered_since_wins(one: Board) -> None:
    """The permission's maximum is judged at each use."""
    granted(one)
    one.change(max_amount=10)
    assert "above the maximum" in one.check(SEEN)["reason"]
    assert one.allowed(SEEN | {"amount": 10})


def test_a_giver_who_lost_the_right_gives_nothing(gateway: LiveGateway, one: Board) -> None:
    """The approver's right is judged at each use."""
    approval = one.ask(SEEN)
    one.approved(approval, 1, grant={"uses": 3, "seconds": 60})
    assert one.allowed(SEEN)
    set_role(gateway, one.people[1], "viewer")
    waits = one.ask(SEEN)
    set_role(gateway, one.people[1], "admin")
    assert one.allowed(SEEN)
    # The request that waited meanwhile became the call that was let through.
    assert one.shown(waits)["status"] == "consumed"


def test_a_persons_no_to_the_very_call_goes_before(one: Board) -> None:
    """A call that was denied of late is blocked, whatever else is allowed for a while."""
    context = SEEN | {"order": "o-9"}
    assert one.deny(one.ask(context), note="not this one").status_code == 200
    granted(one, except_fields=["order"])
    assert "not this one" in one.check(context)["reason"]
    assert one.allowed(SEEN | {"order": "o-8"})


def test_those_who_wait_already_are_approved_by_it(one: Board) -> None:
    """Covered requests that wait are approved, a use each, oldest first; others go on waiting."""
    waiting = [one.ask(SEEN | {"order": f"o-{number}"}) for number in range(2, 6)]
    other = one.ask(SEEN | {"to": "eve@example.test"})
    first = one.ask(SEEN)
    one.approved(first, grant={"uses": 3, "seconds": 600, "except_fields": ["order"]})
    states = [one.shown(approval)["status"] for approval in (*waiting, other, first)]
    assert states == ["approved", "approved", "approved", "pending", "pending", "approved"]
    [grant] = one.grants()
    assert grant["uses_left"] == 0
    assert {one.shown(approval)["grant_id"] for approval in waiting[:3]} == {grant["id"]}
    assert one.allowed(SEEN | {"order": "o-2"}, approval_id=waiting[0])
    assert one.people[0].http.post(f"/api/grants/{grant['id']}/revoke").status_code == 200
    assert one.shown(waiting[1])["status"] == "cancelled"
    assert not one.allowed(SEEN | {"order": "o-3"})


def test_with_a_quorum_all_of_them_give_it_on_the_same_terms(gateway: LiveGateway) -> None:
    """The first proposes, the second gives it; until then only it waits, and other terms are 409."""
    with board(gateway, required_approvals=2) as found:
        approval = found.ask(SEEN)
        terms = {"uses": 2, "seconds": 60, "except_fields": ["order"]}
        found.approved(approval, 0, grant=terms)
        assert [shown["status"] for shown in found.grants()] == ["proposed"]
        assert not found.allowed(SEEN | {"order": "o-2"})
        other = found.approve(approval, 1, grant=terms | {"uses": 3})
        assert other.status_code == 409
        assert "max_uses 2, duration_seconds 60" in other.json()["detail"]
        assert found.approved(approval, 1, grant=terms)["status"] == "approved"
        [shown] = found.grants()
        assert (shown["status"], len(shown["votes"])) == ("active", 2)
        assert found.allowed(SEEN | {"order": "o-2"})


def test_a_proposal_that_the_others_did_not_join_ends(gateway: LiveGateway) -> None:
    """Approved without it, denied, edited or withdrawn: what one person proposed never becomes active."""
    with board(gateway, required_approvals=2) as found:
        for number, decide in enumerate(
            (
                lambda approval: found.approved(approval, 1),
                lambda approval: found.deny(approval, 1),
                lambda approval: found.approved(approval, 1, context=SEEN | {"amount": 1}),
                found.withdraw,
            )
        ):
            context = SEEN | {"order": str(number)}
            approval = found.ask(context)
            found.approved(approval, 0, grant={"uses": 2, "seconds": 60})
            decide(approval)
            assert found.grants()[0]["status"] == "revoked", number


def test_a_proposal_ends_with_a_request_that_another_grant_covers(gateway: LiveGateway) -> None:
    """Approved by what was allowed for another request: no proposal is left that nobody can join."""
    with board(gateway, required_approvals=2) as found:
        terms = {"uses": 2, "seconds": 60, "except_fields": ["order"]}
        covered = found.ask(SEEN | {"order": "o-2"})
        found.approved(covered, 0, grant=terms)
        approval = found.ask(SEEN)
        for by in (0, 1):
            found.approved(approval, by, grant=terms)
        assert found.shown(covered)["status"] == "approved"
        assert [shown["status"] for shown in found.grants()] == ["active", "revoked"]


def test_a_revoked_proposal_is_not_proposed_again(gateway: LiveGateway) -> None:
    """One request leads to one grant at most: others may approve it without, and what was revoked stays so."""
    with board(gateway, required_approvals=3) as found:
        approval, terms = found.ask(SEEN), {"uses": 2, "seconds": 60}
        found.approved(approval, 0, grant=terms)
        [grant] = found.grants(status="proposed")
        assert found.people[2].http.post(f"/api/grants/{grant['id']}/revoke").is_success
        for uses in (2, 5):
            refused(
                found.approve(approval, 1, grant=terms | {"uses": uses}),
                409,
                "The temporary approval that was proposed for this request is revoked; approve the request "
                "without a temporary approval",
            )
        assert found.shown(approval)["status"] == "pending"
        assert [found.approved(approval, by)["status"] for by in (1, 2)] == ["pending", "approved"]
        assert [shown["status"] for shown in found.grants()] == ["revoked"]


def test_a_quorum_raised_since_wins(gateway: LiveGateway) -> None:
    """A grant of one person lets nothing through once two must approve."""
    with board(gateway) as found:
        granted(found)
        found.change(required_approvals=2)
        # A dry run: a request that is made now waits for two, whatever is lowered later.
        assert not found.allowed(SEEN, dry_run=True)
        found.change(required_approvals=1)
        assert found.allowed(SEEN)


@pytest.mark.parametrize(
    "terms",
    [
        {"max_uses": 3, "duration_seconds": 600, "ignored_fields": ["order"]},
        {"uses": 3, "seconds": 600, "except_fields": ["order"]},
        {"max_uses": 3, "seconds": 600, "ignored_fields": ["order"]},
    ],
)
def test_former_names_of_terms_are_accepted(one: Board, terms: dict[str, Any]) -> None:
    """Responses contain both names until 0.2."""
    one.approved(one.ask(SEEN), grant=terms)
    [shown] = one.grants()
    assert (shown["max_uses"], shown["duration_seconds"], shown["ignored_fields"]) == (3, 600, ["order"])
    assert (shown["uses"], shown["seconds"], shown["except_fields"]) == (3, 600, ["order"])


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (
            {"max_uses": 0, "duration_seconds": 60},
            "'grant.max_uses': ['input should be greater than or equal to 1",
        ),
        ({"max_uses": 1}, "'grant.duration_seconds': ['this field is required"),
        (
            {"uses": 1, "max_uses": 1, "seconds": 60},
            "uses is the former name of max_uses; send only max_uses",
        ),
        ({"uses": 0, "seconds": 60}, "greater than or equal to 1"),
        ({"uses": 1001, "seconds": 60}, "less than or equal to 1000"),
        ({"uses": 1, "seconds": 59}, "greater than or equal to 60"),
        ({"uses": 1, "seconds": 2592001}, "less than or equal to 2592000"),
        ({"uses": 1.5, "seconds": 60}, "integer"),
        ({"uses": True, "seconds": 60}, "integer"),
        ({"seconds": 60}, "required"),
        ({"uses": 1, "seconds": 60, "except_fields": ["nothing"]}, "no field 'nothing'"),
        ({"uses": 1, "seconds": 60, "except_fields": ["amount"]}, "'amount' cannot be listed"),
        ({"uses": 1, "seconds": 60, "except_fields": "order"}, "list"),
        ({"uses": 1, "seconds": 60, "for": "ever"}, "unknown field"),
        ("for ever", "valid dictionary"),
    ],
)
def test_wrong_terms_are_named(one: Board, terms: object, message: str) -> None:
    """Wrong terms are 400; nothing is approved and nothing is allowed."""
    approval = one.ask(SEEN)
    answer = one.approve(approval, grant=terms)
    assert answer.status_code == 400
    assert message.lower() in str(complaints(answer)).lower()
    assert one.shown(approval)["status"] == "pending"
    assert one.shown(approval)["votes"] == []
    assert one.grants() == []


def test_unknown_and_foreign_ones_are_not_found(gateway: LiveGateway, one: Board) -> None:
    """Another organization's grant is 404 everywhere."""
    grant = granted(one)
    with board(gateway, 1) as other:
        for which in (grant, "x"):
            for answer in (
                other.people[0].http.get(f"/api/grants/{which}"),
                other.people[0].http.post(f"/api/grants/{which}/revoke"),
            ):
                refused(answer, 404, "Grant not found")
        assert other.grants() == []
    assert one.allowed(SEEN)


def test_the_test_environment_has_its_own(one: Board) -> None:
    """A grant of production is not seen from the test environment."""
    granted(one)
    assert one.grants(environment="test") == []


def test_it_is_audited(one: Board) -> None:
    """Given and revoked, with the terms."""
    grant = granted(one)
    assert one.people[0].http.post(f"/api/grants/{grant}/revoke").is_success
    assert one.audited(grant) == ["grant.created", "grant.revoked"]


def test_revoking_at_once_with_checks_lets_through_what_it_counted(one: Board) -> None:
    """Checks race a revocation: as many passed as were taken from the grant, none after it."""
    grant = granted(one, uses=50)
    works: list[Any] = [partial(one.check, SEEN) for _ in range(12)]
    revoke = partial(one.people[1].http.post, f"/api/grants/{grant}/revoke")
    results = together(*works[:6], revoke, *works[6:])
    passed = sum(result == ALLOWED for result in results)
    assert Counter(shown["status"] for shown in one.grants()) == {"revoked": 1}
    assert 50 - one.grants()[0]["uses_left"] == passed
    assert not one.allowed(SEEN)
