"""`toolgate approvals list`, `show`, `approve` and `deny`, as a user types them at a live gateway."""

import json
from pathlib import Path

import httpx
import pytest
from support.command_line import CommandLine
from support.gateway import PASSWORD, LiveGateway, Owner
from support.tables import rows
from support.team import Colleague

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

REFUND = {"order": "1002", "amount": 250, "to": "ada@example.test"}


@pytest.fixture
def user(tmp_path: Path, owner: Owner) -> CommandLine:
    """The owner at a shell, logged in."""
    user = CommandLine(tmp_path / "home")
    user.log_in(owner)
    return user


@pytest.fixture
def held_agent(owner: Owner) -> str:
    """An agent whose refunds are held."""
    agent_id = owner.agent("shop-assistant")
    owner.permit(agent_id, "stripe.refund", requires_approval=True)
    return agent_id


def hold(owner: Owner, agent_id: str, context: object = REFUND, **fields: object) -> str:
    answer = owner.check(agent_id, "stripe.refund", context, **fields).json()
    assert answer["requires_approval"] is True
    approval_id: str = answer["approval_id"]
    return approval_id


def stand(owner: Owner, approval_id: str) -> str:
    status: str = owner.http.get(f"/api/approvals/{approval_id}").json()["status"]
    return status


def sessions(gateway: LiveGateway, owner: Owner) -> int:
    """How many logins of the owner are not over."""
    found = rows(
        gateway, "SELECT id FROM sessions WHERE user_id = ? AND revoked_at IS NULL", owner.user["id"]
    )
    return len(found)


def test_the_list_names_each_by_a_short_id(user, owner, held_agent):
    """A row each, newest first, with what a person looks at; its id is enough for the other commands."""
    assert (
        user.done("approvals", "list")
        == f"no pending approval requests in the production environment at {owner.url}\n"
    )
    first = hold(owner, held_agent)
    second = hold(owner, held_agent, {**REFUND, "amount": 99.5})
    rows = [line.split() for line in user.done("approvals", "list").splitlines() if "shop-assistant" in line]
    assert [row[1:5] for row in rows] == [
        ["shop-assistant", "stripe.refund", f"amount={amount}", 'to="ada@example.test"']
        for amount in ("99.5", "250")
    ]
    assert rows[0][0] != rows[1][0]
    assert second.startswith(rows[0][0])
    shown = user.done("approvals", "show", rows[1][0])
    assert f"Approval {first} · pending" in shown


def test_the_list_is_narrowed(user, owner, held_agent):
    """By status, agent, action and environment; --json is the gateway's own words."""
    pending = hold(owner, held_agent)
    denied = hold(owner, held_agent, {"amount": 1})
    owner.http.post(f"/api/approvals/{denied}/deny")

    def ids(*options: str) -> list[str]:
        return [one["id"] for one in json.loads(user.done("approvals", "list", "--json", *options))]

    assert ids() == [pending]
    assert ids("--status", "all") == [denied, pending]
    assert ids("--status", "denied") == [denied]
    assert ids("--agent", "shop-assistant") == ids("--agent", held_agent) == [pending]
    assert ids("--agent", "another") == ids("--action", "another") == ids("--environment", "test") == []
    assert ids("--status", "all", "--limit", "1") == [denied]


def test_everything_is_shown_for_reading(user, owner, held_agent):
    """Amount and recipient first, what is hidden named, and nothing that moves a cursor or hides."""
    hostile = {
        "body": "Hi\n  amount  1.00\x1b[2J\u202e",
        "card": {"$digest": "hmac-sha256:" + "ab" * 32, "bytes": 16},
        **REFUND,
    }
    approval_id = hold(owner, held_agent, hostile, run_id="run-7")
    lines = user.done("approvals", "show", approval_id).splitlines()
    assert lines[1:3] == ["  agent        shop-assistant", "  action       stripe.refund"]
    assert "  run          run-7" in lines
    assert "  redacted     card" in lines
    assert lines[lines.index("  arguments") + 1 :] == [
        "  │ amount  250",
        '  │ to      "ada@example.test"',
        '  │ body    "Hi\\n',
        '  │           amount  1.00\\x1b[2J\\u202e"',
        "  │ card    redacted, 16 bytes (hmac-sha256:abababab…)",
        '  │ order   "1002"',
    ]
    answer = json.loads(user.done("approvals", "show", approval_id, "--json"))
    assert answer["context"] == hostile


