"""Several people, other arguments, and the same for a while: by the command line, at a live gateway."""

from pathlib import Path

import pytest
from support.command_line import CommandLine
from support.gateway import PASSWORD, Owner
from support.team import Colleague

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

REFUND = {"amount": 250, "order": "1002"}


@pytest.fixture
def user(tmp_path: Path, owner: Owner) -> CommandLine:
    """The owner at a shell, logged in."""
    user = CommandLine(tmp_path / "home")
    user.log_in(owner)
    return user


def held(owner: Owner, **permission: object) -> tuple[str, str]:
    """Make an agent ask for a refund; return the agent's and the approval's id."""
    agent_id = owner.agent("shop-assistant")
    owner.permit(agent_id, "stripe.refund", requires_approval=True, **permission)
    return agent_id, owner.check(agent_id, "stripe.refund", REFUND).json()["approval_id"]


def approve(user: CommandLine, approval_id: str, *options: str) -> str:
    return user.done("approvals", "approve", approval_id, "--password-stdin", *options, typed=PASSWORD)


def test_two_people_decide_together(user, owner, tmp_path):
    """The first vote counts and says that one more is needed; voting again is refused; the second lets it happen."""
    agent_id, approval_id = held(owner, required_approvals=2)
    assert "your vote is stored (1 of 2 approvals): one more person has to approve" in approve(
        user, approval_id
    )
    refusal = user.refused("approvals", "approve", approval_id, "--password-stdin", typed=PASSWORD)
    assert (
        refusal
        == "nothing was decided: You have already approved this request; it needs the approval of another user"
    )
    colleague = Colleague(owner)
    other = CommandLine(tmp_path / "other")
    other.done("login", "--url", owner.url, "--email", colleague.email, "--password-stdin", typed=PASSWORD)
    shown = approve(other, approval_id)
    assert f"approved by {owner.email}" in shown
    assert "approved: shop-assistant may make this call once" in shown
    assert owner.check(agent_id, "stripe.refund", REFUND).json()["allowed"] is True


def test_an_edited_request_is_another(user, owner):
    """What was asked is replaced; the edited call alone passes, with its id."""
    agent_id, approval_id = held(owner)
    shown = approve(user, approval_id, "--edit", "amount=40.00")
    (new,) = [line.rsplit(" ", 1)[1] for line in shown.splitlines() if line.startswith("your edit created")]
    assert "approved: shop-assistant may make this call once" in shown
    page = user.done("approvals", "show", approval_id)
    assert f"Approval {approval_id} · replaced" in page
    assert f"  replaced by  {new}" in page
    assert "  │ amount  40" in page
    assert owner.check(agent_id, "stripe.refund", REFUND).json()["allowed"] is False
    edited = owner.check(agent_id, "stripe.refund", {**REFUND, "amount": 40}, approval_id=new)
    assert edited.json()["allowed"] is True


def test_the_same_is_allowed_for_a_while(user, owner):
    """A grant's fields may differ where they were named, its amount be smaller, and its uses are counted."""
    agent_id, approval_id = held(owner)
    shown = approve(user, approval_id, "--for", "1h", "--uses", "2", "--ignore-field", "order")
    assert "is active: 2 more calls like this one are approved" in shown
    passed = [
        owner.check(agent_id, "stripe.refund", context).json()["allowed"]
        for context in (
            REFUND,
            {"amount": 9, "order": "1003"},
            {"amount": 251, "order": "1003"},
            REFUND,
            REFUND,
        )
    ]
    assert passed == [True, True, False, True, False]


def test_a_grant_waits_for_everybody(user, owner):
    """With a quorum the first vote only proposes the grant, and says so."""
    _, approval_id = held(owner, required_approvals=2)
    shown = approve(user, approval_id, "--for", "1h", "--uses", "2")
    assert "your vote is stored (1 of 2 approvals)" in shown
    assert "starts when all required people have approved" in shown


def test_what_is_allowed_for_a_while_is_listed_and_revoked(user, owner):
    """The list shows what may be done how often; revoked, the next call is held; a second time is refused."""
    agent_id, approval_id = held(owner)
    assert user.done("grants", "list").startswith("no temporary approvals")
    approve(user, approval_id, "--for", "1h", "--uses", "2", "--ignore-field", "order")
    (grant,) = owner.http.get("/api/grants").json()
    page = user.done("grants", "list")
    assert page.startswith(f"Grant {grant['id']} · active")
    for line in ("uses left", "2 of 2", "may differ", "order", "│ amount  250"):
        assert line in page
    refusal = user.refused("grants", "revoke", grant["id"], "--password-stdin", typed="not the password")
    assert "password" in refusal.lower() or "credentials" in refusal.lower()
    assert owner.check(agent_id, "stripe.refund", REFUND | {"order": "1"}).json()["allowed"] is True
    said = user.done("grants", "revoke", grant["id"], "--password-stdin", typed=PASSWORD)
    assert said == "revoked: each call of stripe.refund by shop-assistant needs an approval again\n"
    assert owner.check(agent_id, "stripe.refund", REFUND | {"order": "2"}).json()["allowed"] is False
    again = user.refused("grants", "revoke", grant["id"], "--password-stdin", typed=PASSWORD)
    assert again == "Grant is no longer active: it is revoked"
    assert "invalid id" in user.refused("grants", "revoke", "../x", "--password-stdin", typed=PASSWORD)
    assert "· revoked" in user.done("grants", "list", "--all")
