"""The example, run as it is documented: once until it is told to wait, once more after the person decided."""

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
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "crewai" / "treasurer.py"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_payment_waits_for_a_person(owner: Owner, tmp_path: Path) -> None:
    """The first process is told that the payment waits, the second pays it."""
    agent_id = owner.agent("treasurer")
    owner.permit(agent_id, "tools.read_invoice")
    owner.permit(agent_id, "tools.pay_invoice", requires_approval=True)
    payments = tmp_path / "payments.txt"

    said = treasurer(owner, agent_id, tmp_path)
    [request] = owner.http.get("/api/approvals").json()
    assert request["id"] in said
    assert not payments.exists()

    answer = owner.http.post(f"/api/approvals/{request['id']}/approve", json={})
    assert answer.status_code == 200
    said = treasurer(owner, agent_id, tmp_path)
    if not os.environ.get("CREWAI_MODEL"):
        assert said == "I read INV-7, and of the payment I was told: paid 120.50 for INV-7\n"
    assert payments.read_text() == "INV-7 120.50\n"
    assert sorted(each["status"] for each in owner.entries()) == ["pending", "success", "success", "success"]
