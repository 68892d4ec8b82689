"""An approval lets the same check through exactly once (decisions §5)."""

from collections import Counter
from functools import partial

import pytest
from support.asking import Ask, Decide, State
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import rows, set_active, set_role

ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}


def test_the_same_check_passes_once_and_is_held_anew(ask: Ask, decide: Decide, state: State) -> None:
    """After approval: allowed, consumed; the next equal check is a new request."""
    approval = ask({"t": 1})["approval_id"]
    decide(approval)
    assert ask({"t": 1}, dry_run=True) == ALLOWED
    assert state(approval) == "approved"
    assert ask({"t": 1}) == ALLOWED
    assert state(approval) == "consumed"
    again = ask({"t": 1})
    assert again["requires_approval"] is True
    assert again["approval_id"] != approval


def test_of_twenty_parallel_checks_one_passes(acme: Owner, bot: str, ask: Ask, decide: Decide) -> None:
    """Twenty simultaneous equal checks after one approval: one allowed, nineteen held under one new id."""
    approval = ask()["approval_id"]
    decide(approval)
    results = [answer.json() for answer in together(*[partial(acme.check, bot, "db.drop")] * 20)]
    assert Counter(result["allowed"] for result in results) == {True: 1, False: 19}
    held = {result["approval_id"] for result in results if not result["allowed"]}
    assert len(held) == 1
    assert approval not in held


@pytest.mark.parametrize(
    "changes",
    [{"context": {"t": 2}}, {"run_id": "other"}, {"call_id": "c"}, {"context": {"t": 1, "x": None}}],
)
def test_another_check_does_not_use_it_up(
    acme: Owner, bot: str, ask: Ask, decide: Decide, state: State, changes: dict[str, object]
) -> None:
    """Another context, run or call does not pass by this approval, which stays as it is."""
    approval = ask({"t": 1})["approval_id"]
    decide(approval)
    assert acme.check(bot, "db.drop", **{"context": {"t": 1}} | changes).json()["allowed"] is False
    assert state(approval) == "approved"
    assert ask({"t": 1}) == ALLOWED


def test_the_decision_id_is_remembered_with_the_approval(
    gateway: LiveGateway, acme: Owner, bot: str, ask: Ask, decide: Decide
) -> None:
    """The answer that used up an approval carries the decision id that the approval keeps."""
    approval = ask()["approval_id"]
    decide(approval)
    answer = acme.check(bot, "db.drop")
    stored = rows(gateway, "SELECT decision_id FROM approvals WHERE id = ?", approval)
    assert stored == [(answer.headers["X-Decision-ID"],)]


def test_a_lowered_maximum_wins_over_an_approval(acme: Owner, bot: str, decide: Decide) -> None:
    """What was lowered between approval and use wins: blocked, and nothing is used up."""
    permission = acme.permit(bot, "pay", requires_approval=True, max_amount=100)
    approval = acme.check(bot, "pay", {"amount": 80}).json()["approval_id"]
    decide(approval)
    acme.http.put(f"/api/permissions/{permission}", json={"max_amount": 50})
    blocked = acme.check(bot, "pay", {"amount": 80}).json()
    assert (blocked["allowed"], blocked["requires_approval"]) == (False, False)
    acme.http.put(f"/api/permissions/{permission}", json={"max_amount": 100})
    assert acme.check(bot, "pay", {"amount": 80}).json() == ALLOWED


def test_an_approver_who_lost_the_right_no_longer_counts(gateway: LiveGateway, newcomer: Owner) -> None:
    """The approver's right is looked at again when the approval is used (decisions §5)."""
    bot = newcomer.agent()
    newcomer.permit(bot, "db.drop", requires_approval=True)
    approval = newcomer.check(bot, "db.drop").json()["approval_id"]
    assert newcomer.http.post(f"/api/approvals/{approval}/approve").status_code == 200
    set_role(gateway, newcomer, "viewer")
    assert newcomer.check(bot, "db.drop").json()["allowed"] is False
    set_role(gateway, newcomer, "admin")
    assert newcomer.check(bot, "db.drop").json() == ALLOWED


def test_an_inactive_organization_uses_no_approval(gateway: LiveGateway, newcomer: Owner) -> None:
    """While the organization is inactive an approved check is 401, afterwards it passes."""
    bot = newcomer.agent()
    newcomer.permit(bot, "db.drop", requires_approval=True)
    approval = newcomer.check(bot, "db.drop").json()["approval_id"]
    newcomer.http.post(f"/api/approvals/{approval}/approve")
    set_active(gateway, newcomer, active=False)
    assert newcomer.check(bot, "db.drop").status_code == 401
    set_active(gateway, newcomer, active=True)
    assert newcomer.check(bot, "db.drop").json() == ALLOWED


def test_a_permission_that_no_longer_asks_lets_through_at_once(
    acme: Owner, bot: str, ask: Ask, permission: str
) -> None:
    """Where approval is no longer required a check passes without one."""
    assert ask()["requires_approval"] is True
    acme.http.put(f"/api/permissions/{permission}", json={"requires_approval": False})
    assert ask() == ALLOWED
