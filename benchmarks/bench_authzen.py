"""Cost of AuthZEN: the same call as an AuthZEN access evaluation and as `POST /sdk/check`, in alternating requests.

Both requests have the same arguments, and the same permission allows both of them. The benchmark ends with an error if the
median of an evaluation is more than 1.2 times that of a check.

Run it with `python benchmarks/bench_authzen.py [--database postgresql] [--pairs 4000]`; it takes half a minute.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.authzen import EVALUATION, agent_key
from support.databases import CHOICE, Server
from support.gateway import LiveGateway, Owner
from support.postgres import Cluster
from support.postgres_versions import preferred

PAIRS = 4_000
#: pairs before the measurement begins
WARM_UP = 200
#: maximum ratio of the medians
MOST = 1.2
ARGUMENTS = {"charge_id": "ch_1", "amount": 12.5, "note": "late"}


def main() -> None:
    """Print the medians of both requests and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.database == "postgresql":
            with Cluster(preferred(), fsync=True) as cluster:
                CHOICE.server = Server(cluster.url())
                compare(Path(folder), arguments.pairs)
        else:
            compare(Path(folder), arguments.pairs)


def compare(folder: Path, pairs: int) -> None:
    """Send both requests in turn on one connection.

    Raises:
        SystemExit: The evaluation takes too long.
    """
    env = {"TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE": "1000000"}
    with LiveGateway(folder, env=env) as gateway, Owner(gateway.url) as owner:
        agent = owner.agent()
        owner.permit(agent, "stripe.refund", max_amount=100)
        headers = {"X-API-Key": agent_key(owner, agent), "Content-Type": "application/json"}
        check = {"agent_id": agent, "action": "stripe.refund", "context": ARGUMENTS}
        evaluation = {
            "subject": {"type": "agent", "id": agent},
            "action": {"name": "call", "properties": ARGUMENTS},
            "resource": {"type": "tool", "id": "stripe.refund"},
        }
        requests = [
            (path, json.dumps(body)) for path, body in (("/sdk/check", check), (EVALUATION, evaluation))
        ]
        seconds: list[list[float]] = [[], []]
        address = gateway.url.removeprefix("http://")
        connection = HTTPConnection(address, timeout=30)
        for number in range(WARM_UP + pairs):
            # The first of a pair alternates, so that neither request always benefits from the other.
            for place in (0, 1) if number % 2 else (1, 0):
                path, body = requests[place]
                began = time.perf_counter()
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                answer = json.loads(response.read())
                took = time.perf_counter() - began
                if not answer.get("allowed", answer.get("decision")):
                    raise SystemExit(f"{path} was denied: {answer}")
                if number >= WARM_UP:
                    seconds[place].append(took)
        connection.close()
    by_check, by_evaluation = (statistics.median(one) for one in seconds)
    pairwise = statistics.median(b / a for a, b in zip(*seconds, strict=True))
    ratio = by_evaluation / by_check
    print(
        f"check {by_check * 1e6:.0f} µs, evaluation {by_evaluation * 1e6:.0f} µs: ratio {ratio:.2f}, at most {MOST}; "
        f"median ratio of the pairs {pairwise:.2f}"
    )
    if ratio > MOST:
        raise SystemExit("the evaluation takes too long")


if __name__ == "__main__":
    main()
