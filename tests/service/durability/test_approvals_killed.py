"""SIGKILL again and again in the middle of many approvals and deliveries.

Nothing approved is spent twice, nothing decided is forgotten, every event arrives at least once and none is invented.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.hooked import Hook
from support.killing import Executioner
from support.receiver import Answer, Receiver
from support.standard_webhooks import is_signed
from support.waiting import until
from support.wire import GONE, Wire

ACTION = "money.sent"
ENV = {
    "TOOLGATE_WEBHOOKS_ALLOW_PRIVATE": "true",
    "TOOLGATE_PENDING_PER_AGENT": "10000",
    # Every fifth is denied, and the agent asks on.
    "TOOLGATE_DENIALS_BEFORE_BLOCK": "10000",
}
#: what an approval's status must have been told as, in order
TOLD = {
    "pending": ["requested"],
    "approved": ["requested", "approved"],
    "denied": ["requested", "denied"],
    "consumed": ["requested", "approved", "consumed"],
}


@dataclass
class Work:
    """Requests by the number in their context, and what is known of each.

    Attributes:
        approvals: their ids.
        decided: acknowledged decisions, by number: the status they led to.
        allowed: how often each number was allowed, as far as an answer came.
    """

    approvals: dict[int, str] = field(default_factory=dict)
    decided: dict[int, str] = field(default_factory=dict)
    allowed: Counter[int] = field(default_factory=Counter)


class Killed:
    """A gateway that is killed while an agent asks, people decide, and the agent uses what was approved."""

    def __init__(self, gateway: LiveGateway, owner: Owner, many: int, seed: int) -> None:
        self.gateway = gateway
        self.owner = owner
        self.many = many
        self.random = random.Random(seed)
        self.work = Work()
        self.agent = owner.agent()
        owner.permit(self.agent, ACTION, requires_approval=True)

    def run_until_killed(self, requests: int) -> None:
        """Let everybody work until one of them hears the fatal acknowledgement, and start the gateway again."""
        killer = Executioner(self.gateway, requests)
        together(lambda: self.ask(killer), lambda: self.decide(killer), lambda: self.use(killer))
        self.gateway.kill()
        self.gateway.start()

    def finish(self) -> None:
        """Do what is left to do, undisturbed."""
        patient = Executioner(self.gateway, 10**9)
        self.ask(patient)
        self.decide(patient)
        self.use(patient)

    def ask(self, killer: Executioner) -> None:
        """Ask for whatever was not asked for, or whose answer was lost."""
        with Wire.of(self.owner) as wire:
            for number in range(self.many):
                if number in self.work.approvals:
                    continue
                answer = self._send(wire, killer, "/sdk/check", self._body(number))
                if answer is None:
                    return
                self.work.approvals[number] = answer["approval_id"]

    def decide(self, killer: Executioner) -> None:
        """Decide what was asked: every fifth request is denied. What was decided already says so."""
        with Wire.of(self.owner) as wire:
            for number, approval in list(self.work.approvals.items()):
                if number in self.work.decided:
                    continue
                how = "deny" if number % 5 == 0 else "approve"
                answer = self._send(wire, killer, f"/api/approvals/{approval}/{how}", {}, also=409)
                if answer is None:
                    return
                self.work.decided[number] = "denied" if how == "deny" else "approved"

    def use(self, killer: Executioner) -> None:
        """Use what was approved, each as often as three times."""
        with Wire.of(self.owner) as wire:
            for number in [
                one for one, how in self.work.decided.items() for _ in range(3) if how == "approved"
            ]:
                if self.work.allowed[number] and self.random.random() < 0.7:
                    continue
                body = self._body(number) | {"approval_id": self.work.approvals[number]}
                answer = self._send(wire, killer, "/sdk/check", body)
                if answer is None:
                    return
                self.work.allowed[number] += answer["allowed"]

    def status(self) -> dict[int, str]:
        """Return what became of each request, by its number."""
        with Wire.of(self.owner) as wire:
            return {
                number: str(wire.send("GET", f"/api/approvals/{approval}").json()["status"])
                for number, approval in self.work.approvals.items()
            }

    def _body(self, number: int) -> dict[str, object]:
        return {"agent_id": self.agent, "action": ACTION, "context": {"number": number}}

    def _send(
        self, wire: Wire, killer: Executioner, path: str, body: dict[str, object], also: int = 200
    ) -> dict[str, Any] | None:
        try:
            answer = wire.send("POST", path, body)
        except GONE:
            return None
        assert answer.status in {200, also}, answer.raw
        killer.heard()
        said: dict[str, Any] = answer.json()
        return said


@pytest.mark.parametrize(
    ("many", "seed"),
    [(30, 1), *(pytest.param(200, seed, marks=pytest.mark.slow) for seed in range(2, 7))],
)
def test_nothing_is_spent_twice_forgotten_or_untold(many: int, seed: int, tmp_path: Path) -> None:
    """Killed five times amid requests, decisions, uses and deliveries, the gateway keeps its word about each of them."""
    with ExitStack() as stack:
        # A receiver that refuses now and then, so that some deliveries are on their second attempt when it happens.
        receiver = stack.enter_context(Receiver(*_moody(seed, many)))
        gateway = stack.enter_context(LiveGateway(tmp_path, env=ENV))
        owner = stack.enter_context(Owner(gateway.url))
        hook = Hook(owner, receiver)
        killed = Killed(gateway, owner, many, seed)
        for _ in range(5):
            killed.run_until_killed(killed.random.randint(5, many))
        killed.finish()
        status = killed.status()
        assert len(status) == many
        for number, how in killed.work.decided.items():
            assert status[number] in ({"approved", "consumed"} if how == "approved" else {"denied"}), number
        assert max(killed.work.allowed.values()) == 1
        assert {number for number, count in killed.work.allowed.items() if count} <= {
            number for number, state in status.items() if state == "consumed"
        }
        expected = {killed.work.approvals[number]: sorted(TOLD[state]) for number, state in status.items()}
        until(lambda: _told(receiver) == expected, seconds=120)
        assert all(is_signed(hook.secret, one.headers, one.body) for one in receiver.got)
        _each_event_has_one_id(receiver)


def _moody(seed: int, many: int) -> Iterator[Answer]:
    moods = random.Random(seed)
    return (Answer(moods.choice([200, 200, 200, 503])) for _ in range(many))


def _told(receiver: Receiver) -> dict[str, list[str]]:
    told: defaultdict[str, set[str]] = defaultdict(set)
    for one in list(receiver.got):
        kind, _, what = one.event["type"].partition(".")
        if kind == "approval":
            told[one.event["data"]["approval"]["id"]].add(what)
    return {approval: sorted(kinds) for approval, kinds in told.items()}


def _each_event_has_one_id(receiver: Receiver) -> None:
    ids: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for one in receiver.got:
        if one.event["type"].startswith("approval."):
            ids[one.event["type"], one.event["data"]["approval"]["id"]].add(one.id)
    assert {len(found) for found in ids.values()} == {1}
