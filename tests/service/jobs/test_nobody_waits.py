"""Removing a long log keeps nobody waiting (decisions §7)."""

import time
from pathlib import Path
from statistics import median

import pytest
from support.bulk import write_entries
from support.gateway import LiveGateway, Owner
from support.tables import execute, rows
from support.upkeep import ago, ago_text
from support.wire import Wire

#: of logs and checks between two looks at what is left
ROUND = 20


def timed(client: Wire, agent: str) -> list[float]:
    """Return how long each of some logs and checks took together."""
    took = []
    for _ in range(ROUND):
        began = time.perf_counter()
        assert client.log(agent, "a").status == 200
        assert client.check(agent, "a").status == 200
        took.append(time.perf_counter() - began)
    return took


@pytest.mark.slow
@pytest.mark.parametrize("entries", [20_000, 200_000])
def test_checks_and_logs_go_on_while_entries_are_removed(tmp_path: Path, entries: int) -> None:
    """Most take a few times what they take alone, and the slowest a small part of the removal."""
    env = {"TOOLGATE_MAINTENANCE_INTERVAL_SECONDS": "1"}
    left = "SELECT count(*) FROM log_entries WHERE created_at < ?"
    with (
        LiveGateway(tmp_path, plan="enterprise", env=env) as gateway,
        Owner(gateway.url) as owner,
        Wire.of(owner) as client,
    ):
        agent = owner.agent()
        alone = [one for _ in range(15) for one in timed(client, agent)]
        write_entries(gateway, owner, [agent], entries, newest=ago(days=100))
        # Business keeps them for ninety days.
        assert rows(gateway, left, ago_text(days=90))[0][0] == entries
        business = "UPDATE organizations SET plan = 'business' WHERE id = ?"
        execute(gateway, business, owner.user["organization_id"])
        began, busy = time.perf_counter(), list[float]()
        while (rest := rows(gateway, left, ago_text(days=90))[0][0]) > 0:
            part = timed(client, agent)
            if 0 < rest < entries:
                busy += part
        removal = time.perf_counter() - began
        # Before and after: a machine has other things to do as well.
        after = [one for _ in range(15) for one in timed(client, agent)]
    assert len(busy) >= 2 * ROUND
    assert median(busy) < 10 * max(median(alone), median(after))
    assert max(busy) < removal / 2
