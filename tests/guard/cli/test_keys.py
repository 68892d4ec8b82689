"""`toolgate keys`, in this process, at a live gateway."""

import httpx
import pytest
from support.gateway import PASSWORD, Owner
from support.shell import Shell
from support.team import Colleague

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


def works(owner: Owner, key: str, agent_id: str) -> bool:
    """Whether the gateway takes a key for an agent."""
    answer = httpx.get(
        f"{owner.url}/sdk/permissions", params={"agent_id": agent_id}, headers={"X-API-Key": key}, timeout=30
    )
    return answer.status_code == 200


def test_a_key_stands_alone_on_standard_output(shell: Shell, owner: Owner) -> None:
    """`KEY=$(toolgate keys show)` is the key and nothing else; what is said of it is on standard error."""
    shown = shell.run("keys", "show", "--password-stdin", typed=PASSWORD)
    assert shown.stdout == f"{owner.key}\n"
    assert "acts as every agent" in shown.stderr
    assert owner.key not in shown.stderr
    test = shell.allowed("keys", "show", "--environment", "test").strip()
    assert test.startswith("test_")
    answer = shell.json("keys", "show", "--password-stdin", typed=PASSWORD)
    assert answer.keys() == {"id", "name", "api_key", "created_at"}
    assert answer["api_key"] == owner.key


def test_a_regenerated_key_takes_the_place_of_the_old(shell: Shell, owner: Owner) -> None:
    """The old one stops at once; without --yes it works on."""
    agent_id = owner.agent()
    assert "--yes" in shell.refused("keys", "rotate", "--password-stdin", typed=PASSWORD)
    assert works(owner, owner.key, agent_id)
    new = shell.allowed("keys", "rotate", "--yes").strip()
    assert (works(owner, owner.key, agent_id), works(owner, new, agent_id)) == (False, True)
    before = shell.allowed("keys", "show", "--environment", "test")
    assert shell.allowed("keys", "rotate", "--environment", "test", "--yes") != before
    assert works(owner, new, agent_id), "the production key is another"


def test_a_key_of_an_agent(shell: Shell, owner: Owner) -> None:
    """Made, listed without being shown, and ended; it acts as that agent alone."""
    agent_id, other = owner.agent("refund-bot"), owner.agent("mail-bot")
    assert shell.done("keys", "list", "refund-bot") == "refund-bot has no key of its own\n"
    made = shell.run("keys", "create", "refund-bot", "--password-stdin", typed=PASSWORD)
    key = made.stdout.strip()
    assert "not shown again" in made.stderr
    assert (works(owner, key, agent_id), works(owner, key, other)) == (True, False)
    (listed,) = shell.json("keys", "list", "refund-bot")
    assert listed["agent_id"] == agent_id
    assert key not in str(listed)
    assert listed["id"] in made.stderr
    table = shell.done("keys", "list", "refund-bot")
    assert key not in table
    assert key[-4:] in table
    shell.allowed("keys", "delete", "refund-bot", listed["id"][:20], "--yes")
    assert not works(owner, key, agent_id)


def test_only_an_admin_is_shown_a_key(home: object, owner: Owner) -> None:
    """A member gets one line and no part of a key on standard output."""
    owner.agent("refund-bot")
    with Colleague(owner, "member") as member:
        shell = Shell.of(member)
        for words in (["show"], ["create", "refund-bot"], ["rotate", "--yes"]):
            line = shell.refused("keys", *words, "--password-stdin", typed=PASSWORD)
            assert "admin" in line


def test_no_key_is_shown_to_whoever_has_the_login_alone(shell: Shell, owner: Owner) -> None:
    """A stolen login file shows and changes no key."""
    agent_id = owner.agent("refund-bot")
    for words in (["show"], ["create", "refund-bot"], ["rotate", "--yes"]):
        line = shell.refused("keys", *words, "--password-stdin", typed="guessed wrong\n")
        assert line.startswith("nothing was changed: ")
    assert works(owner, owner.key, agent_id)
    assert shell.json("keys", "list", "refund-bot") == []


def test_advisory_key(shell: Shell, owner: Owner) -> None:
    agent_id = owner.agent("advised-bot")
    made = shell.run("keys", "create", "advised-bot", "--advisory", "--password-stdin", typed=PASSWORD)
    assert "the advisory key" in made.stderr
    assert works(owner, made.stdout.strip(), agent_id)
    assert "advisory" in shell.done("keys", "list", "advised-bot")
    (listed,) = shell.json("keys", "list", "advised-bot")
    assert listed["advisory"] is True
