"""Rolling windows, from which amounts are subtracted once their reservations have left the window."""

from datetime import timedelta
from pathlib import Path

import pytest
from support.budgets import ACTION, ALLOWED, EXCEEDED, amounts, create, outcome, spend, usage
from support.gateway import PASSWORD, LiveGateway, Owner
from support.inside import Clock, InsideGateway
from support.tables import execute, rows
from support.upkeep import ago_text

from toolgate_service.budgets import reservation


def move_back(gateway: LiveGateway, decision: str, seconds: float) -> None:
    moment = ago_text(seconds=seconds)
    assert execute(
        gateway, "UPDATE budget_reservations SET created_at = ? WHERE decision_id = ?", moment, decision
    )


def test_amounts_leave_the_window(gateway: LiveGateway, acme: Owner, bot: str) -> None:
    budget = create(acme, measure="sum(args.amount)", window="rolling(3600)")
    first, second = (spend(acme, bot, amount).headers["x-decision-id"] for amount in (40, 60))
    assert outcome(spend(acme, bot, 1)) == EXCEEDED
    move_back(gateway, first, 3601)
    assert amounts(acme, budget) == (0, 60, 40)
    assert outcome(spend(acme, bot, 41, dry_run=True)) == EXCEEDED
    answer = spend(acme, bot, 40)
    assert answer.headers["x-budget-left"] == "0"
    # The log entry of a call that has left the window does not change the total.
    assert acme.log(bot, ACTION, decision_id=first, context={"amount": 39}).status_code == 200
    assert amounts(acme, budget) == (0, 100, 0)
    assert acme.log(bot, ACTION, decision_id=second, context={"amount": 55}).status_code == 200
    assert amounts(acme, budget) == (55, 40, 5)


def test_window_of_the_usage_ends_now(acme: Owner, bot: str) -> None:
    budget = create(acme, window="rolling(60)")
    acme.check(bot, ACTION)
    [one] = usage(acme, budget)
    assert one["window_start"] < one["window_end"]


def test_total_is_empty_after_a_long_pause(gateway: LiveGateway, acme: Owner, bot: str) -> None:
    budget = create(acme, measure="sum(args.amount)", window="rolling(3600)")
    decisions = [spend(acme, bot, 25).headers["x-decision-id"] for _ in range(4)]
    for place, decision in enumerate(decisions):
        move_back(gateway, decision, 7300 - place)
    moment = ago_text(seconds=3690)
    assert execute(gateway, "UPDATE budget_totals SET ends_at = ? WHERE budget_id = ?", moment, budget)
    assert usage(acme, budget) == []
    assert spend(acme, bot, 90).headers["x-budget-left"] == "10"
    acme.log(bot, ACTION, "failed", decision_id=decisions[0])
    assert amounts(acme, budget) == (0, 90, 10)


@pytest.mark.sqlite_only("the gateway's clock is set, which PostgreSQL's cannot be")
def test_amounts_are_subtracted_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls arrive irregularly; the total before each decision equals the sum over the window."""
    monkeypatch.setattr(reservation, "_LEFT_WINDOW", reservation._LEFT_WINDOW.limit(2))
    monkeypatch.setattr(reservation, "MAX_SUBTRACTED", 2)
    clock = Clock()
    with InsideGateway(tmp_path, management_requests_per_minute=10**6) as gateway, clock.ruling():
        account = {"email": "a@example.test", "password": PASSWORD, "organization_name": "A"}
        made = gateway.send("POST", "/auth/register", json=account).json()
        headers = {"Authorization": f"Bearer {made['access_token']}"}
        key = gateway.send("GET", "/api/organization", headers=headers).json()["api_key"]
        agent = gateway.send("POST", "/api/agents", json={"name": "bot"}, headers=headers).json()["id"]
        permission = {"action": ACTION}
        gateway.send("POST", f"/api/agents/{agent}/permissions", json=permission, headers=headers)
        body = {
            "name": "b",
            "actions": ["*"],
            "measure": "sum(args.amount)",
            "window": "rolling(100)",
            "limit": 50,
        }
        assert gateway.send("POST", "/api/budgets", json=body, headers=headers).status_code == 201
        spent: list[tuple[float, int]] = []
        at = 0.0
        for number in range(120):
            step = (number * 37 % 50) if number % 15 else 150
            at += step
            clock.advance(timedelta(seconds=step))
            amount = number * 7 % 23
            check = {"agent_id": agent, "action": ACTION, "context": {"amount": amount}}
            allowed = gateway.send("POST", "/sdk/check", json=check, headers={"X-API-Key": key}).json()[
                "allowed"
            ]
            in_window = sum(one for when, one in spent if when > at - 100)
            assert allowed == (in_window + amount <= 50), (number, at, amount, in_window)
            if allowed:
                spent.append((at, amount))


def test_reservations_of_a_total_have_different_times(gateway: LiveGateway, acme: Owner, bot: str) -> None:
    budget = create(acme, window="rolling(3600)")
    for _ in range(3):
        assert outcome(acme.check(bot, ACTION)) == ALLOWED
    # As after a clock that was set back.
    future = ago_text(seconds=-3700)
    execute(gateway, "UPDATE budget_totals SET ends_at = ? WHERE budget_id = ?", future, budget)
    for _ in range(3):
        assert outcome(acme.check(bot, ACTION)) == ALLOWED
    found = rows(gateway, "SELECT created_at FROM budget_reservations WHERE budget_id = ?", budget)
    assert len(set(found)) == 6
