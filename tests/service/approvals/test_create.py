"""Which checks are one request and which are another (decisions §5)."""

from functools import partial

import httpx
import pytest
from support.asking import Ask
from support.crowd import together
from support.gateway import Owner


def test_the_same_check_is_the_same_request(ask: Ask) -> None:
    """A held check, repeated while pending, returns the same approval."""
    first = ask({"table": "users", "force": True})
    assert ask({"force": True, "table": "users"}) == first
    assert first["requires_approval"] is True


def test_parallel_equal_checks_make_one_request(acme: Owner, bot: str, permission: str) -> None:
    """Twelve simultaneous equal checks are held under one id."""
    answers = together(*[partial(acme.check, bot, "db.drop", {"table": "race"})] * 12)
    assert [answer.status_code for answer in answers] == [200] * 12
    assert len({answer.json()["approval_id"] for answer in answers}) == 1
    assert len(acme.http.get("/api/approvals", params={"agent_id": bot}).json()) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{}", "null"),
        ('{"n": 1}', '{"n": 1.0}'),
        ('{"n": 1}', '{"n": 1e0}'),
        ('{"n": 0}', '{"n": -0.0}'),
        ('{"n": 100.10}', '{"n": 1001e-1}'),
        ('{"a": 1, "b": [1, 2]}', '{ "b" : [1,2], "a" : 1 }'),
        ('{"a": "\\u00e9\\n"}', '{"a": "é\\u000a"}'),
    ],
)
def test_equal_contexts_are_one_request(acme: Owner, bot: str, permission: str, one: str, other: str) -> None:
    """Order, spacing, escapes and spellings of a number do not matter (decisions §4)."""
    assert held(acme, bot, one) == held(acme, bot, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{}", '{"a": null}'),
        ('{"n": 9007199254740992}', '{"n": 9007199254740993}'),
        ('{"n": 0.1}', '{"n": 0.1000000000000000055}'),
        ('{"n": 1}', '{"n": "1"}'),
        ('{"n": 1}', '{"n": true}'),
        ('{"n": 0}', '{"n": false}'),
        ('{"a": []}', '{"a": {}}'),
        ('{"a": [1, 2]}', '{"a": [2, 1]}'),
        ('{"a": "é"}', '{"a": "e\\u0301"}'),
        ('{"a": "x"}', '{"a": "x "}'),
    ],
)
def test_different_contexts_are_different_requests(
    acme: Owner, bot: str, permission: str, one: str, other: str
) -> None:
    """Whatever differs in value is another call, and needs another approval (decisions §4)."""
    assert held(acme, bot, one) != held(acme, bot, other)


def test_action_agent_and_run_are_part_of_the_request(acme: Owner, ask: Ask, bot: str) -> None:
    """Another agent, action or run is another request, each stable in itself."""
    other = acme.agent()
    acme.permit(other, "db.drop", requires_approval=True)
    acme.permit(bot, "db.wipe", requires_approval=True)

    def ids() -> list[str]:
        return [
            ask()["approval_id"],
            ask(run_id="run-1")["approval_id"],
            ask(run_id="run-2")["approval_id"],
            acme.check(bot, "db.wipe").json()["approval_id"],
            acme.check(other, "db.drop").json()["approval_id"],
        ]

    first = ids()
    assert len(set(first)) == 5
    assert ids() == first


def test_a_dry_run_makes_no_request(acme: Owner, ask: Ask, bot: str) -> None:
    """`dry_run` answers that approval is needed and changes nothing (decisions §4)."""
    result = ask({"t": 1}, dry_run=True)
    assert (result["allowed"], result["requires_approval"], result["approval_id"]) == (False, True, None)
    assert acme.http.get("/api/approvals", params={"agent_id": bot}).json() == []
    approval = ask({"t": 1})["approval_id"]
    assert ask({"t": 1}, dry_run=True)["approval_id"] == approval


def held(owner: Owner, agent: str, context: str) -> str:
    body = f'{{"agent_id": "{agent}", "action": "db.drop", "context": {context}}}'
    answer: httpx.Response = owner.http.post(
        "/sdk/check", content=body.encode(), headers={"X-API-Key": owner.key}
    )
    approval: str = answer.json()["approval_id"]
    assert approval is not None
    return approval
