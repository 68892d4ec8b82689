"""The example, run as it is documented: it waits, and pays once the person has approved."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from support.frameworks.harness import Scene
from support.readme import ROOT
from support.waiting import eventually


async def test_a_payment_waits_for_a_person(scene: Scene, tmp_path: Path) -> None:
    """The process goes on by itself when somebody approves."""
    owner, agent_id = scene.owner, scene.owner.agent("accountant")
    owner.permit(agent_id, "tools.read_invoice")
    owner.permit(agent_id, "tools.pay_invoice", requires_approval=True)
    payments = tmp_path / "payments.txt"
    accountant = await asyncio.create_subprocess_exec(
        sys.executable,
        ROOT / "examples" / "autogen" / "accountant.py",
        env={
            **os.environ,
            "TOOLGATE_URL": owner.url,
            "TOOLGATE_API_KEY": owner.key,
            "TOOLGATE_AGENT_ID": agent_id,
            "PAYMENTS_FILE": str(payments),
        },
        stdout=asyncio.subprocess.PIPE,
    )

    async def asked() -> Any:
        return (await asyncio.to_thread(owner.http.get, "/api/approvals")).json()

    scene.approve((await eventually(asked))[0]["id"])
    said, _ = await asyncio.wait_for(accountant.communicate(), 60)
    assert b"paid 120.50 for INV-7" in said
    assert payments.read_text() == "INV-7 120.50\n"
    statuses = sorted(each["status"] for each in owner.entries())
    assert statuses == ["pending", "success", "success"]
