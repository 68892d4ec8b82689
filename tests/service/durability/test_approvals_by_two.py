"""Approvals asked for and used through two gateways on one database (decisions §5)."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import httpx
import pytest
from support.crowd import send_until_decided, together
from support.gateway import LiveGateway, Owner
from support.wire import Wire

CROWD = 50
PENDING = 100
DENIALS = 10
Pair: TypeAlias = tuple[LiveGateway, LiveGateway]


@pytest.fixture
def owner(pair: Pair) -> Iterator[Owner]:
    """The admin of a fresh organization, registered at the first gateway."""
    with Owner(pair[0].url) as owner:
        yield owner


@pytest.fixture
def agent(owner: Owner) -> str:
    """An agent whose `db.drop` a person must approve."""
    agent = owner.agent()
    owner.permit(agent, "db.drop", requires_approval=True)
    return agent


def crowd(owner: Owner, pair: Pair, ask: Callable[[Wire, int], dict[str, Any]]) -> list[dict[str, Any]]:
    """Ask fifty times at the same moment, by turns at either gateway; return the results."""

    def one(number: int) -> dict[str, Any]:
        with Wire.of(owner, pair[number % 2].url) as wire:
            return ask(wire, number)

    return together(*[partial(one, number) for number in range(CROWD)])


def _check(wire: Wire, agent: str, **context: object) -> Any:
    return send_until_decided(lambda: wire.check(agent, "db.drop", **context)).json()


def same(agent: str) -> Callable[[Wire, int], dict[str, Any]]:
    """Return what asks the one check."""
    return lambda wire, _: _answered(_check(wire, agent, t=1))


def _answered(result: dict[str, Any]) -> dict[str, Any]:
    assert set(result) == {"allowed", "requires_approval", "reason", "approval_id"}
    return result


def test_fifty_equal_checks_make_one_request(pair: Pair, owner: Owner, agent: str) -> None:
    """Asked at both at once, they are all held under one id, and there is one request."""
    results = crowd(owner, pair, same(agent))
    assert {result["requires_approval"] for result in results} == {True}
    [approval] = {result["approval_id"] for result in results}
    assert [one["id"] for one in owner.http.get("/api/approvals").json()] == [approval]


def test_of_fifty_equal_checks_one_passes(pair: Pair, owner: Owner, agent: str) -> None:
    """After one approval exactly one of fifty passes; the others are held under one new request."""
    approval = owner.check(agent, "db.drop", {"t": 1}).json()["approval_id"]
    assert owner.http.post(f"/api/approvals/{approval}/approve").status_code == 200
    results = crowd(owner, pair, same(agent))
    assert Counter(result["allowed"] for result in results) == {True: 1, False: CROWD - 1}
    anew = {result["approval_id"] for result in results if not result["allowed"]}
    assert len(anew) == 1
    assert anew.isdisjoint({approval, None})
    assert len(owner.http.get("/api/approvals").json()) == 2


def test_the_limit_of_what_waits_is_exact(pair: Pair, owner: Owner, agent: str) -> None:
    """Of fifty distinct checks at once, with ten places left, ten are held."""
    for number in range(PENDING - 10):
        assert owner.check(agent, "db.drop", {"n": number}).json()["requires_approval"] is True
    results = crowd(owner, pair, lambda wire, number: _answered(_check(wire, agent, other=number)))
    assert Counter(result["requires_approval"] for result in results) == {True: 10, False: CROWD - 10}
    headers = owner.http.get("/api/approvals", params={"status": "pending", "limit": 1}).headers
    assert headers["X-Total-Count"] == str(PENDING)


def test_denials_at_both_block_at_both(pair: Pair, owner: Owner, agent: str) -> None:
    """Ten denials, spoken at either gateway at once, block the pair at either."""
    waiting = [owner.check(agent, "db.drop", {"n": n}).json()["approval_id"] for n in range(DENIALS)]

    def deny(number: int, approval: str) -> int:
        with Wire.of(owner, pair[number % 2].url) as wire:
            return wire.send("POST", f"/api/approvals/{approval}/deny", {}).status

    assert together(*[partial(deny, *each) for each in enumerate(waiting)]) == [200] * DENIALS
    results = crowd(owner, pair, same(agent))
    assert {result["requires_approval"] for result in results} == {False}
    assert {"is blocked until" in result["reason"] for result in results} == {True}


@pytest.mark.parametrize("how", ["approve", "deny"])
def test_a_decision_at_one_wakes_who_waits_at_the_other(
    pair: Pair, owner: Owner, agent: str, how: str
) -> None:
    """Within about a second, with nothing between the two but the database."""
    approval = owner.check(agent, "db.drop").json()["approval_id"]

    def wait() -> tuple[str, float]:
        url = f"{pair[1].url}/sdk/approvals/{approval}"
        with httpx.Client(timeout=60) as client:
            answer = client.get(url, params={"wait": 30}, headers={"X-API-Key": owner.key})
        return answer.json()["status"], time.monotonic()

    def decide() -> tuple[str, float]:
        answer = owner.http.post(f"/api/approvals/{approval}/{how}")
        return answer.json()["status"], time.monotonic()

    (heard, woken), (decided, done) = together(wait, decide)
    assert heard == decided
    # A second until the next look, and what a busy machine may need.
    assert woken - done < 3
