"""`toolgate decisions`, in this process, at a live gateway."""

import json

import pytest
from support.decisions import decision_id, recorded
from support.gateway import Owner
from support.shell import Shell

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


@pytest.fixture
def made(owner: Owner) -> list[str]:
    """Ids of an allowed check, a denied one, and one of an unknown agent, oldest first."""
    agent = owner.agent("refund-bot")
    owner.permit(agent, "stripe.refund")
    answers = (
        owner.check(agent, "stripe.refund", run_id="run-1"),
        owner.check(agent, "mail.send"),
        owner.check("no\x1bbody", "mail.send"),
    )
    ids = [decision_id(answer) for answer in answers]
    recorded(owner, *ids)
    return ids


def listed(shell: Shell, *options: str) -> list[str]:
    lines = shell.done("decisions", "--json", *options).splitlines()
    return [json.loads(line)["id"] for line in lines]


def test_table_shows_decisions_newest_first(shell: Shell, made: list[str]) -> None:
    text = shell.done("decisions")
    assert [text.index(one) for one in reversed(made)] == sorted(text.index(one) for one in made)
    assert all(part in text for part in ("refund-bot", "stripe.refund", "no_permission", "agent_not_found"))
    assert "\x1b" not in text


def test_filters_narrow_the_list(shell: Shell, owner: Owner, made: list[str]) -> None:
    allowed, denied, unknown = made
    agent = owner.http.get("/api/agents").json()[0]["id"]
    assert listed(shell) == [unknown, denied, allowed]
    for by in ("refund-bot", agent):
        assert listed(shell, "--agent", by) == [denied, allowed]
    assert listed(shell, "--action", "mail.send") == [unknown, denied]
    assert listed(shell, "--outcome", "denied") == [unknown, denied]
    assert listed(shell, "--reason-code", "no_permission") == [denied]
    assert listed(shell, "--run", "run-1") == [allowed]
    assert listed(shell, "--rule", allowed) == []
    assert listed(shell, "--from", "1h", "--to", "2100-01-01") == [unknown, denied, allowed]
    assert listed(shell, "--to", "1h") == []
    assert listed(shell, "--environment", "test") == []


def test_limit_and_offset_choose_a_page(shell: Shell, made: list[str]) -> None:
    assert listed(shell, "--limit", "2") == made[:0:-1]
    assert listed(shell, "--limit", "2", "--offset", "2") == made[:1]
    assert "--offset 2" in shell.done("decisions", "--limit", "2")
    assert "--offset" not in shell.done("decisions", "--limit", "3")


@pytest.mark.usefixtures("owner")
def test_empty_list_names_the_gateway(shell: Shell) -> None:
    assert shell.done("decisions").startswith("no decisions in the production environment at http")


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--action", "a b"), "--action"),
        (("--agent", "nobody"), "toolgate agents list"),
        (("--from", "x"), "--from"),
        (("--from", "1h", "--to", "2h"), "--to"),
    ],
    ids=" ".join,
)
def test_invalid_input_is_named(shell: Shell, arguments: tuple[str, ...], hint: str) -> None:
    assert hint in shell.refused("decisions", *arguments)
