"""Each committed row has its leaf: verified by the auditor's program on exports of a live gateway."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from support.gateway import LiveGateway, Owner
from support.logged_work import FREE, check, work
from support.tables import execute
from support.verified_log import export, until_sealed, verify
from support.waiting import until

from toolgate_cli.log.verification.export import verify_export
from toolgate_cli.log.verification.receipts import verify_receipt
from toolgate_cli.log.verification.state import State
from toolgate_service import maintenance
from toolgate_service.core.clock import utcnow
from toolgate_service.core.plans import BUILT_IN
from toolgate_service.db.database import open_database
from toolgate_service.decisions.service import ContextRetention
from toolgate_service.logs.service import TEST_DAYS

KINDS = ("decision", "log_entry", "approval", "vote", "audit_event", "policy_revision")


def test_every_kind_of_row_is_verified(gateway: LiveGateway) -> None:
    with Owner(gateway.url) as owner:
        work(owner)
        result = verify(owner)
        assert result.findings == []
        for kind in KINDS:
            assert result.counts[kind] > 0, kind
            assert result.counts[f"leaves: {kind}"] >= result.counts[kind]
        assert result.counts["rows older than the transparency log"] == 0


def test_each_environment_has_its_own_log(gateway: LiveGateway) -> None:
    with Owner(gateway.url) as owner:
        made = owner.http.post("/api/agents", params={"environment": "test"}, json={"name": "tester"})
        assert made.status_code == 201
        test, production = verify(owner, environment="test"), verify(owner)
        assert test.findings == production.findings == []
        assert test.origin.endswith(f"{owner.user['organization_id']}/test")
        assert test.key != production.key


def test_gaps_are_reported(gateway: LiveGateway) -> None:
    """An outcome without a decision, and a decision without an outcome after a quarter of an hour."""
    with Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.log(agent, FREE)
        result = verify(owner)
        assert result.findings == []
        assert [gap["code"] for gap in result.gaps] == ["entry_without_decision"]


def test_receipts_are_verified(gateway: LiveGateway) -> None:
    with Owner(gateway.url) as owner:
        agent = work(owner)
        logged = owner.log(agent, FREE, context={"amount": 12.5}).json()["id"]
        [approval, *_] = owner.http.get("/api/approvals", params={"status": "consumed"}).json()
        decision = until(lambda: owner.http.get("/api/decisions").json())[0]
        seen = State()
        verify(owner, seen)
        paths = (f"logs/{logged}", f"approvals/{approval['id']}", f"decisions/{decision['id']}")
        for path, row in zip(paths, (logged, approval["id"], decision["id"]), strict=True):
            answer = owner.http.get(f"/api/{path}/receipt")
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            result = verify_receipt(answer.content, state=seen)
            assert result.findings == []
            assert result.leaf["id"] == row


def test_a_row_that_is_not_sealed_has_no_receipt_yet(gateway: LiveGateway) -> None:
    with Owner(gateway.url) as owner:
        agent = owner.agent()
        until_sealed(owner)
        logged = owner.log(agent, FREE).json()["id"]
        path = f"/api/logs/{logged}/receipt"
        answer = owner.http.get(path)
        # Another round of the sealer may just have sealed the row.
        assert answer.status_code == 200 or answer.headers["Retry-After"] == "1"
        until(lambda: owner.http.get(path).status_code == 200)


def test_erased_contexts_keep_the_proofs(gateway: LiveGateway) -> None:
    with Owner(gateway.url) as owner:
        agent = work(owner)
        logged = owner.log(agent, FREE, context={"name": "Ada"}).json()["id"]
        [approval, *_] = owner.http.get("/api/approvals", params={"status": "consumed"}).json()
        decision = until(lambda: owner.http.get("/api/decisions", params={"action": FREE}).json())[0]
        before = State()
        assert verify(owner, before).findings == []
        for path in (f"logs/{logged}", f"approvals/{approval['id']}", f"decisions/{decision['id']}"):
            for _ in range(2):
                assert owner.http.post(f"/api/{path}/erase").status_code == 204
        result = verify(owner, before)
        assert result.findings == []
        assert result.counts["erased contexts"] == 3
        assert not any(b"Ada" in line for line in export(owner))
        [entry] = [one for one in owner.http.get("/api/logs").json() if one["id"] == logged]
        assert entry["context"] is None


async def test_rows_that_retention_removes_keep_their_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        test = {"environment": "test"}
        agent = owner.http.post("/api/agents", params=test, json={"name": "tester"}).json()["id"]
        owner.http.post(f"/api/agents/{agent}/permissions", params=test, json={"action": FREE})
        key = owner.http.get("/api/organization/test-key").json()["api_key"]
        for number in range(3):
            body = {"agent_id": agent, "action": FREE, "context": {"n": number}}
            for path, more in (("/sdk/check", {}), ("/sdk/log", {"status": "success"})):
                answer = owner.http.post(path, json=body | more, headers={"X-API-Key": key})
                assert answer.status_code == 200
        logged = answer.json()["id"]
        check(owner, owner.agent(), FREE, context={"n": 1})
        until_sealed(owner)
        before = State()
        kept = verify(owner, before, environment="test")
        assert kept.findings == []
        # The rows are as old as the test environment keeps them.
        moment = utcnow() + timedelta(days=TEST_DAYS)
        monkeypatch.setattr(maintenance, "steady_from", lambda _: asyncio.sleep(0, (moment, moment)))
        database = open_database(gateway.database_url)
        await database.start(migrate=False)
        await maintenance.prune(database, BUILT_IN, 100, ContextRetention(TEST_DAYS))
        await database.close()
        result = verify(owner, before, environment="test")
        assert result.findings == []
        assert result.counts["log_entry"] == result.counts["decision"] == 0
        assert result.counts["rows removed by retention"] == 6
        assert result.counts["leaves"] > kept.counts["leaves"]
        receipt = owner.http.get(f"/api/logs/{logged}/receipt", params=test)
        assert verify_receipt(receipt.content, state=before).leaf["id"] == logged
        # Production keeps its decisions, but not their contexts.
        production = verify(owner)
        assert production.findings == []
        assert production.counts["erased contexts"] == 1


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE log_entries SET status = 'failed' WHERE status = 'success'", "member"),
        ("UPDATE approvals SET status = 'approved' WHERE status = 'consumed'", "state"),
        ("DELETE FROM decisions WHERE outcome = 'denied'", "missing_row"),
    ],
)
def test_a_change_of_the_database_is_found(tmp_path: Path, statement: str, code: str) -> None:
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        work(owner)
        assert verify(owner).findings == []
        execute(gateway, statement)
        assert code in verify_export(export(owner)).codes
