"""`toolgate freeze`, `freezes` and `unfreeze`, in this process, at a live gateway."""

import pytest
from support.gateway import Owner
from support.shell import Shell

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


def code(owner: Owner, agent: str, action: str) -> str:
    return owner.check(agent, action).headers["x-reason-code"]


def test_freeze_denies_all_calls_until_it_is_lifted(shell: Shell, owner: Owner) -> None:
    agent = owner.agent("refund-bot")
    owner.permit(agent, "stripe.refund")
    assert shell.done("freezes").startswith("no active freezes at http")
    ended = shell.run("freeze", "--reason", "Refunds were paid twice")
    assert ended.stdout == "frozen: all calls\n"
    [made] = owner.http.get("/api/freeze").json()
    assert f"toolgate unfreeze {made['id']}" in ended.stderr
    assert code(owner, agent, "stripe.refund") == "frozen"
    listed = shell.done("freezes")
    assert all(text in listed for text in (made["id"], "all calls", "Refunds were paid twice"))
    assert shell.allowed("unfreeze", made["id"][:-4]) == "lifted: all calls\n"
    assert code(owner, agent, "stripe.refund") == "allowed"
    assert shell.json("freezes") == []
    [lifted] = shell.json("freezes", "--lifted")
    assert lifted["lifted_by"] == owner.user["id"]


def test_freeze_of_an_agent_and_an_action_leaves_other_calls(shell: Shell, owner: Owner) -> None:
    agent, other = owner.agent("refund-bot"), owner.agent("mail-bot")
    for one in (agent, other):
        owner.permit(one, "stripe.refund")
    options = ("--agent", "refund-bot", "--action", "stripe.*", "--reason", "x")
    assert shell.json("freeze", *options)["agent_id"] == agent
    assert (code(owner, agent, "stripe.refund"), code(owner, other, "stripe.refund")) == ("frozen", "allowed")


def test_all_freezes_are_lifted_at_once(shell: Shell, owner: Owner) -> None:
    for action in ("a.b", "c.d"):
        shell.done("freeze", "--action", action, "--reason", "x")
    assert shell.allowed("unfreeze", "--all") == "lifted: calls of c.d\nlifted: calls of a.b\n"
    assert shell.done("unfreeze", "--all") == "no active freezes\n"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("freeze", "--reason", " "), "reason"),
        (("freeze", "--reason", "x", "--action", "a*b"), "stripe.*"),
        (("freeze", "--reason", "x", "--agent", "nobody"), "toolgate agents list"),
        (("unfreeze",), "--all"),
        (("unfreeze", "0000", "--all"), "--all"),
        (("unfreeze", "0000"), "toolgate freezes"),
    ],
    ids=" ".join,
)
def test_invalid_input_is_named_and_freezes_nothing(
    shell: Shell, owner: Owner, arguments: tuple[str, ...], hint: str
) -> None:
    assert hint in shell.refused(*arguments)
    assert owner.http.get("/api/freeze").json() == []
