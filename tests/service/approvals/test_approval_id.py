"""`call_id`, `approval_id` and `Idempotency-Key` on a check (decisions §4, §5)."""

from datetime import datetime, timedelta
from functools import partial

import httpx
import pytest
from support.asking import Ask, Decide, State
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import execute, rows

ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
UNKNOWN = "01890000-0000-7000-8000-000000000000"


def test_a_call_has_its_own_request(ask: Ask) -> None:
    """Equal checks of two calls are two requests, each the same when repeated."""
    one, other, none = ask(call_id="1"), ask(call_id="2"), ask()
    assert len({result["approval_id"] for result in (one, other, none)}) == 3
    assert ask(call_id="1") == one


def test_a_call_is_let_through_by_itself_alone(ask: Ask, decide: Decide, state: State) -> None:
    """A request made with a `call_id` is not used up by another call nor by none."""
    approval = ask(call_id="1")["approval_id"]
    decide(approval)
    assert ask()["allowed"] is False
    assert ask(call_id="2")["allowed"] is False
    assert state(approval) == "approved"
    assert ask(call_id="1") == ALLOWED


def test_a_call_is_let_through_by_its_approvals_id(ask: Ask, decide: Decide) -> None:
    """Naming the approval instead of the call passes as well, once."""
    approval = ask(call_id="1")["approval_id"]
    decide(approval)
    assert ask(approval_id=approval) == ALLOWED
    assert ask(approval_id=approval)["allowed"] is False


def test_a_call_that_was_let_through_stays_so(ask: Ask, decide: Decide) -> None:
    """A `call_id` that has used up an approval is blocked, with whatever context and approval."""
    decide(ask({"t": 1}, call_id="1")["approval_id"])
    assert ask({"t": 1}, call_id="1") == ALLOWED
    other = ask({"t": 1})["approval_id"]
    decide(other)
    for again in (
        ask({"t": 1}, call_id="1"),
        ask({"t": 2}, call_id="1"),
        ask({"t": 1}, call_id="1", approval_id=other),
    ):
        assert (again["allowed"], again["requires_approval"], again["approval_id"]) == (False, False, None)
        assert "has already been allowed once" in again["reason"]
    assert ask({"t": 1}, call_id="1", run_id="another run")["requires_approval"] is True


def test_an_approval_id_finds_its_request_behind_many_others(ask: Ask, decide: Decide) -> None:
    """However many equal requests came later, the one that is named is the one that counts."""
    named = ask(call_id="named")["approval_id"]
    decide(named)
    for _ in range(21):
        decide(ask()["approval_id"])
        assert ask() == ALLOWED
    assert ask(approval_id=named) == ALLOWED


def test_a_pending_approval_id_is_held_under_itself(ask: Ask) -> None:
    """Naming the pending request answers that request."""
    approval = ask({"t": 1})["approval_id"]
    assert ask({"t": 1}, approval_id=approval)["approval_id"] == approval


def test_an_approval_id_only_narrows(acme: Owner, rival: Owner, ask: Ask, decide: Decide) -> None:
    """An unknown, foreign, or another context's approval is blocked and makes no request."""
    stranger = rival.agent()
    rival.permit(stranger, "db.drop", requires_approval=True)
    foreign = rival.check(stranger, "db.drop").json()["approval_id"]
    rival.http.post(f"/api/approvals/{foreign}/approve")
    approved = ask({"t": 1})["approval_id"]
    decide(approved)
    for wrong in (UNKNOWN, "x", foreign):
        assert_blocked(ask({"t": 1}, approval_id=wrong))
    assert_blocked(ask({"t": 2}, approval_id=approved))
    assert_blocked(ask({"t": 1}, approval_id=approved, run_id="other"))
    assert ask({"t": 1}, approval_id=approved) == ALLOWED


def test_an_approval_id_opens_nothing_where_no_approval_is_needed(acme: Owner, bot: str, ask: Ask) -> None:
    """It narrows on every action: where the check would pass by itself an unknown one still blocks."""
    acme.permit(bot, "free")
    result = acme.check(bot, "free", approval_id=UNKNOWN).json()
    assert_blocked(result)
    assert_blocked(acme.check(bot, "free", approval_id=UNKNOWN, dry_run=True).json())
    assert acme.check(bot, "free").json() == ALLOWED


@pytest.mark.parametrize("how", ["approve", "deny"])
def test_a_finished_approval_id_is_blocked(ask: Ask, decide: Decide, how: str) -> None:
    """A used-up or denied approval, named again, is blocked rather than asked anew."""
    approval = ask()["approval_id"]
    decide(approval, how)
    if how == "approve":
        assert ask(approval_id=approval) == ALLOWED
    assert_blocked(ask(approval_id=approval))


