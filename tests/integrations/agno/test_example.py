"""The example, run as it is documented: once until it is held, once more after the person decided."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.gateway import Owner
from support.readme import ROOT


def cashier(owner: Owner, agent_id: str, folder: Path, **more: str) -> str:
    environment = {
        **os.environ,
        "TOOLGATE_URL": owner.url,
        "TOOLGATE_API_KEY": owner.key,
        "TOOLGATE_AGENT_ID": agent_id,
        "PAYMENTS_FILE": str(folder / "payments.txt"),
        **more,
    }
    script = ROOT / "examples" / "agno" / "cashier.py"
    done = subprocess.run(
        [sys.executable, script, folder / "sessions"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def model() -> dict[str, str]:
    """The environment's model, or else none: the example's scripted one."""
    named = os.environ.get("AGNO_MODEL")
    return {} if named is None else {"AGNO_MODEL": named}


@pytest.mark.parametrize("decision", ["approve", pytest.param("deny", marks=pytest.mark.slow)])
def test_a_payment_waits_for_a_person(owner: Owner, tmp_path: Path, decision: str) -> None:
    """The second process pays if the person approved, and tells why not if they declined."""
    agent_id = owner.agent("cashier")
    owner.permit(agent_id, "tools.read_invoice")
    owner.permit(agent_id, "tools.pay_invoice", requires_approval=True)
    payments = tmp_path / "payments.txt"

    said = cashier(owner, agent_id, tmp_path, **model())
    [request] = owner.http.get("/api/approvals").json()
    assert said == f"waits for a person: pay_invoice, approval {request['id']}\n"
    assert cashier(owner, agent_id, tmp_path, **model()) == said
    assert not payments.exists()

    answer = owner.http.post(f"/api/approvals/{request['id']}/{decision}", json={"note": "not this month"})
    assert answer.status_code == 200
    said = cashier(owner, agent_id, tmp_path, **model())
    if decision == "approve":
        assert payments.read_text() == "INV-7 120.50\n"
    else:
        assert not payments.exists()
        if not model():
            assert "not this month" in said
    statuses = sorted(each["status"] for each in owner.entries())
    assert (
        statuses == ["pending", "success", "success"]
        if decision == "approve"
        else ["denied", "pending", "success"]
    )
