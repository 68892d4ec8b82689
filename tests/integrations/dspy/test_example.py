"""The example, run as it is documented: it waits until the person has decided."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.gateway import Owner
from support.readme import ROOT
from support.waiting import until


@pytest.mark.parametrize("decision", ["approve", pytest.param("deny", marks=pytest.mark.slow)])
def test_a_payment_waits_for_a_person(owner: Owner, tmp_path: Path, decision: str) -> None:
    """It pays if the person approved, and tells why not if they declined."""
    agent_id = owner.agent("bookkeeper")
    owner.permit(agent_id, "tools.read_invoice")
    owner.permit(agent_id, "tools.pay_invoice", requires_approval=True)
    payments = tmp_path / "payments.txt"
    environment = {
        **os.environ,
        "TOOLGATE_URL": owner.url,
        "TOOLGATE_API_KEY": owner.key,
        "TOOLGATE_AGENT_ID": agent_id,
        "PAYMENTS_FILE": str(payments),
    }
    script = ROOT / "examples" / "dspy" / "bookkeeper.py"
    with subprocess.Popen(
        [sys.executable, script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            [request] = until(lambda: requests(owner), seconds=120)
            assert not payments.exists()
            answer = owner.http.post(
                f"/api/approvals/{request['id']}/{decision}", json={"note": "not this month"}
            )
            assert answer.status_code == 200
            said, complaint = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 0, complaint
    if decision == "approve":
        assert payments.read_text() == "INV-7 120.50\n"
    else:
        assert not payments.exists()
        assert os.environ.get("DSPY_MODEL") or "not this month" in said
    last = "success" if decision == "approve" else "denied"
    assert sorted(each["status"] for each in owner.entries()) == sorted(["pending", "success", last])


def requests(owner: Owner) -> list[dict[str, Any]]:
    """The requests there are; none is seen while the gateway has had enough of being asked."""
    answer = owner.http.get("/api/approvals")
    return answer.json() if answer.status_code == 200 else []