def test_a_decision_asks_for_the_password_at_the_terminal(user, live_gateway, owner, held_agent):
    """The context is shown, the password asked for unseen, the decision made; no login of it is left."""
    approval_id = hold(owner, held_agent)
    before = sessions(live_gateway, owner)
    with user.at_terminal("approvals", "approve", approval_id[:20], "--note", "checked") as terminal:
        shown = terminal.wait_for(f"Password of {owner.email} to approve this request: ")
        assert "│ amount  250" in shown
        assert stand(owner, approval_id) == "pending"
        terminal.type(PASSWORD)
        assert terminal.end() == 0
        assert PASSWORD not in terminal.shown
        assert "approved: shop-assistant may make this call once, within 59 min" in terminal.shown
    assert stand(owner, approval_id) == "approved"
    assert sessions(live_gateway, owner) == before
    decided = owner.http.get(f"/api/approvals/{approval_id}").json()
    assert (decided["note"], decided["decided_by"]) == ("checked", owner.user["id"])
    assert owner.check(held_agent, "stripe.refund", REFUND).json()["allowed"] is True


def test_giving_up_decides_nothing(user, owner, held_agent):
    """Ctrl-C at the password ends the command without a traceback, and the request waits on."""
    approval_id = hold(owner, held_agent)
    with user.at_terminal("approvals", "deny", approval_id) as terminal:
        terminal.wait_for("to deny this request: ")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "Traceback" not in terminal.shown
    assert stand(owner, approval_id) == "pending"


def test_a_denial_is_told_with_its_note(user, owner, held_agent):
    """What is denied stays denied, and the note reaches the agent."""
    approval_id = hold(owner, held_agent)
    words = ("approvals", "deny", approval_id, "--note", "not twice", "--password-stdin")
    assert "denied; shop-assistant receives your note" in user.done(*words, typed=PASSWORD)
    assert "not twice" in owner.check(held_agent, "stripe.refund", REFUND).json()["reason"]


@pytest.mark.parametrize("verb", ["approve", "deny"])
def test_a_wrong_password_decides_nothing(user, owner, held_agent, verb):
    """Whoever has the stored login but not the password cannot decide, neither with it nor by the command."""
    approval_id = hold(owner, held_agent)
    line = user.refused("approvals", verb, approval_id, "--password-stdin", typed="guessed wrong")
    assert line.startswith("nothing was decided: ")
    assert "guessed" not in line
    token = json.loads(user.login_file.read_text())["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    answer = httpx.post(f"{owner.url}/api/approvals/{approval_id}/{verb}", headers=bearer, timeout=30)
    assert answer.status_code == 403
    assert "terminal" in user.refused("approvals", verb, approval_id)
    assert stand(owner, approval_id) == "pending"


def test_what_is_decided_already_is_not_decided_again(user, owner, held_agent):
    """No password is even asked for; the line says where it stands."""
    approval_id = hold(owner, held_agent)
    owner.http.post(f"/api/approvals/{approval_id}/deny")
    assert "no longer pending: it is denied" in user.refused("approvals", "approve", approval_id)


def test_what_changes_while_the_password_is_typed_is_not_decided(user, owner, held_agent):
    """Somebody else was faster: the command says so and changes nothing."""
    approval_id = hold(owner, held_agent)
    with user.at_terminal("approvals", "approve", approval_id) as terminal:
        terminal.wait_for("to approve this request: ")
        owner.http.post(f"/api/approvals/{approval_id}/deny")
        terminal.type(PASSWORD)
        assert terminal.end() == 1
        assert "nothing was decided: this request is no longer pending, it is denied" in terminal.shown
    assert stand(owner, approval_id) == "denied"


def test_who_may_not_decide_is_told_why(tmp_path, owner, held_agent):
    """A viewer reads and shows, and a refusal carries the gateway's reason."""
    approval_id = hold(owner, held_agent)
    viewer = Colleague(owner, "viewer")
    user = CommandLine(tmp_path / "viewer")
    user.done("login", "--url", owner.url, "--email", viewer.email, "--password-stdin", typed=PASSWORD)
    assert "250" in user.done("approvals", "list")
    line = user.refused("approvals", "approve", approval_id, "--password-stdin", typed=PASSWORD)
    assert line == "nothing was decided: Your role is 'viewer', which may only read; ask an admin"


def test_an_id_must_name_one(user, owner, held_agent):
    """A beginning that fits several, none, or is no id at all ends in a line that says so."""
    first, second = hold(owner, held_agent), hold(owner, held_agent, {"amount": 1})
    shared = first[:4]
    line = user.refused("approvals", "show", shared)
    assert first in line
    assert second in line
    assert "begins with 'ffff'" in user.refused("approvals", "show", "ffff")
    assert "invalid approval id" in user.refused("approvals", "show", "../../agents")
    gone = "00000000-0000-7000-8000-000000000000"
    assert "404" in user.refused("approvals", "show", gone)
    assert "begins with" in user.refused("approvals", "show", first[:20], "--environment", "test")
