"""A gateway whose database went back behind a published checkpoint refuses to sign another tree."""

import shutil
from pathlib import Path

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.verified_log import until_sealed
from support.waiting import until

pytestmark = pytest.mark.sqlite_only("a server's files are restored by its own tools; the memory is the same")


def checkpoint(gateway: LiveGateway, owner: Owner) -> httpx.Response:
    """Return the response with the public checkpoint of an organization's log."""
    return httpx.get(f"{gateway.url}/tlog/{owner.user['organization_id']}/production/checkpoint", timeout=30)


def size(gateway: LiveGateway, owner: Owner) -> int:
    """Return the number of leaves of the public checkpoint."""
    answer = checkpoint(gateway, owner)
    return int(answer.text.split("\n")[1]) if answer.status_code == 200 else 0


def seal(owner: Owner) -> int:
    """Create an agent, and return the size of the checkpoint that contains the audit event."""
    owner.agent()
    return until_sealed(owner)


def test_a_restored_database_is_recognized_after_a_restart(tmp_path: Path) -> None:
    database, backup = tmp_path / "gateway.db", tmp_path / "backup.db"
    env = {"TOOLGATE_METRICS_ADDRESS": "127.0.0.1:0"}
    with LiveGateway(tmp_path, env=env) as gateway, Owner(gateway.url) as owner:
        old = seal(owner)
        gateway.stop()
        shutil.copy(database, backup)
        gateway.start()
        new = seal(owner)
        gateway.stop()
        shutil.copy(backup, database)
        gateway.start()
        answer = checkpoint(gateway, owner)
        assert answer.status_code == 503
        assert f"The log has {old} leaves, but a checkpoint of {new} leaves was published" in answer.text
        owner.agent()
        status = owner.http.get("/api/transparency").json()
        assert status["size"] == old
        assert "restored from a backup" in status["problem"]
        unsealed = "\ntoolgate_transparency_logs_unsealed 1.0\n"
        until(lambda: unsealed in httpx.get(gateway.metrics_url, timeout=30).text)


def test_a_fork_that_is_longer_than_the_published_log_is_recognized(tmp_path: Path) -> None:
    """Another gateway without the memory has appended other leaves to the restored database."""
    database, backup, memory = (tmp_path / f"gateway.db{end}" for end in ("", ".backup", "-checkpoints"))
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        seal(owner)
        gateway.stop()
        shutil.copy(database, backup)
        gateway.start()
        new = seal(owner)
        gateway.stop()
        known = memory.read_text()
        shutil.copy(backup, database)
        memory.unlink()
        gateway.start()
        while seal(owner) <= new:
            pass
        gateway.stop()
        memory.write_text(known)
        gateway.start()
        answer = checkpoint(gateway, owner)
        assert answer.status_code == 503
        assert f"The first {new} leaves of the log differ" in answer.text


def test_a_restart_alone_changes_nothing(tmp_path: Path) -> None:
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        before = seal(owner)
        gateway.stop()
        gateway.start()
        assert size(gateway, owner) >= before
        assert seal(owner) > before


def test_a_partly_written_line_of_the_memory_is_ignored(tmp_path: Path) -> None:
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        before = seal(owner)
        gateway.stop()
        with (tmp_path / "gateway.db-checkpoints").open("a") as file:
            file.write('["toolgate/tlog')
        gateway.start()
        assert size(gateway, owner) >= before
