"""`toolgate check`, in this process, at a live gateway."""

import json
from typing import Any

import pytest
from support.gateway import Owner
from support.pretend_gateway import PretendGateway
from support.shell import Shell

from toolgate_cli.check import DENIED, NEEDS_APPROVAL

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


@pytest.fixture
def agent_id(owner: Owner, monkeypatch: pytest.MonkeyPatch, home: Any) -> str:
    """The agent of the environment, with three permissions; the gateway's address is the login's."""
    agent_id = owner.agent("refund-bot")
    owner.permit(agent_id, "stripe.refund", max_amount=100)
    owner.permit(agent_id, "db.drop", requires_approval=True)
    monkeypatch.setenv("TOOLGATE_API_KEY", owner.key)
    monkeypatch.setenv("TOOLGATE_AGENT_ID", agent_id)
    return agent_id


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["stripe.refund", "--context", "amount=40"], 0, "allowed\n"),
        (["stripe.refund", "--context-json", '{"amount": 100.00}'], 0, "allowed\n"),
        (["stripe.refund", "--context", "amount=100.01"], DENIED, "denied: "),
        (["mail.send"], DENIED, "denied: "),
        (["db.drop", "--context", "table=users"], NEEDS_APPROVAL, "approval required: "),
    ],
    ids=str,
)
def test_each_outcome_has_a_code(
    shell: Shell, owner: Owner, agent_id: str, words: list[str], code: int, said: str
) -> None:
    """And nothing comes of it: nobody is asked, nothing is recorded."""
    ended = shell.run("check", *words)
    assert ended.exit_code == code, ended.output
    assert ended.stdout.startswith(said)
    assert owner.http.get("/api/approvals").json() == []
    assert owner.entries() == []


def test_json_is_the_gateways_answer(shell: Shell, owner: Owner, agent_id: str) -> None:
    """With the same exit code."""
    assert shell.json("check", "stripe.refund", "--context", "amount=1") == {
        "allowed": True,
        "requires_approval": False,
        "reason": None,
        "approval_id": None,
    }
    ended = shell.run("check", "db.drop", "--json")
    assert ended.exit_code == NEEDS_APPROVAL
    assert '"approval_id":null' in ended.stdout


def test_output_contains_the_rule_that_decides(shell: Shell, owner: Owner, agent_id: str) -> None:
    body = {"name": "No drops", "effect": "forbid", "actions": ["db.*"]}
    rule_id = owner.http.post("/api/rules", json=body).json()["id"]
    ended = shell.run("check", "db.drop")
    assert ended.exit_code == DENIED
    assert ended.stdout == f"denied: Rule 'No drops' forbids action 'db.drop'\nrule: {rule_id}\n"
    assert json.loads(shell.run("check", "db.drop", "--json").stdout)["rule_id"] == rule_id
    assert "rule" not in shell.done("check", "stripe.refund", "--context", "amount=1")


def test_an_approval_is_not_used_up(shell: Shell, owner: Owner, agent_id: str) -> None:
    """What was approved once is still there for the agent."""
    approval_id = owner.check(agent_id, "db.drop", {"table": "users"}).json()["approval_id"]
    owner.http.post(f"/api/approvals/{approval_id}/approve")
    for _ in range(2):
        shell.done("check", "db.drop", "--context", "table=users")
    assert owner.check(agent_id, "db.drop", {"table": "users"}).json()["allowed"] is True


def test_what_is_missing_is_named(
    shell: Shell, owner: Owner, agent_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable, and where to get it from; a wrong key is never repeated."""
    wrong = "ak_" + "x" * 37
    monkeypatch.setenv("TOOLGATE_API_KEY", wrong)
    line = shell.refused("check", "stripe.refund")
    assert "toolgate keys show" in line
    assert wrong not in line
    monkeypatch.delenv("TOOLGATE_API_KEY")
    assert "toolgate keys show" in shell.refused("check", "stripe.refund")
    monkeypatch.setenv("TOOLGATE_API_KEY", owner.key)
    monkeypatch.delenv("TOOLGATE_AGENT_ID")
    assert "TOOLGATE_AGENT_ID" in shell.refused("check", "stripe.refund")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        [],
        {"allowed": 1, "requires_approval": False},
        {"allowed": True, "requires_approval": True},
        {"allowed": True, "requires_approval": False, "reason": "no"},
    ],
    ids=str,
)
def test_what_decides_nothing_is_no_yes(
    gateway: PretendGateway, run: Any, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    """A stranger in the gateway's place, or one that contradicts itself, is an error and never exit code 0."""
    monkeypatch.setenv("TOOLGATE_API_KEY", "ak_" + "x" * 37)
    gateway.answers["POST", "/sdk/check"] = (200, answer)
    ended = run("check", "stripe.refund", "--agent", "a")
    assert (ended.exit_code, ended.stdout) == (1, "")
