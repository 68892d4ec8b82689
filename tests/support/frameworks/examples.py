"""The examples in which an agent pays an invoice once a person has approved, run as their pages say."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from support.gateway import Owner
from support.readme import ROOT
from support.waiting import until

Decision = Literal["approve", "deny"]

#: gives a test its `decision`
DECISIONS = pytest.mark.parametrize("decision", ["approve", pytest.param("deny", marks=pytest.mark.slow)])


@dataclass(frozen=True)
class Example:
    """One of them, as it differs from the others.

    Attributes:
        script: below `examples`.
        state: what it keeps a paused run in, its only argument; None: it keeps none.
        waits: what it says of a payment that waits, with a `{}` for the approval's id.
        reading: its action that is allowed.
        paying: its action that a person must approve.
        model: the variable by which it uses a real model, whose words nobody knows; None: it is not asked for one.
        env: the variables it is given beside those that are here.
        without: how the variables begin that are kept from it.
    """

    script: str
    state: str | None = None
    waits: str = "waits for a person: tools.pay_invoice, approval {}"
    reading: str = "tools.read_invoice"
    paying: str = "tools.pay_invoice"
    model: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()


class Play:
    """An example with an agent of its own, and the person who decides.

    Attributes:
        example: what is run.
        payments: the file of what was paid.
    """

    def __init__(self, example: Example, owner: Owner, folder: Path) -> None:
        self.example = example
        self.payments = folder / "payments.txt"
        self._owner = owner
        self._folder = folder
        agent_id = owner.agent(Path(example.script).stem)
        owner.permit(agent_id, example.reading)
        owner.permit(agent_id, example.paying, requires_approval=True)
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(example.without)},
            "TOOLGATE_URL": owner.url,
            "TOOLGATE_API_KEY": owner.key,
            "TOOLGATE_AGENT_ID": agent_id,
            "PAYMENTS_FILE": str(self.payments),
            **example.env,
        }

    @property
    def scripted(self) -> bool:
        """Whether it is known what the model says."""
        return self.example.model is None or not self._env.get(self.example.model)

    @contextmanager
    def begun(self) -> Iterator[subprocess.Popen[str]]:
        """Run the example in a process, which ends with the block at the latest."""
        state = self.example.state
        with subprocess.Popen(
            [
                sys.executable,
                ROOT / "examples" / self.example.script,
                *([] if state is None else [self._folder / state]),
            ],
            cwd=self._folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            try:
                yield running
            finally:
                running.kill()

    def run(self) -> str:
        """Run the example in a process, to its end; returns what it said."""
        with self.begun() as running:
            return ended(running)

    def requests(self) -> list[dict[str, Any]]:
        """The requests there are; none is seen while the gateway has had enough of being asked."""
        answer = self._owner.http.get("/api/approvals")
        return answer.json() if answer.status_code == 200 else []

    def decide(self, approval_id: str, decision: Decision) -> None:
        """Approve or decline, with a note."""
        answer = self._owner.http.post(
            f"/api/approvals/{approval_id}/{decision}", json={"note": "not this month"}
        )
        assert answer.status_code == 200, answer.text

    def statuses(self) -> list[str]:
        """Those of the log's entries, sorted."""
        return sorted(each["status"] for each in self._owner.entries())


def ended(running: subprocess.Popen[str]) -> str:
    """Wait until a process ends, well; returns what it said."""
    said, complaint = running.communicate(timeout=120)
    assert running.returncode == 0, complaint
    return said


def in_two_processes(play: Play, decision: Decision, *, again: bool = False) -> None:
    """The first process ends when the payment waits, and the next one goes on once it is decided.

    Args:
        play: the example.
        decision: what becomes of the payment.
        again: a process that comes too early says the same once more.
    """
    said = play.run()
    [request] = play.requests()
    assert said == f"{play.example.waits.format(request['id'])}\n"
    if again:
        assert play.run() == said
    assert not play.payments.exists()
    play.decide(request["id"], decision)
    _came_of_it(play, decision, play.run())


def in_one_process(play: Play, decision: Decision) -> None:
    """The process waits while the payment does, and goes on by itself."""
    with play.begun() as running:
        [request] = until(play.requests, seconds=120)
        assert not play.payments.exists()
        play.decide(request["id"], decision)
        said = ended(running)
    _came_of_it(play, decision, said)


def _came_of_it(play: Play, decision: Decision, said: str) -> None:
    approved = decision == "approve"
    if approved:
        assert play.payments.read_text() == "INV-7 120.50\n"
    else:
        assert not play.payments.exists()
    if play.scripted:
        assert ("paid 120.50 for INV-7" if approved else "not this month") in said
    assert play.statuses() == sorted(["pending", "success", "success" if approved else "denied"])
