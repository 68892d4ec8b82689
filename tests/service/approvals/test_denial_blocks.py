"""Ten denials of one agent and action within 15 minutes block the pair for 15 minutes (decisions §5)."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.asking import Ask, Decide
from support.crowd import together
from support.gateway import PASSWORD, LiveGateway, Owner
from support.insight import execute, rows, set_role
from support.shapes import MOMENT, complaints, refused

from toolgate_service.core.clock import from_wire, wire

UNKNOWN = "01890000-0000-7000-8000-000000000000"


@pytest.fixture
def deny(ask: Ask, decide: Decide) -> Callable[[int], str]:
    """Asks with a number of its own and denies; returns the approval's id."""

    def denying(n: int) -> str:
        approval: str = ask({"n": n})["approval_id"]
        decide(approval, "deny", note="no")
        return approval

    return denying


def blocked(result: dict[str, Any]) -> bool:
    """Say whether a result is blocked because of the denials, and its reason says until when."""
    if result["requires_approval"] or result["allowed"]:
        return False
    assert result["approval_id"] is None
    assert "is blocked until 20" in result["reason"]
    assert "an admin can unblock it" in result["reason"]
    return True


def listed(owner: Owner, bot: str) -> list[dict[str, str]]:
    answer = owner.http.get(f"/api/agents/{bot}/denial-blocks")
    assert answer.status_code == 200
    found: list[dict[str, str]] = answer.json()
    return found


def clear(owner: Owner, bot: str, action: str = "db.drop") -> Any:
    return owner.http.delete(f"/api/agents/{bot}/denial-blocks", params={"action": action})


def shift(gateway: LiveGateway, approvals: list[str], **back: int) -> None:
    """Move denials into the past."""
    for approval in approvals:
        [(moment,)] = rows(gateway, "SELECT decided_at FROM approvals WHERE id = ?", approval)
        earlier = wire(from_wire(moment) - timedelta(**back))
        assert execute(gateway, "UPDATE approvals SET decided_at = ? WHERE id = ?", earlier, approval) == 1


def test_ten_denials_block_the_pair(acme: Owner, bot: str, ask: Ask, deny: Callable[[int], str]) -> None:
    """Nine do not, ten do: whatever context is blocked with a reason and until when, also in a dry run."""
    for n in range(9):
        deny(n)
    assert listed(acme, bot) == []
    assert ask({"n": 9}, dry_run=True)["requires_approval"] is True
    tenth = acme.http.get(f"/api/approvals/{deny(9)}").json()
    assert blocked(ask({"n": 10}))
    assert blocked(ask({"n": 10}, dry_run=True))
    assert blocked(ask({"n": 10}, run_id="another", call_id="another"))
    assert "Denied by a person: no" in ask({"n": 9})["reason"]
    [block] = listed(acme, bot)
    until = wire(from_wire(tenth["decided_at"]) + timedelta(minutes=15))
    assert block == {"action": "db.drop", "blocked_until": until}
    assert MOMENT.fullmatch(until)
    assert until in ask({"n": 10})["reason"]
    assert len(acme.http.get("/api/approvals", params={"agent_id": bot}).json()) == 10


def test_another_agent_and_another_action_are_not_blocked(
    acme: Owner, bot: str, ask: Ask, deny: Callable[[int], str]
) -> None:
    """The block is the pair's alone, and outlives the permission: granting anew is no way around."""
    for n in range(10):
        deny(n)
    acme.permit(bot, "db.wipe", requires_approval=True)
    assert acme.check(bot, "db.wipe").json()["requires_approval"] is True
    other = acme.agent()
    acme.permit(other, "db.drop", requires_approval=True)
    assert acme.check(other, "db.drop").json()["requires_approval"] is True
    [permission] = [
        one["id"]
        for one in acme.http.get(f"/api/agents/{bot}/permissions").json()
        if one["action"] == "db.drop"
    ]
    acme.http.delete(f"/api/permissions/{permission}")
    acme.permit(bot, "db.drop", requires_approval=True)
    assert blocked(ask({"n": 10}))


def test_what_waits_and_what_a_person_approved_is_not_blocked(
    ask: Ask, decide: Decide, deny: Callable[[int], str]
) -> None:
    """The block keeps people from being asked anew: a pending request keeps its id, an approved one passes once."""
    pending, approved = ask({"p": 1})["approval_id"], ask({"a": 1})["approval_id"]
    for n in range(10):
        deny(n)
    assert ask({"p": 1})["approval_id"] == pending
    decide(approved)
    assert ask({"a": 1})["allowed"] is True
    assert blocked(ask({"a": 1}))


def test_the_block_ends_by_itself(
    gateway: LiveGateway, ask: Ask, acme: Owner, bot: str, deny: Callable[[int], str]
) -> None:
    """It lasts 15 minutes from the tenth denial, even when the first has long left the window."""
    denials = [deny(n) for n in range(10)]
    shift(gateway, denials[:9], minutes=14)
    shift(gateway, denials, minutes=14, seconds=50)
    assert blocked(ask({"n": 10}))
    shift(gateway, denials, seconds=11)
    assert listed(acme, bot) == []
    assert ask({"n": 10})["requires_approval"] is True


