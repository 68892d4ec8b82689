"""Cost of rules: the same check in an organization with 1,000 rules and in one without, in alternating requests.

Of the 1,000 rules, 990 are for other actions. Ten apply to the checked action: eight with a condition that is
evaluated and does not match, and two without a condition for other agents.

Run it with `python benchmarks/bench_rules.py [--database postgresql]`; it takes a minute.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.databases import CHOICE, Server
from support.gateway import LiveGateway, Owner
from support.postgres import Cluster
from support.postgres_versions import preferred

RULES, APPLYING, PAIRS = 1_000, 10, 4_000
CONTEXT = {"charge_id": "ch_1", "amount": 12.5, "note": "late"}


def main() -> None:
    """Print the medians of both organizations and the median of the ratios of the pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.database == "postgresql":
            with Cluster(preferred(), fsync=True) as cluster:
                CHOICE.server = Server(cluster.url())
                compare(Path(folder))
        else:
            compare(Path(folder))


def compare(folder: Path) -> None:
    """Measure both organizations on one gateway."""
    env = {"TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000"}
    with LiveGateway(folder, env=env) as gateway, Owner(gateway.url) as plain, Owner(gateway.url) as ruled:
        agents = [owner.agent() for owner in (plain, ruled)]
        for owner, agent in zip((plain, ruled), agents, strict=True):
            owner.permit(agent, "stripe.refund")
        create_rules(ruled)
        bodies = [{"agent_id": agent, "action": "stripe.refund", "context": CONTEXT} for agent in agents]
        seconds: list[list[float]] = [[], []]
        with httpx.Client(base_url=gateway.url) as client:
            for number in range(PAIRS):
                # The first of a pair alternates, so that neither organization always benefits from the other.
                for place in (0, 1) if number % 2 else (1, 0):
                    owner = (plain, ruled)[place]
                    began = time.perf_counter()
                    answer = client.post("/sdk/check", json=bodies[place], headers={"X-API-Key": owner.key})
                    seconds[place].append(time.perf_counter() - began)
                    assert answer.headers["x-reason-code"] == "allowed", answer.text
    without, with_rules = (statistics.median(one) * 1e6 for one in seconds)
    ratio = statistics.median(b / a for a, b in zip(*seconds, strict=True))
    print(
        f"no rules {without:.0f} µs, {RULES:,} rules {with_rules:.0f} µs, median ratio of the pairs {ratio:.2f}"
    )


def create_rules(owner: Owner) -> None:
    """Create the rules of the module's description."""
    other = owner.agent("other")
    for number in range(RULES):
        applies = number < APPLYING
        body = {
            "name": f"rule {number}",
            "effect": "forbid",
            "actions": ["stripe.*"] if applies else [f"service{number}.*"],
        }
        if applies and number < APPLYING - 2:
            body["when"] = f"args.amount > {1000 + number} && args.note.startsWith('x')"
        elif applies:
            body["agents"] = [other]
        answer = owner.http.post("/api/rules", json=body)
        assert answer.status_code == 201, answer.text


if __name__ == "__main__":
    main()
