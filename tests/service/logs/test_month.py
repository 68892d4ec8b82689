"""The plan's log entries of a month (spec §8)."""

from collections import Counter
from datetime import UTC, datetime
from functools import partial

import httpx
import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.insight import execute, rows
from support.shapes import refused

FULL = {
    "error": "plan_limit_exceeded",
    "message": "The free plan's limit of logs is reached: 1000/1000 used",
    "limit_type": "logs",
    "current_plan": "free",
    "upgrade_url": "/console/plan",
}


def month() -> str:
    return datetime.now(UTC).strftime("%Y-%m")


def use(gateway: LiveGateway, owner: Owner, entries: int, of: str | None = None) -> None:
    """Set the month's counter."""
    statement = (
        "INSERT INTO monthly_usage VALUES (?, 'production', ?, ?) "
        "ON CONFLICT (organization_id, environment, month) DO UPDATE SET log_entries = ?"
    )
    execute(gateway, statement, owner.user["organization_id"], of or month(), entries, entries)


def used(gateway: LiveGateway, owner: Owner) -> int:
    query = (
        "SELECT sum(log_entries) FROM monthly_usage WHERE organization_id = ? AND environment = 'production'"
    )
    [(count,)] = rows(gateway, query, owner.user["organization_id"])
    return int(count)


def test_a_full_month_gets_the_limit_object(free_gateway: LiveGateway, frugal: Owner) -> None:
    """The thousandth entry is stored, the next is 403 with the five fields of spec §7 and stores nothing."""
    bot = frugal.agent()
    use(free_gateway, frugal, 999)
    assert frugal.log(bot, "a").status_code == 200
    answer = frugal.log(bot, "a")
    refused(answer, 403, FULL)
    assert "X-RateLimit-Remaining" in answer.headers
    assert len(frugal.entries()) == 1
    assert used(free_gateway, frugal) == 1000


def test_parallel_entries_fill_the_month_exactly(free_gateway: LiveGateway, frugal: Owner) -> None:
    """Of twenty simultaneous entries with five left, five are stored (decisions §7)."""
    bot = frugal.agent()
    use(free_gateway, frugal, 995)
    answers = together(*[partial(frugal.log, bot, "a")] * 20)
    assert Counter(answer.status_code for answer in answers) == {200: 5, 403: 15}
    assert len(frugal.entries()) == 5
    assert used(free_gateway, frugal) == 1000


def test_another_month_does_not_count(free_gateway: LiveGateway, frugal: Owner) -> None:
    """Months are UTC calendar months: a full one says nothing about the next."""
    use(free_gateway, frugal, 1000, of="2026-01")
    assert frugal.log(frugal.agent(), "a").status_code == 200


def test_a_replay_is_answered_also_when_the_month_is_full(free_gateway: LiveGateway, frugal: Owner) -> None:
    """A repeated key costs nothing of the month and needs nothing of it (decisions §6)."""
    bot = frugal.agent()
    body = {"agent_id": bot, "action": "a", "status": "success"}
    headers = {"X-API-Key": frugal.key, "Idempotency-Key": "k"}

    def send() -> httpx.Response:
        return frugal.http.post("/sdk/log", json=body, headers=headers)

    first = send()
    assert send().content == first.content
    assert used(free_gateway, frugal) == 1
    use(free_gateway, frugal, 1000)
    again = send()
    assert (again.status_code, again.content) == (200, first.content)
    assert used(free_gateway, frugal) == 1000


@pytest.mark.parametrize(("plan", "entries"), [("pro", 50_000), ("business", 500_000)])
def test_the_limit_is_the_plans(free_gateway: LiveGateway, frugal: Owner, plan: str, entries: int) -> None:
    """Each plan has its own number (spec §8)."""
    bot = frugal.agent()
    organization = frugal.user["organization_id"]
    execute(free_gateway, "UPDATE organizations SET plan = ? WHERE id = ?", plan, organization)
    use(free_gateway, frugal, entries - 1)
    assert frugal.log(bot, "a").status_code == 200
    answer = frugal.log(bot, "a")
    assert answer.status_code == 403
    assert f"{entries}/{entries}" in answer.json()["detail"]["message"]
    assert answer.json()["detail"]["current_plan"] == plan


def test_the_enterprise_plan_has_no_limit(gateway: LiveGateway, acme: Owner) -> None:
    """Unlimited is unlimited (spec §8)."""
    use(gateway, acme, 10_000_000)
    assert acme.log(acme.agent(), "a").status_code == 200


def test_a_check_costs_nothing_of_the_month(free_gateway: LiveGateway, frugal: Owner) -> None:
    """A full month records no more, but goes on deciding."""
    bot = frugal.agent()
    frugal.permit(bot, "a")
    use(free_gateway, frugal, 1000)
    assert frugal.check(bot, "a").json()["allowed"] is True
    assert used(free_gateway, frugal) == 1000


@pytest.mark.parametrize("key", [None, "a key"])
def test_in_a_full_month_an_unknown_agent_is_still_unknown(
    free_gateway: LiveGateway, frugal: Owner, key: str | None
) -> None:
    """404 comes before the month's 403, with an idempotency key as without (spec §7)."""
    use(free_gateway, frugal, 1000)
    body = {"agent_id": "01890000-0000-7000-8000-000000000000", "action": "a", "status": "success"}
    headers = {"X-API-Key": frugal.key} | ({} if key is None else {"Idempotency-Key": key})
    assert frugal.http.post("/sdk/log", json=body, headers=headers).status_code == 404
