"""Agents are killed at any moment, with the gateway coming and going: no call that began goes unrecorded."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gateway import LiveGateway, Owner
from support.readme import ROOT

AGENT = ROOT / "tests" / "support" / "agent_to_kill.py"
MODES = ("sync", "async", "forks")
never = threading.Event()


class Killing:
    """Agents of one outbox, and the gateway they ask."""

    def __init__(self, folder: Path, gateway: LiveGateway, seed: int) -> None:
        self.chance = random.Random(seed)
        self._gateway = gateway
        with Owner(gateway.url) as owner:
            self._owner = owner
            self._agent_id = owner.agent()
            owner.permit(self._agent_id, "math.add")
        self._folder = folder
        self._env = {
            **os.environ,
            "TOOLGATE_URL": gateway.url,
            "TOOLGATE_API_KEY": owner.key,
            "TOOLGATE_AGENT_ID": self._agent_id,
            "TOOLGATE_OUTBOX": str(folder / "outbox"),
        }

    def start(self, name: str, mode: str) -> "subprocess.Popen[str]":
        command = [sys.executable, str(AGENT), str(self._folder), name, mode]
        return subprocess.Popen(
            command, env=self._env, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def round(self, number: int, agents: int) -> None:
        """Start agents, let the gateway come or go, and kill them all at a random instant."""
        started = [self.start(f"{number}.{k}", self.chance.choice(MODES)) for k in range(agents)]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        never.wait(self.chance.uniform(0, 0.8))
        if self.chance.random() < (0.8 if self._gateway.process is None else 0.4):
            if self._gateway.process is None:
                self._gateway.start()
            else:
                self._gateway.kill()
            never.wait(self.chance.uniform(0, 0.5))
        for process in started:
            # A forked child as well.
            os.killpg(process.pid, signal.SIGKILL)
        for process in started:
            process.wait(timeout=30)
            assert process.stdout is not None
            process.stdout.close()

    def replayed(self) -> None:
        """Start once more, with the gateway there."""
        if self._gateway.process is None:
            self._gateway.start()
        with self.start("last", "replay") as process:
            assert process.wait(timeout=90) == 0

    def begun(self) -> set[str]:
        numbers = (self._folder / "begun").read_text().split()
        assert len(numbers) == len(set(numbers))
        return set(numbers)

    def wrong(self) -> str:
        file = self._folder / "wrong"
        return file.read_text() if file.exists() else ""

    def entries(self) -> list[dict[str, Any]]:
        """Every log entry there is."""
        with self._owner.login() as http:
            url, found = "/api/logs?limit=100", list[dict[str, Any]]()
            while url:
                answer = http.get(url)
                found += answer.json()
                url = answer.links.get("next", {}).get("url", "")
        return found


@pytest.fixture
def own_gateway(tmp_path: Path) -> Iterator[LiveGateway]:
    with LiveGateway(tmp_path / "gateway") as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("rounds", "agents"),
    [
        pytest.param(9, 1, marks=pytest.mark.slow),
        (4, 3),
        pytest.param(140, 1, marks=pytest.mark.slow),
        pytest.param(60, 3, marks=pytest.mark.slow),
    ],
)
def test_no_call_that_began_goes_unrecorded(
    tmp_path: Path,
    own_gateway: LiveGateway,
    record_property: Callable[[str, object], None],
    rounds: int,
    agents: int,
) -> None:
    """Killed before the check, in the tool, after it, while sending: each call that began has exactly one entry."""
    seed = random.randrange(10**9)
    record_property("seed", seed)
    killing = Killing(tmp_path, own_gateway, seed)
    for number in range(rounds):
        killing.round(number, agents)
    killing.replayed()
    told = f"seed {seed}"
    entries = Counter(entry["context"]["n"] for entry in killing.entries())
    assert killing.wrong() == "", told
    assert killing.begun() - entries.keys() == set(), told
    # One key a call: twice the same would be two entries of it.
    assert [number for number, count in entries.items() if count > 1] == [], told
    assert len(killing.begun()) > rounds, told


def test_what_is_not_known_is_said(tmp_path: Path, own_gateway: LiveGateway) -> None:
    """A call whose process died in the tool is recorded as pending, with an unknown outcome and its own moment."""
    killing = Killing(tmp_path, own_gateway, 1)
    killing._env["SLOW_TOOL"] = "1"
    process = killing.start("slow", "sync")
    assert process.stdout is not None
    process.stdout.readline()
    begun = tmp_path / "begun"
    while not begun.exists():
        never.wait(0.01)
    process.kill()
    process.wait(timeout=30)
    process.stdout.close()
    assert killing.entries() == []
    killing.replayed()
    (entry,) = killing.entries()
    assert entry["status"] == "pending"
    assert entry["context"] == {"n": begun.read_text().strip(), "outcome": "unknown"}
    assert entry["occurred_at"] < entry["created_at"]
