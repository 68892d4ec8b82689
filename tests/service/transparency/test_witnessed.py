"""A real witness cosigns the checkpoints of a live gateway, and recognizes a database that went back."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.verified_log import export, until_sealed
from support.waiting import until
from support.witness_server import ServedWitness

from toolgate_cli.log.verification.export import verify_export
from toolgate_cli.log.verification.notes import Key
from toolgate_cli.log.verification.receipts import verify_receipt
from toolgate_cli.log.verification.state import State

pytestmark = pytest.mark.sqlite_only("a server's files are restored by its own tools; the memory is the same")


def status(owner: Owner) -> dict[str, Any]:
    """Return the state of the log."""
    answer = owner.http.get("/api/transparency")
    assert answer.status_code == httpx.codes.OK, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_checkpoints_are_cosigned_and_a_restored_database_is_recognized(tmp_path: Path) -> None:
    database, backup = tmp_path / "gateway.db", tmp_path / "backup.db"
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        until_sealed(owner)
        log = cast("Any", SimpleNamespace(vkey=status(owner)["vkey"]))
        gateway.stop()
        shutil.copy(database, backup)
        with ServedWitness(tmp_path, log) as witness:
            gateway.env["TOOLGATE_WITNESSES"] = f"{witness.url} {witness.key}"
            gateway.start()
            key = Key.parse(witness.key)
            logged = owner.log(agent, "a.b").json()["id"]
            until_sealed(owner)
            until(lambda: status(owner)["witnesses"] == [key.name])
            receipt = owner.http.get(f"/api/logs/{logged}/receipt").content
            seen = State()
            assert verify_export(export(owner), state=seen).findings == []
            result = verify_receipt(receipt, state=seen, witnesses=[key], required=1)
            assert result.findings == []
            # The gateway's own memory is lost together with the newer database.
            gateway.stop()
            shutil.copy(backup, database)
            (tmp_path / "gateway.db-checkpoints").unlink()
            gateway.start()
            owner.agent("after the restore")
            until(lambda: status(owner)["problem"] is not None)
            assert "restored from a backup" in status(owner)["problem"]
            path = f"/tlog/{owner.user['organization_id']}/production/checkpoint"
            assert httpx.get(gateway.url + path).status_code == httpx.codes.SERVICE_UNAVAILABLE
