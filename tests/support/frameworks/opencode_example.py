"""Runs examples/opencode with an approver."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.gateway import Owner
from support.readme import ROOT
from support.waiting import until

_pause = threading.Event()


def run_example(
    owner: Owner, folder: Path, programs: Sequence[Path], decision: str, edits: Mapping[str, Any]
) -> str:
    """Run `tidy.py` until its call requires approval, decide, and return what it prints.

    Args:
        owner: Owner of the gateway's organization.
        folder: Folder for the example and its home.
        programs: Folders of OpenCode or Node, which are put on PATH.
        decision: `approve` or `deny`.
        edits: Arguments that the approver changes.
    """
    agent_id = owner.agent("coder")
    owner.permit(agent_id, "tools.bash", requires_approval=True)
    (folder / "home").mkdir()
    environment = {
        "PATH": os.pathsep.join([*map(str, programs), os.defpath]),
        "HOME": str(folder / "home"),
        "TOOLGATE_URL": owner.url,
        "TOOLGATE_API_KEY": owner.key,
        "TOOLGATE_AGENT_ID": agent_id,
    }
    script = ROOT / "examples" / "opencode" / "tidy.py"
    with subprocess.Popen(
        [sys.executable, script, folder / "work"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        request = _pending(owner)
        content = {"context": {**request["context"], **edits}} if edits else {}
        if decision == "deny":
            content = {"note": "keep it"}
        answer = owner.http.post(f"/api/approvals/{request['id']}/{decision}", json=content)
        assert answer.status_code == 200, answer.text
        stdout, stderr = process.communicate(timeout=180)
    assert process.returncode == 0, stderr
    return stdout


def _pending(owner: Owner) -> dict[str, Any]:
    """Wait for the approval request; two polls a second stay below the rate limit while the program starts."""

    def poll() -> list[dict[str, Any]]:
        _pause.wait(0.5)
        answer = owner.http.get("/api/approvals", params={"status": "pending"})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    (request,) = until(poll, seconds=120)
    return request
