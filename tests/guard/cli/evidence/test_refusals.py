"""`toolgate evidence`, in this process, at a live gateway: reasons for which it writes no archive."""

import asyncio
import json
import zipfile
from datetime import timedelta
from pathlib import Path

import pytest
from support.decisions import decision_id, recorded
from support.gateway import LiveGateway, Owner
from support.shell import Shell
from support.tables import execute
from support.team import Colleague
from support.verified_log import until_sealed

from toolgate_service import maintenance
from toolgate_service.core.clock import utcnow
from toolgate_service.core.plans import BUILT_IN
from toolgate_service.db.database import open_database
from toolgate_service.decisions.service import ContextRetention
from toolgate_service.logs.service import TEST_DAYS

pytestmark = pytest.mark.sqlite_only("commands speak HTTP: which database is behind it they cannot see")


@pytest.mark.usefixtures("owner")
@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--from", "1h", "--to", "2h"), "--to must be later than --from"),
        (("--from", "1h", "--to", "2999-01-01"), "--to must not be in the future"),
        (("--from", "yesterday"), "invalid --from 'yesterday'"),
        (("--from", "1h", "--verify-report", "missing.json"), "cannot read 'missing.json'"),
        (("--from", "1h", "--verify-report", "list.json"), "not a report of 'toolgate verify --json'"),
        (("--from", "1h", "--verify-report", "text.json"), "not a report of 'toolgate verify --json'"),
        (("--from", "1h", "--output", "list.json"), "already exists"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_invalid_input_is_named(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "text.json").write_text("PASS")
    message = shell.refused("evidence", *options)
    assert hint in message
    assert list(tmp_path.glob("*.zip")) == list(tmp_path.glob(".*.part")) == []
    assert (tmp_path / "list.json").read_text() == "[]"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("role", ["member", "viewer"])
def test_only_an_admin_can_make_an_archive(owner: Owner, tmp_path: Path, role: str) -> None:
    with Colleague(owner, role) as colleague:
        message = Shell.of(colleague).refused(
            "evidence", "--from", "1h", "--output", str(tmp_path / "evidence.zip")
        )
    assert "only a user with the role 'admin' can make an archive of evidence" in message
    assert f"the role of {colleague.email} is '{role}'" in message
    assert not (tmp_path / "evidence.zip").exists()


@pytest.mark.usefixtures("home")
async def test_data_that_retention_has_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LiveGateway(tmp_path / "gateway") as gateway, Owner(gateway.url) as owner:
        test = {"environment": "test"}
        agent = owner.http.post("/api/agents", params=test, json={"name": "tester"}).json()["id"]
        key = owner.http.get("/api/organization/test-key").json()["api_key"]
        for number in range(3):
            body = {"agent_id": agent, "action": "a", "context": {"n": number}}
            owner.http.post("/sdk/check", json=body, headers={"X-API-Key": key}).raise_for_status()
        until_sealed(owner, "test")
        moment = utcnow() + timedelta(days=TEST_DAYS)
        monkeypatch.setattr(maintenance, "steady_from", lambda _: asyncio.sleep(0, (moment, moment)))
        database = open_database(gateway.database_url)
        await database.start(migrate=False)
        await maintenance.prune(database, BUILT_IN, 100, ContextRetention(TEST_DAYS))
        await database.close()
        until_sealed(owner, "test")

        shell, path = Shell.of(owner), tmp_path / "evidence.zip"
        options = ("--from", "1h", "--environment", "test", "--output", str(path))
        message = shell.refused("evidence", *options)
        assert "retention has deleted data of the period: 3 decisions" in message
        assert "--allow-missing" in message
        assert not path.exists()

        shell.done("evidence", *options, "--allow-missing")
        with zipfile.ZipFile(path) as archive:
            missing = json.loads(archive.read("log/missing.json"))
            index = archive.read("index.md").decode()
    assert missing["deleted_rows"] == {"decision": 3}
    assert "MISSING: retention has deleted data of the period: 3 decisions" in index


def test_archive_with_a_changed_log_is_written_with_its_findings(
    shell: Shell, owner: Owner, live_gateway: LiveGateway, tmp_path: Path
) -> None:
    recorded(owner, decision_id(owner.check(owner.agent(), "a")))
    until_sealed(owner)
    organization = owner.user["organization_id"]
    changed = f"UPDATE decisions SET outcome = 'allowed' WHERE organization_id = '{organization}'"
    assert execute(live_gateway, changed) == 1
    path = tmp_path / "evidence.zip"
    done = shell.run("evidence", "--from", "1h", "--output", str(path))
    assert done.exit_code == 1
    assert "NOT VERIFIED" in done.stderr
    with zipfile.ZipFile(path) as archive:
        result = json.loads(archive.read("log/verification.json"))
        assert "NOT VERIFIED" in archive.read("index.md").decode()
    assert result["verified"] is False
