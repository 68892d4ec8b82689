"""The log of a live gateway, verified by a program that is not ours: Go's `sumdb/note` and `sumdb/tlog`."""

from pathlib import Path

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.log_checker import check_checkpoint, check_log, check_proof
from support.logged_work import FREE, work
from support.verified_log import until_sealed

# The first test builds the program with a Go toolchain of 75 MB, which takes half a minute.
pytestmark = pytest.mark.slow


def test_checkpoints_tiles_entries_and_proofs_are_verified(tmp_path: Path) -> None:
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        url = f"{gateway.url}/tlog/{owner.user['organization_id']}/production"
        older = []
        agent = work(owner)
        for number in range(3):
            until_sealed(owner)
            older.append(tmp_path / f"{number}.checkpoint")
            older[-1].write_text(httpx.get(f"{url}/checkpoint").text, encoding="utf-8")
            body = {"agent_id": agent, "action": FREE, "status": "success", "context": {"n": number}}
            for _ in range(2):
                answer = owner.http.post(
                    "/sdk/logs", json={"entries": [body] * 90}, headers={"X-API-Key": owner.key}
                )
                assert answer.status_code == httpx.codes.OK
        logged = owner.log(agent, FREE).json()["id"]
        size = until_sealed(owner)
        status = owner.http.get("/api/transparency").json()
        token = owner.http.headers["Authorization"]
        checked = check_log(url, status["vkey"], older=older, header=f"Authorization: {token}")
        assert checked["size"] == checked["proofs"] == size
        assert len(checked["consistent_with"]) == len(older)
        receipt = tmp_path / "receipt.tlog-proof"
        receipt.write_text(owner.http.get(f"/api/logs/{logged}/receipt").text, encoding="utf-8")
        assert (
            logged in check_proof(receipt, status["vkey"])["leaf"]
            or check_proof(receipt, status["vkey"])["index"]
        )
        assert check_checkpoint(older[0], status["vkey"])["size"] < size
