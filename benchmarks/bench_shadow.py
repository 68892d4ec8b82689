"""Cost of a shadow policy: processor time of the gateway for the same checks with and without a shadow, alternating.

Two organizations have the same policy; one of them has a shadow. Without conditions, the policy has only permissions.
With eight conditions, eight rules apply to each check, each with a condition that is evaluated and does not match. The
shadow differs from the policy either for another action, or by one more rule with a condition for the checked action.

Run it with `python benchmarks/bench_shadow.py [--database postgresql]`; it takes two minutes.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.databases import CHOICE, Server
from support.gateway import LiveGateway, Owner
from support.postgres import Cluster
from support.postgres_versions import preferred

CONDITIONS, CHECKS, PAIRS = 8, 500, 30
CHECKED, OTHER = "stripe.refund", "stripe.payout"
CONTEXT = {"charge_id": "ch_1", "amount": 12.5, "note": "late"}


def main() -> None:
    """Print the processor time of a check without and with a shadow, and the median of the ratios of the pairs."""
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
    with LiveGateway(folder, env=env) as gateway:
        for conditions in (0, CONDITIONS):
            for action in (OTHER, CHECKED):
                with Owner(gateway.url) as plain, Owner(gateway.url) as shadowed:
                    measure(gateway, plain, shadowed, conditions, action)


def measure(gateway: LiveGateway, plain: Owner, shadowed: Owner, conditions: int, action: str) -> None:
    """Compare two organizations whose policies have rules with this number of conditions.

    The shadow has one more rule for `action`.
    """
    requests = []
    for owner in (plain, shadowed):
        agent = owner.agent()
        owner.permit(agent, CHECKED)
        for number in range(conditions):
            body = {
                "name": f"rule {number}",
                "effect": "forbid",
                "actions": ["stripe.*"],
                "when": f"args.amount > {1000 + number} && args.note.startsWith('x')",
            }
            assert owner.http.post("/api/rules", json=body).status_code == 201
        requests.append(({"agent_id": agent, "action": CHECKED, "context": CONTEXT}, owner.key))
    start_shadow(shadowed, action)
    times: list[list[float]] = [[], []]
    with httpx.Client(base_url=gateway.url) as client:
        for number in range(PAIRS + 1):
            # The first of a pair alternates, so that neither organization always benefits from the other.
            for place in (0, 1) if number % 2 else (1, 0):
                spent = -processor_time(gateway)
                for _ in range(CHECKS):
                    body, key = requests[place]
                    answer = client.post("/sdk/check", json=body, headers={"X-API-Key": key})
                    assert answer.headers["x-reason-code"] == "allowed", answer.text
                spent += processor_time(gateway)
                # The first pair fills caches.
                if number:
                    times[place].append(spent / CHECKS)
    without, with_shadow = (statistics.median(one) * 1e6 for one in times)
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    print(
        f"{conditions} conditions, new rule for {action}: no shadow {without:.0f} µs, shadow {with_shadow:.0f} µs of processor time a check, "
        f"median ratio of the pairs {ratio:.3f}"
    )
    counts = shadowed.http.get("/api/policy/shadow").json()["counts"]
    assert counts["unchanged"] > PAIRS * CHECKS // 2, counts


def start_shadow(owner: Owner, action: str) -> None:
    """Start a shadow with the current policy and one more rule for an action."""
    policy: dict[str, Any] = owner.http.get("/api/policy").json()["policy"]
    rule = {"name": "new", "effect": "require_approval", "actions": [action], "when": "args.amount > 500"}
    policy["rules"].append(rule)
    answer = owner.http.put("/api/policy/shadow", json={"policy": policy, "message": ""})
    assert answer.status_code == 200, answer.text


def processor_time(gateway: LiveGateway) -> float:
    """Return the processor time of all threads of the gateway in seconds."""
    assert gateway.process is not None
    threads = Path(f"/proc/{gateway.process.pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


if __name__ == "__main__":
    main()
