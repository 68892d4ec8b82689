"""What remains of the decision log when a gateway stops, is killed, or cannot write."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from support.decisions import decision_id
from support.gateway import LiveGateway, Owner
from support.tables import rows
from support.waiting import until


def stored(gateway: LiveGateway) -> set[str]:
    return {row[0] for row in rows(gateway, "SELECT id FROM decisions")}


def test_orderly_stop_loses_nothing(tmp_path: Path) -> None:
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "a.b")
        ids = {decision_id(owner.check(agent, action)) for _ in range(30) for action in ("a.b", "none")}
        gateway.stop()
        assert stored(gateway) == ids


def test_kill_loses_at_most_the_queue(tmp_path: Path) -> None:
    """What waited for less than a second may be lost; what is older, and what a check wrote itself, is there."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "pay", requires_approval=True)
        early = {decision_id(owner.check(agent, "none")) for _ in range(20)}
        until(lambda: stored(gateway) == early)
        late = {decision_id(owner.check(agent, "none")) for _ in range(5)}
        held = decision_id(owner.check(agent, "pay"))
        gateway.kill()
        found = stored(gateway)
        assert found >= early | {held}
        assert found <= early | late | {held}
        gateway.start()
        again = decision_id(owner.check(agent, "none"))
        until(lambda: again in stored(gateway))


def metric(gateway: LiveGateway, name: str) -> float:
    text = httpx.get(gateway.metrics_url, timeout=30).text
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))


@pytest.mark.one_process("one process has the metrics")
def test_metrics_count_what_was_written(tmp_path: Path) -> None:
    with (
        LiveGateway(tmp_path, env={"TOOLGATE_METRICS_ADDRESS": "127.0.0.1:0"}) as gateway,
        Owner(gateway.url) as owner,
    ):
        agent = owner.agent()
        assert metric(gateway, "toolgate_decisions_written_total") == 0
        for _ in range(10):
            owner.check(agent, "none")
        until(lambda: metric(gateway, "toolgate_decisions_written_total") == 10)
        assert metric(gateway, "toolgate_decisions_dropped_total") == 0
        assert metric(gateway, "toolgate_decisions_waiting") == 0
        assert metric(gateway, "toolgate_decision_batch_records_sum") == 10
        assert metric(gateway, "toolgate_decision_commit_duration_seconds_count") >= 1


@pytest.mark.sqlite_only("another process holds the lock of the file")
def test_database_that_cannot_be_written_neither_changes_nor_delays_answers(tmp_path: Path) -> None:
    env = {"TOOLGATE_METRICS_ADDRESS": "127.0.0.1:0"}
    with LiveGateway(tmp_path, env=env) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "a.b")
        first = decision_id(owner.check(agent, "a.b"))
        until(lambda: first in stored(gateway))
        with closing(sqlite3.connect(gateway.database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            ids = set()
            for _ in range(40):
                began = time.monotonic()
                answer = owner.check(agent, "a.b")
                assert answer.json()["allowed"] is True
                # The writer waits five seconds for the lock; a check that waited for the writer would take as long.
                assert time.monotonic() - began < 4
                ids.add(decision_id(answer))
                time.sleep(0.01)
            assert metric(gateway, "toolgate_decisions_waiting") == 40
            other.execute("ROLLBACK")
        until(lambda: stored(gateway) >= ids)
        assert metric(gateway, "toolgate_decisions_dropped_total") == 0
