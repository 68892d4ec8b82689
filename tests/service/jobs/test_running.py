"""The upkeep of gateways that run (decisions §7, §12)."""

from pathlib import Path

import pytest
from support.bulk import write_entries
from support.gateway import LiveGateway, Owner
from support.tables import execute, rows
from support.upkeep import ago, ago_text
from support.waiting import until

OFTEN = {"TOOLGATE_MAINTENANCE_INTERVAL_SECONDS": "1"}


def holder(gateway: LiveGateway) -> str | None:
    found = rows(gateway, "SELECT holder FROM heartbeats WHERE job = 'upkeep'")
    return None if not found or found[0][0] is None else str(found[0][0])


def test_a_running_gateway_removes_what_is_old(tmp_path: Path) -> None:
    """Nobody asks for it; what has run out is marked as well."""
    with LiveGateway(tmp_path, plan="free", env=OFTEN) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "held", requires_approval=True)
        approval = owner.check(agent, "held").json()["approval_id"]
        execute(gateway, "UPDATE approvals SET expires_at = ? WHERE id = ?", ago_text(minutes=1), approval)
        write_entries(gateway, owner, [agent], 30, newest=ago(days=8))
        new = owner.log(agent, "new").json()["id"]
        until(lambda: [entry["id"] for entry in owner.entries()] == [new])
        until(lambda: rows(gateway, "SELECT status FROM approvals") == [("expired",)])
        assert owner.http.get(f"/api/approvals/{approval}").json()["status"] == "expired"


def test_a_jumped_clock_is_told_in_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The gateway says that retention halts and until when, removes nothing, and goes on serving."""
    with LiveGateway(tmp_path, plan="free") as gateway, Owner(gateway.url) as owner:
        write_entries(gateway, owner, [owner.agent()], 3, newest=ago(days=8))
        beat = "INSERT INTO heartbeats (job, beaten_at, steady_since) VALUES ('retention', ?, ?)"
        execute(gateway, beat, ago_text(days=2), ago_text(days=9))
    said = ""
    with LiveGateway(tmp_path, plan="free", env=OFTEN) as gateway:

        def halted() -> bool:
            nonlocal said
            said += capfd.readouterr().err
            return "old rows are not deleted for now: this machine's clock" in said

        until(halted)
        assert rows(gateway, "SELECT count(*) FROM log_entries") == [(3,)]
    assert "Traceback" not in said + capfd.readouterr().err


def test_a_gateway_that_dies_in_the_middle_of_the_upkeep_leaves_it_to_the_next(tmp_path: Path) -> None:
    """What it had not yet removed another one removes, and nothing else: a dead gateway costs a delay."""
    first = LiveGateway(tmp_path, plan="free", env=OFTEN | {"TOOLGATE_PRUNE_BATCH": "1"})
    second = LiveGateway(tmp_path, plan="free", env=OFTEN)

    def entries() -> int:
        return int(rows(first, "SELECT count(*) FROM log_entries")[0][0])

    try:
        first.start()
        with Owner(first.url) as owner:
            agent = owner.agent()
            kept = owner.log(agent, "kept").json()["id"]
            write_entries(first, owner, [agent], 1_000, newest=ago(days=8))
        until(lambda: entries() < 950)
        first.kill()
        assert entries() > 1
        assert holder(first) is not None
        second.start()
        until(lambda: entries() == 1)
        assert rows(second, "SELECT id FROM log_entries") == [(kept,)]
    finally:
        first.stop()
        second.stop()
