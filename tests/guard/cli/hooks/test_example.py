"""The example, run as it is documented, with a person who approves, changes or declines."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.gateway import Owner
from support.readme import ROOT
from support.waiting import until


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decision", "body", "left"),
    [
        ("approve", {}, "nothing"),
        ("approve", {"command": "rm -r build/tmp"}, "nothing in it"),
        ("deny", {}, "build/tmp"),
    ],
)
def test_a_command_waits_for_a_person(
    owner: Owner, tmp_path: Path, decision: str, body: dict[str, Any], left: str
) -> None:
    """What they approved is what is gone afterwards."""
    agent_id = owner.agent("coder")
    owner.permit(agent_id, "tools.Bash", requires_approval=True)
    environment = {
        **os.environ,
        "TOOLGATE_URL": owner.url,
        "TOOLGATE_API_KEY": owner.key,
        "TOOLGATE_AGENT_ID": agent_id,
        "ANTHROPIC_API_KEY": "",
        "HOME": str(tmp_path / "home"),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "home" / ".claude"),
    }
    script = ROOT / "examples" / "claude_code" / "tidy.py"
    with subprocess.Popen(
        [sys.executable, script, tmp_path / "work"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        (request,) = until(lambda: owner.http.get("/api/approvals").json(), seconds=60)
        content = {"context": {**request["context"], **body}} if body else {}
        answer = owner.http.post(
            f"/api/approvals/{request['id']}/{decision}",
            json={"note": "keep it"} if decision == "deny" else content,
        )
        assert answer.status_code == 200, answer.text
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    *_, last = stdout.splitlines()
    assert last == f"left of build: {left}"
    assert ("keep it" in stdout) == (decision == "deny")
