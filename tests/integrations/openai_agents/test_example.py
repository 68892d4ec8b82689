"""The example of the Agents SDK does what its page says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.gateway import Owner

TREASURER = Path(__file__).parents[3] / "examples" / "openai_agents" / "treasurer.py"


@pytest.mark.parametrize("restarted", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_treasurer(owner: Owner, tmp_path: Path, restarted: bool) -> None:
    """The clerk is asked, closing is refused, the payment waits and is made once; also in another process."""
    agent_id = owner.agent()
    for action, held in (("tools.ask_clerk", False), ("tools.balance", False), ("tools.pay", True)):
        owner.permit(agent_id, action, requires_approval=held)
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    environment |= {
        "TOOLGATE_URL": owner.url,
        "TOOLGATE_API_KEY": owner.key,
        "TOOLGATE_AGENT_ID": agent_id,
        "PYTHONUNBUFFERED": "1",
    }

    def begun() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(TREASURER)],
            cwd=tmp_path,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    running = begun()
    assert running.stdout is not None
    waits = running.stdout.readline()
    approval_id = waits.split()[-1]
    assert waits == f"waits for a person: toolgate approvals approve {approval_id}\n"
    if restarted:
        assert running.communicate()[0] == ""
    assert owner.http.post(f"/api/approvals/{approval_id}/approve", json={}).status_code == 200
    if restarted:
        running = begun()
    said, _ = running.communicate("\n")
    assert said == "* paid 40 to Eve\nI did what was allowed.\n"
    assert running.returncode == 0
    logged = sorted((each["action"], each["status"]) for each in owner.entries())
    assert logged == [
        ("tools.ask_clerk", "success"),
        ("tools.balance", "success"),
        ("tools.close", "denied"),
        ("tools.pay", "pending"),
        ("tools.pay", "success"),
    ]
