"""The example, run as it is documented: once until it is held, once more after the person approved."""

import os
import subprocess
import sys
from pathlib import Path

from support.gateway import Owner
from support.readme import ROOT


def bookkeeper(owner: Owner, agent_id: str, folder: Path) -> list[str]:
    environment = {
        **os.environ,
        "TOOLGATE_URL": owner.url,
        "TOOLGATE_API_KEY": owner.key,
        "TOOLGATE_AGENT_ID": agent_id,
        "REFUNDS_FILE": str(folder / "refunds.txt"),
    }
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "openapi" / "bookkeeper.py"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_refund_waits_for_a_person(owner: Owner, tmp_path: Path) -> None:
    """Of five calls one is made, and a second once it is approved; the others never reach the API."""
    agent_id = owner.agent("bookkeeper")
    owner.permit(agent_id, "payments.getAccount")
    owner.permit(agent_id, "payments.createRefund", requires_approval=True, max_amount=100)
    refunds = tmp_path / "refunds.txt"

    said = bookkeeper(owner, agent_id, tmp_path)
    [request] = owner.http.get("/api/approvals").json()
    assert request["context"] == {"charge": "ch_1", "amount": 40}
    assert said[1] == '  200 {"holds": 1200}'
    assert said[3] == f"  waits for a person: payments.createRefund, approval {request['id']}"
    assert said[5].startswith(
        "  Not done: 'payments.createRefund' is blocked. Amount 9000 is above the maximum"
    )
    assert said[7].startswith("  Not done: 'payments.closeAccount' is blocked.")
    assert said[9].startswith("  Not done: 'payments.unknown' is blocked.")
    assert not refunds.exists()

    answer = owner.http.post(f"/api/approvals/{request['id']}/approve", json={})
    assert answer.status_code == 200
    again = bookkeeper(owner, agent_id, tmp_path)
    assert again[3] == '  201 {"refunded": 40}'
    assert [*again[:3], *again[4:]] == [*said[:3], *said[4:]]
    assert refunds.read_text() == "ch_1 40\n"
    statuses = sorted((each["action"], each["status"]) for each in owner.entries(status="success"))
    assert statuses == [
        ("payments.createRefund", "success"),
        ("payments.getAccount", "success"),
        ("payments.getAccount", "success"),
    ]
