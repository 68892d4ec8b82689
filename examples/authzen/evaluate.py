"""Send the evaluations of a decisions file to a gateway, and compare the decisions with the expected ones.

Run it with `python examples/authzen/evaluate.py FILE`. `TOOLGATE_API_KEY` is the key of the agent of the policy, and
`TOOLGATE_URL` the address of the gateway.
"""

import json
import os
import sys
from pathlib import Path
from urllib.request import Request, urlopen

URL = os.environ.get("TOOLGATE_URL", "http://127.0.0.1:8000").rstrip("/")
KEY = os.environ["TOOLGATE_API_KEY"]


def post(endpoint: str, body: object) -> dict[str, object]:
    """Send a request, and return the response."""
    request = Request(  # noqa: S310 - the operator sets the address
        f"{URL}/access/v1/{endpoint}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )
    with urlopen(request, timeout=30) as response:  # noqa: S310 - as above
        answer: dict[str, object] = json.load(response)
    return answer


def main(path: Path) -> int:
    """Print the number of decisions that are as expected, and the requests of the others; return the exit status."""
    cases = json.loads(path.read_text(encoding="utf-8"))
    failed = 0
    for endpoint, member in (("evaluation", "decision"), ("evaluations", "evaluations")):
        for case in cases.get(endpoint, []):
            decided = post(endpoint, case["request"])[member]
            if decided != case["expected"]:
                failed += 1
                print(f"expected {case['expected']}, not {decided}: {json.dumps(case['request'])}")
    total = sum(len(cases.get(endpoint, [])) for endpoint in ("evaluation", "evaluations"))
    print(f"{total - failed} of {total} requests were decided as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
