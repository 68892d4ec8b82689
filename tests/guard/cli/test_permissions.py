"""`toolgate permissions`, in this process, at a live gateway."""

from typing import Any

import pytest
from support.gateway import PASSWORD, LiveGateway, Owner
from support.shell import Shell
from support.tables import rows
from support.team import Colleague

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


def permissions(owner: Owner, agent_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = owner.http.get(f"/api/agents/{agent_id}/permissions").json()
    return found


@pytest.fixture
def agent_id(owner: Owner) -> str:
    return owner.agent("refund-bot")


def test_a_permission_is_granted_as_it_is_written(shell: Shell, owner: Owner, agent_id: str) -> None:
    """Every term reaches the gateway with its digits, and is told."""
    said = shell.allowed(
        *(
            "permissions",
            "create",
            "refund-bot",
            "stripe.refund",
            "--max-amount",
            "99.50",
            "--amount-required",
        ),
        *("--requires-approval", "--required-approvals", "2", "--separation-of-duties", "--ttl", "2h"),
    )
    assert said == (
        "refund-bot may do stripe.refund: amount at most 99.5 (required), "
        "approval 2 people, but not the creators of the agent or permission, within 2 h\n"
    )
    (granted,) = permissions(owner, agent_id)
    assert {name: granted[name] for name in granted if name not in {"id", "agent_id", "created_at"}} == {
        "action": "stripe.refund",
        "max_amount": 99.5,
        "amount_required": True,
        "requires_approval": True,
        "required_approvals": 2,
        "separation_of_duties": True,
        "approval_ttl_seconds": 7200,
    }
    assert shell.json("permissions", "list", "refund-bot") == permissions(owner, agent_id)


def test_what_is_not_written_stays(shell: Shell, owner: Owner, agent_id: str) -> None:
    """A change touches the written terms alone; --no-… lifts them."""
    owner.permit(agent_id, "mail.send", max_amount=5, requires_approval=True, approval_ttl_seconds=60)
    shell.allowed("permissions", "update", "refund-bot", "mail.send", "--max-amount", "7")
    (now,) = permissions(owner, agent_id)
    assert (now["max_amount"], now["requires_approval"], now["approval_ttl_seconds"]) == (7, True, 60)
    shell.allowed(
        *(
            "permissions",
            "update",
            agent_id,
            now["id"],
            "--no-max-amount",
            "--no-requires-approval",
            "--no-ttl",
        )
    )
    (now,) = permissions(owner, agent_id)
    assert (now["max_amount"], now["requires_approval"], now["approval_ttl_seconds"]) == (None, False, None)


def test_maximum_blocks_calls_without_amount(shell: Shell, owner: Owner, agent_id: str) -> None:
    said = shell.allowed("permissions", "create", "refund-bot", "pay", "--max-amount", "100")
    assert said == "refund-bot may do pay: amount at most 100 (required), approval no\n"
    assert permissions(owner, agent_id)[0]["amount_required"] is True
    answer = owner.check(agent_id, "pay").json()
    assert (answer["allowed"], "is required" in answer["reason"]) == (False, True)


def test_maximum_with_optional_amount(shell: Shell, owner: Owner, agent_id: str) -> None:
    words = ("refund-bot", "pay", "--max-amount", "100", "--no-amount-required")
    assert "at most 100, approval" in shell.allowed("permissions", "create", *words)
    assert owner.check(agent_id, "pay").json()["allowed"] is True


def test_changes_keep_amount_required_in_line_with_maximum(shell: Shell, owner: Owner, agent_id: str) -> None:
    """Adding a maximum requires the amount, changing it leaves the choice, removing it resets the choice."""
    owner.permit(agent_id, "pay")

    def change(*words: str) -> tuple[object, object]:
        shell.allowed("permissions", "update", "refund-bot", "pay", *words)
        (now,) = permissions(owner, agent_id)
        return now["max_amount"], now["amount_required"]

    assert change("--requires-approval") == (None, False)
    assert change("--max-amount", "5") == (5, True)
    assert change("--no-max-amount") == (None, False)
    assert change("--max-amount", "5", "--no-amount-required") == (5, False)
    assert change("--max-amount", "7") == (7, False)
    assert change("--amount-required") == (7, True)
    assert change("--no-max-amount") == (None, False)


@pytest.mark.parametrize(
    "words",
    [
        ("create", "refund-bot", "mail.send", "--amount-required"),
        ("update", "refund-bot", "pay", "--amount-required"),
        ("update", "refund-bot", "capped", "--no-max-amount", "--amount-required"),
    ],
)
def test_required_amount_needs_maximum(
    shell: Shell, owner: Owner, agent_id: str, words: tuple[str, ...]
) -> None:
    owner.permit(agent_id, "pay")
    owner.permit(agent_id, "capped", max_amount=5)
    before = permissions(owner, agent_id)
    assert "add --max-amount" in shell.refused("permissions", *words)
    assert permissions(owner, agent_id) == before


def test_list_shows_required_only_with_maximum(shell: Shell, owner: Owner, agent_id: str) -> None:
    owner.permit(agent_id, "mail.send", amount_required=True)
    assert "(required)" not in shell.done("permissions", "list", "refund-bot")
    owner.permit(agent_id, "pay", max_amount=5, amount_required=True)
    assert shell.done("permissions", "list", "refund-bot").count("5 (required)") == 1


@pytest.mark.parametrize("action", ["*", "stripe.*", "stripe.refun?"])
def test_wildcards_are_refused(shell: Shell, owner: Owner, agent_id: str, action: str) -> None:
    line = shell.refused("permissions", "create", "refund-bot", action)
    assert repr(action) in line
    assert "match actions exactly" in line
    assert permissions(owner, agent_id) == []


def test_a_revoked_permission_is_gone(shell: Shell, owner: Owner, agent_id: str) -> None:
    """The agent's very next check is blocked; without --yes nothing happens."""
    owner.permit(agent_id, "mail.send")
    assert "--yes" in shell.refused("permissions", "delete", "refund-bot", "mail.send")
    assert owner.check(agent_id, "mail.send").json()["allowed"] is True
    shell.allowed("permissions", "delete", "refund-bot", "mail.send", "--yes")
    assert owner.check(agent_id, "mail.send").json()["allowed"] is False
    assert shell.done("permissions", "list", "refund-bot") == "refund-bot has no permissions\n"


def test_one_permission_is_shown(shell: Shell, owner: Owner, agent_id: str) -> None:
    owner.permit(agent_id, "pay", max_amount=5, amount_required=True)
    owner.permit(agent_id, "mail.send")
    assert shell.done("permissions", "show", "refund-bot", "pay") == (
        "refund-bot may do pay: amount at most 5 (required), approval no\n"
    )
    assert shell.json("permissions", "show", "refund-bot", "pay")["action"] == "pay"
    assert "toolgate permissions list" in shell.refused("permissions", "show", "refund-bot", "other")


def test_the_stored_login_grants_nothing(shell: Shell, owner: Owner, agent_id: str) -> None:
    """Without the password, or with a wrong one, nothing is granted, changed or taken, and no password is repeated."""
    owner.permit(agent_id, "mail.send", max_amount=5)
    before = permissions(owner, agent_id)
    for words in (
        ["create", "refund-bot", "db.drop"],
        ["update", "refund-bot", "mail.send", "--no-max-amount"],
        ["delete", "refund-bot", "mail.send", "--yes"],
    ):
        line = shell.refused("permissions", *words, "--password-stdin", typed="guessed wrong\n")
        assert line.startswith("nothing was changed: ")
        assert "guessed" not in line
    assert permissions(owner, agent_id) == before


def test_a_member_may_not_grant(home: Any, owner: Owner, agent_id: str) -> None:
    """The gateway's rule, told in one line."""
    with Colleague(owner, "member") as member:
        line = Shell.of(member).refused(
            "permissions", "create", "refund-bot", "db.drop", "--password-stdin", typed=PASSWORD
        )
    assert "only an admin" in line
    assert permissions(owner, agent_id) == []


def test_what_is_there_is_not_granted_again(shell: Shell, owner: Owner, agent_id: str) -> None:
    """One permission for an action."""
    owner.permit(agent_id, "mail.send")
    line = shell.refused(
        "permissions", "create", "refund-bot", "mail.send", "--password-stdin", typed=PASSWORD
    )
    assert "already" in line
    assert len(permissions(owner, agent_id)) == 1


def test_the_login_of_a_change_ends_with_it(
    shell: Shell, live_gateway: LiveGateway, owner: Owner, agent_id: str
) -> None:
    """Whatever the command logged in for itself works no more, be it that it succeeded or not."""
    query = "SELECT id FROM sessions WHERE user_id = ? AND revoked_at IS NULL"
    before = rows(live_gateway, query, owner.user["id"])
    words = ("permissions", "create", "refund-bot", "mail.send", "--password-stdin")
    shell.done(*words, typed=PASSWORD)
    shell.refused(*words, typed=PASSWORD)
    assert rows(live_gateway, query, owner.user["id"]) == before