def test_a_lost_answer_is_repeated_to_the_same_attempt(
    acme: Owner, bot: str, ask: Ask, decide: Decide
) -> None:
    """The same Idempotency-Key repeats the answer that used up an approval, with its decision id."""
    decide(ask({"t": 1})["approval_id"])
    first = attempt(acme, bot, "key-1")
    again = attempt(acme, bot, "key-1")
    assert first.json() == again.json() == ALLOWED
    assert first.headers["X-Decision-ID"] == again.headers["X-Decision-ID"]
    assert attempt(acme, bot, "key-2").json()["requires_approval"] is True
    assert attempt(acme, bot, "key-1").json() == ALLOWED


def test_parallel_retries_of_one_attempt_use_one_approval(
    acme: Owner, bot: str, ask: Ask, decide: Decide
) -> None:
    """Ten copies of one attempt at once get one decision, ten times."""
    decide(ask({"t": 1})["approval_id"])
    answers = together(*[partial(attempt, acme, bot, "race")] * 10)
    assert [answer.json() for answer in answers] == [ALLOWED] * 10
    assert len({answer.headers["X-Decision-ID"] for answer in answers}) == 1


def test_the_key_repeats_nothing_to_another_check(acme: Owner, bot: str, ask: Ask, decide: Decide) -> None:
    """Another context under a used key is another check."""
    decide(ask({"t": 1})["approval_id"])
    assert attempt(acme, bot, "key").json() == ALLOWED
    assert attempt(acme, bot, "key", {"t": 2}).json()["requires_approval"] is True


def test_the_answer_is_repeated_for_ten_minutes(
    gateway: LiveGateway, acme: Owner, bot: str, ask: Ask, decide: Decide
) -> None:
    """After ten minutes the same key is a new attempt, which may use up a new approval."""
    decide(ask({"t": 1})["approval_id"])
    assert attempt(acme, bot, "slow").json() == ALLOWED
    lasts = "SELECT created_at, expires_at FROM idempotency_keys WHERE organization_id = ? AND key = 'slow'"
    [(made, ends)] = rows(gateway, lasts, acme.user["organization_id"])
    assert datetime.fromisoformat(ends) - datetime.fromisoformat(made) == timedelta(minutes=10)
    statement = (
        "UPDATE idempotency_keys SET expires_at = created_at WHERE organization_id = ? AND key = 'slow'"
    )
    assert execute(gateway, statement, acme.user["organization_id"]) == 1
    held = attempt(acme, bot, "slow").json()
    assert held["requires_approval"] is True
    decide(held["approval_id"])
    assert attempt(acme, bot, "slow").json() == attempt(acme, bot, "slow").json() == ALLOWED


def test_a_repeated_answer_does_not_outlive_the_permission(
    acme: Owner, bot: str, ask: Ask, decide: Decide, permission: str
) -> None:
    """What was taken away since is refused, also to a retry."""
    decide(ask({"t": 1})["approval_id"])
    assert attempt(acme, bot, "key").json() == ALLOWED
    acme.http.delete(f"/api/permissions/{permission}")
    assert_blocked(attempt(acme, bot, "key").json())


def attempt(owner: Owner, agent: str, key: str, context: object = None) -> httpx.Response:
    body = {"agent_id": agent, "action": "db.drop", "context": context or {"t": 1}}
    headers = {"X-API-Key": owner.key, "Idempotency-Key": f"{agent}-{key}" if key != "slow" else key}
    return owner.http.post("/sdk/check", json=body, headers=headers)


def assert_blocked(result: dict[str, object]) -> None:
    assert (result["allowed"], result["requires_approval"], result["approval_id"]) == (False, False, None)


def test_a_denial_is_no_other_calls_chance(ask: Ask, decide: Decide) -> None:
    """A new `call_id` on the equal check meets the same denial (decisions §5)."""
    decide(ask({"k": 3}, call_id="d1")["approval_id"], "deny", note="not this table")
    for again in (ask({"k": 3}, call_id="d1"), ask({"k": 3}, call_id="d2"), ask({"k": 3})):
        assert (again["allowed"], again["requires_approval"]) == (False, False)
        assert "not this table" in again["reason"]
    assert ask({"k": 4}, call_id="d2")["requires_approval"] is True


def test_a_call_that_used_an_approval_by_its_id_was_let_through(ask: Ask, decide: Decide) -> None:
    """Whoever's request it was: the call that used it up does not happen again (decisions §5)."""
    for asked in ({}, {"call_id": "asker"}):
        approval = ask({"t": 7}, **asked)["approval_id"]
        decide(approval)
        call = f"user of {approval}"
        assert ask({"t": 7}, approval_id=approval, call_id=call) == ALLOWED
        assert "has already been allowed once" in ask({"t": 7}, call_id=call)["reason"]
