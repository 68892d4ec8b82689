"""`toolgate agents`, in this process, at a live gateway."""

import unicodedata
from typing import Any

import pytest
from support.gateway import LiveGateway, Owner
from support.shell import Shell
from support.tables import execute
from support.team import Colleague

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def agents(owner: Owner) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = owner.http.get("/api/agents").json()
    return found


def test_an_agents_life(shell: Shell, owner: Owner) -> None:
    """Created, renamed, described, stopped, let go on and removed: each is done at the gateway and told."""
    assert shell.done("agents", "list").startswith("no agents in the production environment at ")
    said = shell.done("agents", "create", "refund-bot", "--description", "Refunds")
    (agent,) = agents(owner)
    assert said == f"created refund-bot, agent {agent['id']}\n"
    assert (agent["name"], agent["description"], agent["status"]) == ("refund-bot", "Refunds", "active")
    shell.done("agents", "update", "refund-bot", "--name", "shop-bot", "--no-description")
    assert (agents(owner)[0]["name"], agents(owner)[0]["description"]) == ("shop-bot", None)
    assert shell.done("agents", "disable", agent["id"]) == f"disabled shop-bot, agent {agent['id']}\n"
    assert agents(owner)[0]["status"] == "inactive"
    shell.done("agents", "enable", agent["id"][:20])
    assert agents(owner)[0]["status"] == "active"
    assert "deleted shop-bot" in shell.done("agents", "delete", "shop-bot", "--yes")
    assert agents(owner) == []


def test_what_is_read_is_the_gateways_own(shell: Shell, owner: Owner) -> None:
    """--json has the fields of the API; the table and the page have a person's."""
    first, second = owner.agent("refund-bot"), owner.agent("mail-bot")
    assert shell.json("agents", "list") == agents(owner)
    assert shell.json("agents", "show", "refund-bot") == owner.http.get(f"/api/agents/{first}").json()
    rows = [line.split() for line in shell.done("agents", "list").splitlines() if "active" in line]
    assert [row[:3] for row in rows] == [[second, "mail-bot", "active"], [first, "refund-bot", "active"]]
    lines = shell.done("agents", "show", first).splitlines()
    assert lines[0] == f"Agent {first} · active"
    assert lines[1].split() == ["name", "refund-bot"]


def test_only_one_agent_is_meant(shell: Shell, owner: Owner) -> None:
    """A name of two agents or of none is rejected, with the command that helps."""
    twins = [owner.agent("twin"), owner.agent("twin")]
    line = shell.refused("agents", "show", "twin")
    assert all(twin in line for twin in twins)
    assert shell.json("agents", "show", twins[0])["id"] == twins[0]
    assert "toolgate agents list" in shell.refused("agents", "show", "nobody")
    assert "toolgate agents list" in shell.refused("agents", "show", "nobody", "--environment", "test")


def test_complete_id_goes_before_a_name(shell: Shell, owner: Owner, live_gateway: LiveGateway) -> None:
    """Older versions of the gateway allowed agents that are named like the id of another agent."""
    agent, other = owner.agent("one"), owner.agent("other")
    execute(live_gateway, "UPDATE agents SET name = ? WHERE id = ?", agent, other)
    assert shell.json("agents", "show", agent)["id"] == agent


def test_deleting_asks(shell: Shell, owner: Owner) -> None:
    """Without a terminal nothing is removed unless --yes says so, and the line says that."""
    agent_id = owner.agent("refund-bot")
    assert "--yes" in shell.refused("agents", "delete", "refund-bot")
    assert [agent["id"] for agent in agents(owner)] == [agent_id]


def test_whoever_may_not_is_told(home: Any, owner: Owner) -> None:
    """A viewer reads and changes nothing."""
    owner.agent("refund-bot")
    with Colleague(owner, "viewer") as viewer:
        shell = Shell.of(viewer)
        assert "refund-bot" in shell.done("agents", "list")
        assert "may only read" in shell.refused("agents", "create", "another")
        assert "may only read" in shell.refused("agents", "delete", "refund-bot", "--yes")
    assert len(agents(owner)) == 1


def test_a_hostile_name_is_shown(shell: Shell, owner: Owner) -> None:
    """Whatever an agent is called and described as, no character of it moves a cursor or hides."""
    answer = owner.http.post(
        "/api/agents", json={"name": "a [bold]b", "description": "x\n\tname  other-bot\u2003\u200dy"}
    )
    assert answer.status_code == 201, answer.text
    for words in (["list"], ["show", "a [bold]b"]):
        out = shell.done("agents", *words)
        assert not {unicodedata.category(char) for char in out.replace("\n", "")} & HIDDEN
        assert "[bold]" in out
        assert "\\n\\tname" in out
