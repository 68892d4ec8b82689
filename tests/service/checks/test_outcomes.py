"""Every row of the outcome table of POST /sdk/check (spec §4)."""

import pytest
from support.gateway import Owner
from support.shapes import UUID7

FIELDS = {"allowed", "requires_approval", "reason", "approval_id"}
ALLOWED = {"allowed": True, "requires_approval": False, "reason": None, "approval_id": None}
UNKNOWN = "01890000-0000-7000-8000-000000000000"


def blocked(owner: Owner, agent: str, action: str, context: object = None) -> str:
    """Return the reason of a check that must be blocked."""
    answer = owner.check(agent, action, context)
    assert answer.status_code == 200
    result = answer.json()
    assert set(result) == FIELDS
    assert (result["allowed"], result["requires_approval"], result["approval_id"]) == (False, False, None)
    assert UUID7.fullmatch(answer.headers["X-Decision-ID"])
    reason: str = result["reason"]
    return reason


def test_permitted(acme: Owner, bot: str) -> None:
    """A permission without conditions: true, false, null, null; and a decision id (decisions §4)."""
    acme.permit(bot, "mail.send")
    answer = acme.check(bot, "mail.send", {"to": "a@example.test"})
    assert (answer.status_code, answer.json()) == (200, ALLOWED)
    assert answer.headers["Content-Type"] == "application/json"
    assert UUID7.fullmatch(answer.headers["X-Decision-ID"])


def test_decision_ids_differ(acme: Owner, bot: str) -> None:
    """Every answer is a decision of its own."""
    acme.permit(bot, "mail.send")
    ids = {acme.check(bot, "mail.send").headers["X-Decision-ID"] for _ in range(5)}
    assert len(ids) == 5


def test_held_for_approval(acme: Owner, bot: str) -> None:
    """A permission that requires approval: false, true, a text that says so, and an approval's id."""
    acme.permit(bot, "db.drop", requires_approval=True)
    answer = acme.check(bot, "db.drop")
    assert answer.status_code == 200
    result = answer.json()
    assert set(result) == FIELDS
    assert (result["allowed"], result["requires_approval"]) == (False, True)
    assert "needs human approval" in result["reason"]
    assert UUID7.fullmatch(result["approval_id"])
    assert UUID7.fullmatch(answer.headers["X-Decision-ID"])


def test_blocked_without_a_permission(acme: Owner, bot: str) -> None:
    """Without a permission the reason names the action."""
    acme.permit(bot, "mail.send")
    assert "'mail.delete'" in blocked(acme, bot, "mail.delete")


@pytest.mark.parametrize("action", ["MAIL.SEND", "mail.send.all", "mail", "mail.*", "*", "mail.sen"])
def test_actions_are_compared_letter_by_letter(acme: Owner, bot: str, action: str) -> None:
    """No case folding, no prefixes, no wildcards (decisions §2)."""
    acme.permit(bot, "mail.send")
    assert repr(action) in blocked(acme, bot, action)


def test_blocked_above_the_maximum(acme: Owner, bot: str) -> None:
    """Above the maximum the reason names the amount and the maximum (spec §4)."""
    acme.permit(bot, "stripe.refund", max_amount=100.5)
    reason = blocked(acme, bot, "stripe.refund", {"amount": 250.75})
    assert "250.75" in reason
    assert "100.5" in reason


def test_above_the_maximum_nobody_is_asked(acme: Owner, bot: str) -> None:
    """An amount above the maximum is blocked even where approval is required, and no request is made (decisions §4)."""
    acme.permit(bot, "stripe.refund", max_amount=100, requires_approval=True)
    blocked(acme, bot, "stripe.refund", {"amount": 101})
    assert acme.http.get("/api/approvals", params={"agent_id": bot}).json() == []
    assert acme.check(bot, "stripe.refund", {"amount": 100}).json()["requires_approval"] is True


def test_an_inactive_agent_is_blocked_until_it_is_active_again(acme: Owner, bot: str) -> None:
    """A switched-off agent gets a blocked decision that says so (decisions §4)."""
    acme.permit(bot, "mail.send")
    acme.http.put(f"/api/agents/{bot}", json={"status": "inactive"})
    assert "inactive" in blocked(acme, bot, "mail.send")
    acme.http.put(f"/api/agents/{bot}", json={"status": "active"})
    assert acme.check(bot, "mail.send").json() == ALLOWED


def test_unknown_foreign_and_deleted_agents_are_blocked_alike(acme: Owner, rival: Owner, bot: str) -> None:
    """One and the same reason: nobody learns which ids exist elsewhere (decisions §4)."""
    foreign = rival.agent()
    rival.permit(foreign, "mail.send")
    acme.permit(bot, "mail.send")
    acme.http.delete(f"/api/agents/{bot}")
    reasons = {blocked(acme, agent, "mail.send") for agent in (UNKNOWN, foreign, bot, bot.upper())}
    assert len(reasons) == 1
    assert reasons.pop().startswith("Agent not found")


def test_another_agents_permission_is_not_ones_own(acme: Owner, bot: str) -> None:
    """Permissions are an agent's, not an organization's."""
    acme.permit(bot, "mail.send")
    assert "no permission" in blocked(acme, acme.agent(), "mail.send")


def test_a_check_writes_no_log_entry(acme: Owner, bot: str) -> None:
    """Only POST /sdk/log writes the log (decisions §4)."""
    acme.permit(bot, "mail.send")
    acme.permit(bot, "db.drop", requires_approval=True)
    for action in ("mail.send", "db.drop", "nothing"):
        acme.check(bot, action)
    assert acme.entries(agent_id=bot) == []


def test_a_lowered_maximum_counts_at_once(acme: Owner, bot: str) -> None:
    """A permission's change is seen by the very next check."""
    permission = acme.permit(bot, "pay", max_amount=10)
    assert acme.check(bot, "pay", {"amount": 8}).json() == ALLOWED
    acme.http.put(f"/api/permissions/{permission}", json={"max_amount": 5})
    blocked(acme, bot, "pay", {"amount": 8})
    acme.http.put(f"/api/permissions/{permission}", json={"max_amount": None})
    assert acme.check(bot, "pay", {"amount": 8}).json() == ALLOWED
    acme.http.put(f"/api/permissions/{permission}", json={"requires_approval": True})
    assert acme.check(bot, "pay", {"amount": 8}).json()["requires_approval"] is True
