"""Cost of a guarded call, compared with the same request without the SDK, and delay of the log entries after many calls.

Both are timed in turn, in one process, so that whatever else the machine does falls on both; which of the two goes first
changes from pair to pair, since each leaves caches and the gateway to the other. By hand nothing is written to a file, and
no `Idempotency-Key` is sent, which would cost two or three hundredths more.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from support.gateway import LiveGateway, Owner

from toolgate import Guard

PAIRS = 2_000
FIRST = 100
CALLS = 2_000
MOST = 1.5
BEHIND = 2.0


def plus(a: int, b: int) -> int:
    """The tool."""
    return a + b


def timed(call: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def recorded(owner: Owner) -> int:
    """Return the number of log entries of the gateway, counted up to 10,000."""
    return int(owner.http.get("/api/logs?limit=1").headers["X-Total-Count"])


def test_a_guarded_call_beside_the_request_by_hand(tmp_path: Path) -> None:
    """Check, two entries on disk, and the tool: at most 1.5 times one keep-alive post to `/sdk/check`."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent_id = owner.agent()
        owner.permit(agent_id, "math.add")
        body = {"agent_id": agent_id, "action": "math.add", "context": {"a": 1, "b": 2}}
        with (
            httpx.Client(base_url=gateway.url, headers={"X-API-Key": owner.key}) as client,
            Guard(url=gateway.url, api_key=owner.key, agent_id=agent_id) as guard,
        ):
            add = guard.guarded("math.add")(plus)
            by_hand: list[float] = []
            guarded: list[float] = []
            calls: list[tuple[Callable[[], object], list[float]]] = [
                (lambda: client.post("/sdk/check", json=body), by_hand),
                (lambda: add(1, 2), guarded),
            ]
            for pair in range(PAIRS):
                for call, took in calls if pair % 2 else reversed(calls):
                    took.append(timed(call))
            assert client.post("/sdk/check", json=body).json()["allowed"]
            assert guard.flush(30)
            assert recorded(owner) == PAIRS
    plain, ours = statistics.median(by_hand[FIRST:]), statistics.median(guarded[FIRST:])
    print(
        f"\nby hand {plain * 1e6:.0f} us, guarded {ours * 1e6:.0f} us: {ours / plain:.3f} times, at most {MOST}"
    )
    assert ours <= MOST * plain


def test_how_far_the_record_is_behind(tmp_path: Path) -> None:
    """Right after 2,000 calls the last of them is recorded within two seconds."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent_id = owner.agent()
        owner.permit(agent_id, "math.add")
        with Guard(url=gateway.url, api_key=owner.key, agent_id=agent_id) as guard:
            add = guard.guarded("math.add")(plus)
            began = time.perf_counter()
            for n in range(CALLS):
                add(n, 1)
            ended = time.perf_counter()
            missing = CALLS - recorded(owner)
            while recorded(owner) < CALLS:
                assert time.perf_counter() - ended < BEHIND
            behind = time.perf_counter() - ended
    print(
        f"\n{CALLS} calls in {ended - began:.2f} s; then {missing} entries were on their way, "
        f"the last one for {behind:.2f} s, at most {BEHIND}"
    )
