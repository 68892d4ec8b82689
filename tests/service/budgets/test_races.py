"""Many checks of one budget at the same time, on all replicas."""

import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import partial

from support.budgets import ACTION, amounts, assert_consistent, create
from support.crowd import together
from support.gateway import LiveGateway, Owner
from support.wire import Wire

CLIENTS = 16


def run(owner: Owner, work: Callable[[Wire, random.Random], None]) -> None:
    def client(seed: int) -> None:
        with Wire.of(owner) as wire:
            work(wire, random.Random(seed))

    together(*[partial(client, seed) for seed in range(CLIENTS)])


def test_exactly_as_many_calls_run_as_the_limit_allows(gateway: LiveGateway, acme: Owner, bot: str) -> None:
    budget, allowed = create(acme, limit=50), Counter[bool]()

    def check(wire: Wire, _: random.Random) -> None:
        for _ in range(5):
            allowed[wire.allowed(bot, ACTION)] += 1

    run(acme, check)
    assert allowed == {True: 50, False: CLIENTS * 5 - 50}
    assert amounts(acme, budget) == (0, 50, 0)


def test_totals_equal_the_reservations_and_the_log(gateway: LiveGateway, acme: Owner, bot: str) -> None:
    """Checks reserve and log entries settle and release at the same time, in several budgets."""
    limit = Decimal(100)
    fields = {"measure": "sum(args.amount)", "limit": 100}
    budgets = [
        create(acme, name=name, window=window, **fields)
        for name, window in (("a", "day"), ("b", "rolling(3600)"))
    ]

    def work(wire: Wire, chance: random.Random) -> None:
        for _ in range(6):
            amount = chance.randrange(1, 500) / 100
            body = {"agent_id": bot, "action": ACTION, "context": {"amount": amount}}
            heard = wire.send("POST", "/sdk/check", body)
            assert heard.status == 200, heard.raw
            if not heard.json()["allowed"] or chance.random() < 0.1:
                continue
            status = chance.choice(["success", "success", "failed"])
            entry = body | {"status": status, "decision_id": heard.headers["x-decision-id"]}
            assert wire.send("POST", "/sdk/log", entry).status == 200

    run(acme, work)
    for budget in budgets:
        assert_consistent(gateway, acme, budget, limit)
