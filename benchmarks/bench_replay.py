"""Speed of replays of policies: decisions per second, and the latency of checks while a replay runs.

The organization has ten rules with a condition that apply to each call, and decisions with a context of three fields.

Run it with `make bench-replay`; it takes two minutes.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from support.databases import CHOICE, Server
from support.gateway import LiveGateway, Owner
from support.postgres import Cluster
from support.postgres_versions import preferred
from support.tables import execute, rows

from toolgate_service.core.clock import wire
from toolgate_service.core.ids import new_id
from toolgate_service.core.strict_json import digest

RULES, CHUNK, REPLAYS = 10, 500, 3
ACTION = "stripe.refund"


def main() -> None:
    """Print the speed of replays, and the latencies of checks without and with a replay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--decisions", type=int, default=200_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.database == "postgresql":
            with Cluster(preferred(), fsync=True) as cluster:
                CHOICE.server = Server(cluster.url())
                measure(Path(folder), arguments.decisions)
        else:
            measure(Path(folder), arguments.decisions)


def measure(folder: Path, count: int) -> None:
    """Measure replays of `count` decisions on a new gateway."""
    env = {"TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000"}
    with LiveGateway(folder, env=env) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, ACTION, max_amount=100)
        for number in range(RULES):
            condition = f"args.amount > {200 + number} && args.customer.startsWith('x{number}')"
            body = {"name": f"rule {number}", "effect": "forbid", "actions": [ACTION], "when": condition}
            assert owner.http.post("/api/rules", json=body).status_code == 201
        write(gateway, owner, agent, count)
        policy = owner.http.get("/api/policy").json()["policy"]
        alone = check_latencies(owner, agent, threading.Event(), 1_000)
        speeds, beside = [], []
        for _ in range(REPLAYS):
            report, latencies = replay_beside_checks(owner, agent, policy)
            assert report["totals"]["unchanged"] == report["judged"] >= count, report["totals"]
            beside += latencies
            report = replay(owner, policy)
            speeds.append(report["decisions_per_second"])
        print(f"replay of {count:,} decisions: {statistics.median(speeds):,.0f} decisions/s")
        for name, latencies in (("without a replay", alone), ("during a replay", beside)):
            ordered = sorted(latencies)
            median, high = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
            print(f"checks {name}: median {median * 1e3:.2f} ms, 99 % {high * 1e3:.2f} ms")


def write(gateway: LiveGateway, owner: Owner, agent: str, count: int) -> None:
    """Write allowed decisions with a context, one each second."""
    organization, newest = owner.user["organization_id"], datetime.now(UTC)
    [(key,)] = rows(
        gateway,
        "SELECT id FROM api_keys WHERE organization_id = ? AND environment = 'production'",
        organization,
    )
    columns = (
        "id, organization_id, environment, created_at, agent_id, action, key_id, context, context_digest, outcome, "
        "reason_code"
    )
    for start in range(0, count, CHUNK):
        values = []
        for number in range(start, min(start + CHUNK, count)):
            context = f'{{"amount":{number % 100}.5,"customer":"cus_{number}","note":"late delivery"}}'
            moment = wire(newest - timedelta(seconds=number + 1))
            values.append(
                f"('{new_id()}', '{organization}', 'production', '{moment}', '{agent}', '{ACTION}', '{key}', "
                f"'{context}', '{digest(context)}', 'allowed', 'allowed')"
            )
        execute(gateway, f"INSERT INTO decisions ({columns}) VALUES {', '.join(values)}")


def replay(owner: Owner, policy: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a replay."""
    answer = owner.http.post("/api/policy/replay", json={"policy": policy}, timeout=600)
    assert answer.status_code == 200, answer.text
    report: dict[str, Any] = answer.json()
    return report


def replay_beside_checks(
    owner: Owner, agent: str, policy: dict[str, Any]
) -> tuple[dict[str, Any], Sequence[float]]:
    """Return the report of a replay, and the latencies of checks that were sent meanwhile."""
    ended, latencies = threading.Event(), list[float]()
    thread = threading.Thread(target=lambda: latencies.extend(check_latencies(owner, agent, ended)))
    thread.start()
    try:
        return replay(owner, policy), latencies
    finally:
        ended.set()
        thread.join()


def check_latencies(
    owner: Owner, agent: str, ended: threading.Event, count: int = sys.maxsize
) -> Sequence[float]:
    """Return the latencies of checks on one connection, sent until an event or up to a number."""
    seconds: list[float] = []
    body = {"agent_id": agent, "action": ACTION, "context": {"amount": 12.5, "customer": "cus_1"}}
    with httpx.Client(base_url=owner.url, headers={"X-API-Key": owner.key}) as client:
        while not ended.is_set() and len(seconds) < count:
            began = time.perf_counter()
            answer = client.post("/sdk/check", json=body)
            seconds.append(time.perf_counter() - began)
            assert answer.json()["allowed"], answer.text
    return seconds


if __name__ == "__main__":
    main()
