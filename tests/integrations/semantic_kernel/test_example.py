"""The example, run as it is documented: once until it is held, once more after the person decided."""

import os
import subprocess
import sys
from pathlib import Path

from support.gateway import Owner
from support.readme import ROOT


def treasurer(owner: Owner, agent_id: str, folder: Path) -> str:
    environment = {
        **os.environ,
        "TOOLGATE_URL": owner.url,
        "TOOLGATE_API_KEY": owner.key,
        "TOOLGATE_AGENT_ID": agent_id,
        "PAYMENTS_FILE": str(folder / "payments.txt"),
    }
    script = ROOT / "examples" / "semantic_kernel" / "treasurer.py"
    done = subprocess.run(
        [sys.executable, script, folder / "history.json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_payment_waits_for_a_person(owner: Owner, tmp_path: Path) -> None:
    """The second process pays, once the person approved."""
    agent_id = owner.agent("treasurer")
    owner.permit(agent_id, "invoices.read")
    owner.permit(agent_id, "invoices.pay", requires_approval=True)
    payments = tmp_path / "payments.txt"

    said = treasurer(owner, agent_id, tmp_path)
    [request] = owner.http.get("/api/approvals").json()
    assert said == f"waits for a person: approval {request['id']}\n"
    assert not payments.exists()

    assert owner.http.post(f"/api/approvals/{request['id']}/approve", json={}).status_code == 200
    assert "paid 120.50 for INV-7" in treasurer(owner, agent_id, tmp_path)
    assert payments.read_text() == "INV-7 120.50\n"
    assert sorted(each["status"] for each in owner.entries()) == ["pending", "success", "success"]
