"""A clock that jumps removes nothing (decisions §12)."""

import time
from collections.abc import Iterator

import pytest
from support.bulk import write_entries
from support.gateway import LiveGateway, Owner
from support.tables import execute, rows
from support.upkeep import Prune, ago, ago_text

from toolgate_service.jobs.scheduler import RetentionHalted


def last_beat(gateway: LiveGateway, beaten: float, steady: float) -> None:
    """Set the retention's heartbeat: when it was given, and since when the clock is steady, in hours ago."""
    statement = "UPDATE heartbeats SET beaten_at = ?, steady_since = ? WHERE job = 'retention'"
    assert execute(gateway, statement, ago_text(hours=beaten), ago_text(hours=steady)) == 1


@pytest.fixture
def old(attic: LiveGateway, keeper: Owner, pruned: Prune) -> Iterator[Owner]:
    """An organization with four entries that are kept no longer, and a heartbeat of this moment."""
    pruned(force=True)
    write_entries(attic, keeper, [keeper.agent()], 4, newest=ago(days=8))
    yield keeper
    last_beat(attic, 0, 100)


def test_a_day_ahead_of_the_newest_heartbeat_retention_halts(
    attic: LiveGateway, old: Owner, pruned: Prune
) -> None:
    """Nothing is removed at the jump, nor in the day after it; the message says until when."""
    last_beat(attic, 24.1, 100)
    for _ in range(2):
        with pytest.raises(RetentionHalted, match=r"more than a day ahead .* until 20\d\d-"):
            pruned()
    last_beat(attic, 0.1, 23.9)
    with pytest.raises(RetentionHalted):
        pruned()
    assert len(old.entries()) == 4


def test_a_window_of_a_clock_that_was_ahead_keeps_nobody_out(
    attic: LiveGateway, keeper: Owner, pruned: Prune
) -> None:
    """Counted while the clock was wrong, it goes even while nothing else is removed; the present minute's stays."""
    pruned(force=True)
    organization, minute = keeper.user["organization_id"], int(time.time()) // 60
    for scope, ahead in (("right", 0), ("wrong", 24 * 60)):
        statement = "INSERT INTO rate_windows (organization_id, scope, minute, requests) VALUES (?, ?, ?, 9)"
        execute(attic, statement, organization, scope, minute + ahead)
    last_beat(attic, 24.1, 100)
    try:
        with pytest.raises(RetentionHalted):
            pruned()
    finally:
        last_beat(attic, 0, 100)
    query = "SELECT scope FROM rate_windows WHERE requests = 9 AND organization_id = ?"
    assert rows(attic, query, organization) == [("right",)]


def test_after_a_steady_day_it_goes_on(attic: LiveGateway, old: Owner, pruned: Prune) -> None:
    """A clock that has been right all along is trusted again by itself."""
    last_beat(attic, 0.1, 24.1)
    assert pruned()["log_entries"] == 4


def test_less_than_a_day_is_no_jump(attic: LiveGateway, old: Owner, pruned: Prune) -> None:
    """A gateway that was off overnight removes at once what is old."""
    last_beat(attic, 23.9, 100)
    assert pruned()["log_entries"] == 4


def test_a_clock_that_was_set_back_waits_a_day(attic: LiveGateway, old: Owner, pruned: Prune) -> None:
    """What was steady in the future is not trusted."""
    last_beat(attic, -48, -24)
    with pytest.raises(RetentionHalted):
        pruned()


def test_an_operator_who_knows_better_may_force_it(attic: LiveGateway, old: Owner, pruned: Prune) -> None:
    """Forced, it removes what is old by the clock as it is."""
    last_beat(attic, 48, 100)
    assert pruned(force=True)["log_entries"] == 4