def test_denials_further_apart_do_not_block(
    gateway: LiveGateway, ask: Ask, deny: Callable[[int], str]
) -> None:
    """Ten denials over more than 15 minutes are ordinary."""
    denials = [deny(n) for n in range(9)]
    shift(gateway, denials[:1], minutes=15, seconds=1)
    deny(9)
    assert ask({"n": 10})["requires_approval"] is True


def test_an_admin_clears_it(
    gateway: LiveGateway, acme: Owner, bot: str, ask: Ask, decide: Decide, deny: Callable[[int], str]
) -> None:
    """Cleared, the pair may be asked again, old denials count no more, and the clearing is audited."""
    for n in range(10):
        deny(n)
    answer = clear(acme, bot)
    assert (answer.status_code, answer.content) == (204, b"")
    assert listed(acme, bot) == []
    query = "SELECT user_id, changes FROM audit_entries WHERE kind = 'agent.denial_block_cleared' AND resource_id = ?"
    assert rows(gateway, query, bot) == [(acme.user["id"], '{"action":"db.drop"}')]
    assert "Denied by a person" in ask({"n": 9})["reason"]
    decide(ask({"n": 10})["approval_id"], "deny")
    assert ask({"n": 11})["requires_approval"] is True
    for n in range(12, 21):
        deny(n)
    assert blocked(ask({"n": 21}))
    assert clear(acme, bot).status_code == 204
    assert ask({"n": 21})["requires_approval"] is True


def test_what_is_not_blocked_cannot_be_cleared(acme: Owner, rival: Owner, bot: str) -> None:
    """404 for a pair without a block, an unknown agent and another organization's; 400 without an action."""
    refused(clear(acme, bot), 404, "Denial block not found")
    for owner, agent in ((acme, UNKNOWN), (acme, "x"), (rival, bot)):
        refused(clear(owner, agent), 404, "Agent not found")
        refused(owner.http.get(f"/api/agents/{agent}/denial-blocks"), 404, "Agent not found")
    assert list(complaints(acme.http.delete(f"/api/agents/{bot}/denial-blocks"))) == ["action"]
    assert list(complaints(clear(acme, bot, "two words"))) == ["action"]


@pytest.fixture
def demoted(gateway: LiveGateway, newcomer: Owner) -> tuple[Owner, str]:
    """A member, and an agent of theirs that is blocked."""
    agent = newcomer.agent()
    newcomer.permit(agent, "db.drop", requires_approval=True)
    for n in range(10):
        approval = newcomer.check(agent, "db.drop", {"n": n}).json()["approval_id"]
        assert newcomer.http.post(f"/api/approvals/{approval}/deny").status_code == 200
    set_role(gateway, newcomer, "member")
    return newcomer, agent


def test_only_an_admin_clears(gateway: LiveGateway, demoted: tuple[Owner, str]) -> None:
    """A member sees the block and may not clear it, and neither may an admin's `cli` token."""
    member, agent = demoted
    assert clear(member, agent).status_code == 403
    set_role(gateway, member, "admin")
    login = {"email": member.email, "password": PASSWORD, "scope": "cli"}
    token = member.http.post("/auth/login", json=login).json()["access_token"]
    path, action = f"/api/agents/{agent}/denial-blocks", {"action": "db.drop"}
    headers = {"Authorization": f"Bearer {token}"}
    assert member.http.delete(path, params=action, headers=headers).status_code == 403
    assert [block["action"] for block in listed(member, agent)] == ["db.drop"]
    assert blocked(member.check(agent, "db.drop", {"n": 10}).json())


def test_the_limit_holds_in_a_crowd(acme: Owner, bot: str, ask: Ask, deny: Callable[[int], str]) -> None:
    """Among denials and checks at once, nobody is asked anew once the tenth denial was answered."""
    for n in range(8):
        deny(n)
    waiting = [ask({"w": n})["approval_id"] for n in range(4)]
    works = [partial(acme.http.post, f"/api/approvals/{approval}/deny") for approval in waiting]
    checks = [partial(acme.check, bot, "db.drop", {"c": n}) for n in range(4)]
    answers = together(*works, *checks)
    assert blocked(ask({"n": 10}))
    held = {answer.json()["approval_id"] for answer in answers[4:] if not blocked(answer.json())}
    asked = acme.http.get("/api/approvals", params={"agent_id": bot, "status": "pending"}).json()
    assert {approval["id"] for approval in asked} == held


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    """The owner at a gateway where two denials block for an hour."""
    env = {"TOOLGATE_DENIALS_BEFORE_BLOCK": "2", "TOOLGATE_DENIAL_BLOCK_SECONDS": "3600"}
    folder = tmp_path_factory.mktemp("hasty")
    with LiveGateway(folder, env=env) as gateway, Owner(gateway.url) as owner:
        yield owner


def test_how_many_and_how_long_are_settings(hasty: Owner) -> None:
    """Two denials block for an hour where the operator says so."""
    bot = hasty.agent()
    hasty.permit(bot, "db.drop", requires_approval=True)
    for n in range(2):
        approval = hasty.check(bot, "db.drop", {"n": n}).json()["approval_id"]
        decided = hasty.http.post(f"/api/approvals/{approval}/deny").json()
    assert blocked(hasty.check(bot, "db.drop", {"n": 2}).json())
    [block] = listed(hasty, bot)
    assert block["blocked_until"] == wire(from_wire(decided["decided_at"]) + timedelta(hours=1))
