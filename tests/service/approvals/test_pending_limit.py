"""How many requests of one agent may wait at the same time (decisions §5)."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import execute

LIMIT = 5
PAST = "2020-01-01T00:00:00.000000Z"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveGateway]:
    """A gateway where five requests of an agent may wait."""
    env = {"TOOLGATE_PENDING_PER_AGENT": str(LIMIT)}
    with LiveGateway(tmp_path_factory.mktemp("strict"), env=env) as gateway:
        yield gateway


@pytest.fixture
def patient(strict: LiveGateway) -> Iterator[Owner]:
    """The owner of a fresh organization there."""
    with Owner(strict.url) as owner:
        yield owner


@pytest.fixture
def asker(patient: Owner) -> str:
    """An agent whose `db.drop` a person must approve."""
    agent = patient.agent()
    patient.permit(agent, "db.drop", requires_approval=True)
    return agent


def ask(owner: Owner, agent: str, n: int, **fields: object) -> dict[str, Any]:
    result: dict[str, Any] = owner.check(agent, "db.drop", {"n": n}, **fields).json()
    return result


def full(result: dict[str, Any]) -> bool:
    """Say whether a result is blocked, and its reason names the limit and the cure."""
    if result["requires_approval"]:
        return False
    assert (result["allowed"], result["approval_id"]) == (False, None)
    assert f"{LIMIT} requests of this agent wait" in result["reason"]
    assert "TOOLGATE_PENDING_PER_AGENT" in result["reason"]
    assert "ask an approver to decide" in result["reason"]
    return True


def test_a_hundred_wait_and_the_next_is_blocked(acme: Owner, bot: str) -> None:
    """By default the 101st distinct request is blocked, and every one that waits still answers to its check."""
    acme.permit(bot, "db.drop", requires_approval=True)
    held = [ask(acme, bot, n)["approval_id"] for n in range(100)]
    assert len({*held}) == 100
    assert None not in held
    blocked = ask(acme, bot, 100)
    assert (blocked["allowed"], blocked["requires_approval"], blocked["approval_id"]) == (False, False, None)
    assert "100 requests of this agent wait" in blocked["reason"]
    assert [ask(acme, bot, n)["approval_id"] for n in (0, 50, 99)] == [held[0], held[50], held[99]]


def test_beyond_the_limit_nothing_is_made_and_what_waits_goes_on(patient: Owner, asker: str) -> None:
    """A blocked check leaves no request; the equal ones keep their ids; a dry run says the same as the check."""
    held = [ask(patient, asker, n)["approval_id"] for n in range(LIMIT)]
    assert ask(patient, asker, LIMIT - 1, dry_run=True)["approval_id"] == held[-1]
    assert full(ask(patient, asker, LIMIT, dry_run=True))
    assert full(ask(patient, asker, LIMIT))
    assert full(ask(patient, asker, 0, run_id="another"))
    assert full(ask(patient, asker, 0, call_id="another"))
    assert [ask(patient, asker, n)["approval_id"] for n in range(LIMIT)] == held
    assert len(patient.http.get("/api/approvals", params={"agent_id": asker}).json()) == LIMIT


@pytest.mark.parametrize("how", ["approve", "deny", "cancel", "expire"])
def test_what_no_longer_waits_makes_room(strict: LiveGateway, patient: Owner, asker: str, how: str) -> None:
    """A decided, cancelled or expired request does not count; an approved one still passes at the limit."""
    held = [ask(patient, asker, n)["approval_id"] for n in range(LIMIT)]
    assert full(ask(patient, asker, LIMIT))
    if how == "expire":
        assert execute(strict, "UPDATE approvals SET expires_at = ? WHERE id = ?", PAST, held[0]) == 1
    elif how == "cancel":
        headers = {"X-API-Key": patient.key}
        assert patient.http.post(f"/sdk/approvals/{held[0]}/cancel", headers=headers).status_code == 200
    else:
        assert patient.http.post(f"/api/approvals/{held[0]}/{how}").status_code == 200
    assert ask(patient, asker, LIMIT)["requires_approval"] is True
    assert full(ask(patient, asker, LIMIT + 1))
    if how == "approve":
        assert ask(patient, asker, 0)["allowed"] is True


def test_the_limit_is_each_agents_own(patient: Owner, asker: str) -> None:
    """All actions of an agent count together, another agent's do not."""
    patient.permit(asker, "db.wipe", requires_approval=True)
    for n in range(LIMIT):
        ask(patient, asker, n)
    assert full(patient.check(asker, "db.wipe").json())
    other = patient.agent()
    patient.permit(other, "db.wipe", requires_approval=True)
    assert patient.check(other, "db.wipe").json()["requires_approval"] is True


def test_the_limit_holds_in_a_crowd(patient: Owner, asker: str) -> None:
    """Of twenty distinct checks at once exactly as many as may wait are held."""
    answers = together(*[partial(ask, patient, asker, n) for n in range(20)])
    assert Counter(full(answer) for answer in answers) == {False: LIMIT, True: 20 - LIMIT}
    assert len({answer["approval_id"] for answer in answers}) == LIMIT + 1
