"""Gateways that are killed while clients use budgets: no limit is exceeded, and the totals equal the log exactly."""

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest
from support.budgets import ACTION, assert_consistent, create, reserved_decisions
from support.crowd import meanwhile, together
from support.gateway import LiveGateway, Owner
from support.wire import GONE, Heard, Wire

GATEWAYS = 3
ENV = {"TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "10000000"}


@dataclass
class Client:
    """Agent that repeats each request at another gateway until one of them responds.

    Attributes:
        calls: Number of calls to check.
        outcomes: Number of decisions by reason code, and of log entries by status.
    """

    urls: list[str]
    owner: Owner
    agent: str
    number: int
    calls: int
    outcomes: Counter[str] = field(default_factory=Counter)
    decisions: set[str] = field(default_factory=set)
    _wires: dict[str, Wire] = field(default_factory=dict)

    def run(self) -> None:
        """Check all calls, and log the outcomes of most."""
        chance = random.Random(self.number)
        for call in range(self.calls):
            amount = chance.randrange(1, 1000) / 100
            body = {"agent_id": self.agent, "action": ACTION, "context": {"amount": amount}}
            checked = self._send(chance, "/sdk/check", body, f"check-{self.number}-{call}")
            self.outcomes[checked.headers["x-reason-code"]] += 1
            if not checked.json()["allowed"]:
                continue
            self.decisions.add(checked.headers["x-decision-id"])
            if chance.random() < 0.05:
                # The agent crashed: the reservation stays unsettled.
                continue
            status = chance.choice(["success", "success", "success", "failed"])
            entry = body | {"status": status, "decision_id": checked.headers["x-decision-id"]}
            self._send(chance, "/sdk/log", entry, f"log-{self.number}-{call}")
            self.outcomes[status] += 1
        for wire in self._wires.values():
            wire.close()

    def _send(self, chance: random.Random, path: str, body: object, key: str) -> Heard:
        ends = time.monotonic() + 120
        while time.monotonic() < ends:
            url = chance.choice(self.urls)
            wire = self._wires.get(url) or self._wires.setdefault(url, Wire.of(self.owner, url))
            try:
                heard = wire.send("POST", path, body, {"Idempotency-Key": key})
            except GONE:
                self._wires.pop(url).close()
                time.sleep(0.02)
                continue
            if heard.status == 200:
                return heard
            # The gateway is overloaded, or its database connection was lost.
            assert heard.status == 503, heard.raw
            time.sleep(0.1)
        raise AssertionError(f"no gateway responded to {path} within two minutes")


def kill(gateways: list[LiveGateway], pause: float, killed: Counter[str], ended: threading.Event) -> None:
    """Kill a random gateway and start it again, until the clients are done; `pause` is in seconds."""
    chance = random.Random(7)
    while not ended.wait(pause):
        gateway = chance.choice(gateways)
        gateway.kill()
        gateway.start()
        killed["kill -9"] += 1


@pytest.mark.parametrize(
    ("clients", "calls", "pause"),
    [(6, 25, 0.1), pytest.param(100, 200, 1.5, marks=pytest.mark.slow)],
    ids=["short", "long"],
)
def test_limits_hold_and_totals_equal_the_log(tmp_path: Path, clients: int, calls: int, pause: float) -> None:
    with ExitStack() as stack:
        gateways = [LiveGateway(tmp_path, env=ENV) for _ in range(GATEWAYS)]
        for gateway in gateways:
            stack.callback(gateway.stop)
            gateway.start()
        owner = stack.enter_context(Owner(gateways[0].url))
        agent = owner.agent()
        owner.permit(agent, ACTION)
        # About half of the calls fit: the amounts have a mean of 5, and a quarter of the calls fail.
        limit = clients * calls * 2
        fields = {"measure": "sum(args.amount)", "limit": limit}
        budgets = [
            create(owner, name=name, window=window, **fields)
            for name, window in (("month", "month"), ("rolling", "rolling(86400)"))
        ]
        urls, killed = [gateway.url for gateway in gateways], Counter[str]()
        workers = [Client(urls, owner, agent, number, calls) for number in range(clients)]
        with meanwhile([partial(kill, gateways, pause, killed)]):
            together(*[worker.run for worker in workers])
        seen = sum((worker.outcomes for worker in workers), Counter[str]())
        assert set(seen) == {"allowed", "budget_exceeded", "success", "failed"}
        assert seen["allowed"] + seen["budget_exceeded"] == clients * calls
        assert killed["kill -9"] >= 1
        for budget in budgets:
            assert_consistent(gateways[0], owner, budget, Decimal(limit))
            # Each allowed call reserved once, although its check may have been repeated.
            decisions = set[str]().union(*(worker.decisions for worker in workers))
            assert reserved_decisions(gateways[0], budget) == decisions
            assert len(decisions) == seen["allowed"]
