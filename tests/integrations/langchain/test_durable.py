"""A run goes on in another process, by LangGraph's checkpoints and the gateway's requests, whatever the first died of."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from support.frameworks.harness import Scene
from support.waiting import until

TESTS = Path(__file__).parents[2]
SHAPES = pytest.mark.parametrize("shape", ["agent", pytest.param("graph", marks=pytest.mark.slow)])
Step: TypeAlias = Callable[..., dict[str, Any] | None]


@pytest.fixture
def step(scene: Scene, tmp_path: Path) -> Step:
    """Carries out a step in a process of its own; None if that was killed."""
    env = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "TOOLGATE_URL": scene.owner.url,
        "TOOLGATE_API_KEY": scene.owner.key,
        "TOOLGATE_AGENT_ID": scene.agent_id,
        "XDG_STATE_HOME": str(tmp_path),
    }

    def go(what: str, shape: str, dies: str = "no") -> dict[str, Any] | None:
        command = [sys.executable, "-m", "support.frameworks.durable", what, shape, str(tmp_path), dies]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
        if dies != "no":
            assert done.returncode == -signal.SIGKILL, done.stderr
            return None
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return go


def ran(folder: Path) -> list[str]:
    file = folder / "ran.txt"
    return sorted(file.read_text().splitlines()) if file.exists() else []


@pytest.mark.slow
@SHAPES
def test_a_run_goes_on_in_another_process(scene: Scene, step: Step, tmp_path: Path, shape: str) -> None:
    """What was held is carried out there, and what ran does not run again."""
    first = step("start", shape)
    assert first is not None
    [approval_id] = first["held"]
    still = step("resume", shape)
    assert still is not None
    assert still["held"] == [approval_id]
    scene.approve(approval_id)
    last = step("resume", shape)
    assert last is not None
    assert last["last"] == "done"
    assert ran(tmp_path) == ["look sky", "pay eve 40"]
    assert scene.requests() == 1


@pytest.mark.slow
@SHAPES
def test_killed_while_pausing(scene: Scene, step: Step, tmp_path: Path, shape: str) -> None:
    """The request outlives whoever made it: the next process finds it, and it is carried out once."""
    step("start", shape, "held")
    [request] = until(lambda: scene.owner.http.get("/api/approvals").json())
    scene.approve(request["id"])
    last = step("again", shape)
    assert last is not None
    assert last["last"] == "done"
    assert ran(tmp_path).count("pay eve 40") == 1
    assert scene.requests() == 1


@SHAPES
def test_killed_when_it_had_run(scene: Scene, step: Step, tmp_path: Path, shape: str) -> None:
    """What an approval let run does not run again, though nobody wrote down that it did; the model reads so."""
    first = step("start", shape)
    assert first is not None
    scene.approve(first["held"][0])
    step("resume", shape, "ran")
    last = step("again", shape)
    assert last is not None
    assert ran(tmp_path).count("pay eve 40") == 1
    assert any("has already been allowed once" in each for each in last["read"])
    assert last["last"] == "done"
