"""The example, run as it is documented: it waits for a person, and pays once they approved."""

import os
import subprocess
import sys
from pathlib import Path

from support.gateway import Owner
from support.readme import ROOT
from support.waiting import until


def test_a_payment_waits_for_a_person(owner: Owner, tmp_path: Path) -> None:
    """The same run pays, once the person has approved."""
    agent_id = owner.agent("accountant")
    owner.permit(agent_id, "bank.read_invoice")
    owner.permit(agent_id, "bank.pay_invoice", requires_approval=True)
    payments = tmp_path / "payments.txt"
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "CLAUDE"))
    }
    given = {
        "TOOLGATE_URL": owner.url,
        "TOOLGATE_API_KEY": owner.key,
        "TOOLGATE_AGENT_ID": agent_id,
        "PAYMENTS_FILE": str(payments),
        "HOME": str(tmp_path),
    }
    script = ROOT / "examples" / "claude_agent_sdk" / "accountant.py"
    with subprocess.Popen(
        [sys.executable, script], env={**clean, **given}, cwd=tmp_path, stdout=-1, stderr=-1, text=True
    ) as agent:
        [request] = until(lambda: owner.http.get("/api/approvals").json())
        assert not payments.exists()
        answer = owner.http.post(f"/api/approvals/{request['id']}/approve", json={})
        assert answer.status_code == 200
        said, wrong = agent.communicate(timeout=60)
    assert agent.returncode == 0, wrong
    assert payments.read_text() == "INV-7 120.50\n"
    assert "paid 120.50 for INV-7" in said
    statuses = sorted(each["status"] for each in owner.entries())
    assert [each for each in statuses if each != "pending"] == ["success", "success"]
