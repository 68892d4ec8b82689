"""Throughput of one hot budget, and the cost of budgets in an organization that has none for the checked action.

Clients check a call that counts towards one budget, and log its outcome. A second measurement alternates requests of an
organization without budgets with requests of one that has 100 budgets for other actions.

Run it with `python benchmarks/bench_budgets.py [--database postgresql] [--replicas 3]`; it takes a minute.
"""

import argparse
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.crowd import together
from support.databases import CHOICE, Server
from support.gateway import LiveGateway, Owner
from support.postgres import Cluster
from support.postgres_versions import preferred
from support.wire import Wire

ACTION, SECONDS, PAIRS, OTHERS = "stripe.refund", 10, 3_000, 100
CONTEXT = {"charge_id": "ch_1", "amount": 12.5, "note": "late"}
BUDGET = {"measure": "sum(args.amount)", "window": "day", "limit": 10**12}


def main() -> None:
    """Print checks per second of one hot budget, and the ratio of both organizations."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--clients", type=int, default=32)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.database == "postgresql":
            # The server syncs each commit to disk, as in production.
            with Cluster(preferred(), fsync=True) as cluster:
                CHOICE.server, CHOICE.replicas = Server(cluster.url()), arguments.replicas
                measure(Path(folder), arguments.clients)
        else:
            measure(Path(folder), arguments.clients)


def measure(folder: Path, clients: int) -> None:
    """Run both measurements on one gateway."""
    env = {"TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000"}
    with LiveGateway(folder, env=env) as gateway:
        with Owner(gateway.url) as owner:
            budget = create(owner, "hot", ACTION)
            checks, entries = load(owner, clients)
            [total] = owner.http.get(f"/api/budgets/{budget}/usage").json()
            assert total["used"] == entries * CONTEXT["amount"], (total, entries)
            print(f"one hot budget, {clients} clients: {checks / SECONDS:,.0f} calls/s (check and log entry)")
        with Owner(gateway.url) as plain, Owner(gateway.url) as other:
            for number in range(OTHERS):
                create(other, f"budget {number}", f"service{number}.*")
            compare(gateway, plain, other)


def create(owner: Owner, name: str, action: str) -> str:
    """Create a budget and return its id."""
    answer = owner.http.post("/api/budgets", json=BUDGET | {"name": name, "actions": [action]})
    assert answer.status_code == 201, answer.text
    budget_id: str = answer.json()["id"]
    return budget_id


def load(owner: Owner, clients: int) -> tuple[int, int]:
    """Check and log calls with several clients, and return the numbers of checks and of log entries."""
    agent = owner.agent()
    owner.permit(agent, ACTION)
    body = {"agent_id": agent, "action": ACTION, "context": CONTEXT}
    ends = time.monotonic() + SECONDS

    def client() -> int:
        done = 0
        with Wire.of(owner) as wire:
            while time.monotonic() < ends:
                checked = wire.send("POST", "/sdk/check", body)
                assert checked.status == 200, checked.raw
                assert checked.json()["allowed"], checked.raw
                entry = body | {"status": "success", "decision_id": checked.headers["x-decision-id"]}
                logged = wire.send("POST", "/sdk/log", entry)
                assert logged.status == 200, logged.raw
                done += 1
        return done

    done = sum(together(*[client] * clients))
    return done, done


def compare(gateway: LiveGateway, plain: Owner, other: Owner) -> None:
    """Compare the checks of both organizations in alternating requests."""
    agents = [owner.agent() for owner in (plain, other)]
    for owner, agent in zip((plain, other), agents, strict=True):
        owner.permit(agent, ACTION)
    bodies = [{"agent_id": agent, "action": ACTION, "context": CONTEXT} for agent in agents]
    seconds: list[list[float]] = [[], []]
    with httpx.Client(base_url=gateway.url) as client:
        check = partial(client.post, "/sdk/check")
        for number in range(PAIRS):
            # The first of a pair alternates, so that neither organization always benefits from the other.
            for place in (0, 1) if number % 2 else (1, 0):
                owner = (plain, other)[place]
                began = time.perf_counter()
                answer = check(json=bodies[place], headers={"X-API-Key": owner.key})
                seconds[place].append(time.perf_counter() - began)
                assert answer.headers["x-reason-code"] == "allowed", answer.text
    without, with_budgets = (statistics.median(one) * 1e6 for one in seconds)
    ratio = statistics.median(b / a for a, b in zip(*seconds, strict=True))
    print(
        f"check: no budgets {without:.0f} µs, {OTHERS} budgets for other actions {with_budgets:.0f} µs, "
        f"median ratio of the pairs {ratio:.2f}"
    )


if __name__ == "__main__":
    main()
