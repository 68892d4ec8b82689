"""Who did most, beside what adding up everything says."""

import random
from collections import Counter
from datetime import UTC, datetime

import pytest
from support.databases import finished
from support.gateway import LiveGateway, Owner
from support.tables import execute

from toolgate_service.db.database import open_database
from toolgate_service.logs.counts import (
    SAMPLED_DAYS,
    TOP_COUNT,
    Counts,
    EnvironmentKey,
    TopEntry,
    minute_of,
    top_n,
)
from toolgate_service.logs.models import ACTION, AGENT, DAY, HOUR

DAYS = 2 * SAMPLED_DAYS + 5


def asked(gateway: LiveGateway, owner: Owner, since: int, until: int, *, by_the_hour: bool) -> list[TopEntry]:
    async def once() -> list[TopEntry]:
        database = open_database(gateway.database_url)
        try:
            async with database.reading() as session:
                whose = EnvironmentKey(owner.user["organization_id"], "production")
                return list(await top_n(session, whose, ACTION, since, until, hours_only=by_the_hour))
        finally:
            await database.close()

    return finished(once())


@pytest.mark.parametrize(("actions", "by_the_hour"), [(12, False), (12, True), (300, False)])
def test_the_first_ten_are_those_with_most(
    gateway: LiveGateway, newcomer: Owner, actions: int, by_the_hour: bool
) -> None:
    """Over days and hours together, in order, with exact numbers; agents, and what came before, are not among them."""
    chance, organization = random.Random(actions), newcomer.user["organization_id"]
    now = minute_of(datetime.now(UTC))
    since = (now - now % HOUR - HOUR) if by_the_hour else (now // DAY - DAYS + 1) * DAY
    expected: Counter[str] = Counter()
    days, hours = [], []
    for number in range(actions):
        # Some do a great deal more than others, as it is in life.
        often = 10_000 // (number + 1) + 1
        for day in (now // DAY - DAYS, *range(now // DAY - DAYS + 1, now // DAY + 1, 3)):
            count = chance.randrange(often)
            for subject in (ACTION, AGENT):
                days.append(
                    f"('{organization}', 'production', '{subject}', 'a.{number}', {day}, {count}, 0, 1, 0, {count + 1})"
                )
            if day * DAY >= since and not by_the_hour:
                expected[f"a.{number}"] += count + 1
        for hour in (now - now % HOUR, now - now % HOUR - HOUR):
            count = chance.randrange(often)
            hours.append(
                f"('{organization}', 'production', '{ACTION}', {HOUR}, {hour}, 'a.{number}', 0, {count}, 0, 0)"
            )
            expected[f"a.{number}"] += count
    for table, values in (("day_counts", days), ("log_counts", hours)):
        for start in range(0, len(values), 5_000):
            execute(gateway, f"INSERT INTO {table} VALUES {', '.join(values[start : start + 5_000])}")
    found = asked(gateway, newcomer, since, now, by_the_hour=by_the_hour)
    ordered = sorted(expected.items(), key=lambda one: (-one[1], one[0]))[:TOP_COUNT]
    assert [(one.name, one.counts.total) for one in found] == ordered


def test_where_nothing_was_counted_nobody_did_most(gateway: LiveGateway, newcomer: Owner) -> None:
    """No error, and no name."""
    now = minute_of(datetime.now(UTC))
    assert asked(gateway, newcomer, now - DAY, now, by_the_hour=False) == []
    assert Counts().total == 0
