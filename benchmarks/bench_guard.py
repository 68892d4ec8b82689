"""A guarded call, beside the same request by hand."""

from pathlib import Path

import httpx
from pytest_benchmark.fixture import BenchmarkFixture
from support.gateway import LiveGateway, Owner

from toolgate import Guard


def test_post_by_hand(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """One keep-alive httpx post to /sdk/check: what any client pays."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent_id = owner.agent()
        owner.permit(agent_id, "math.add")
        body = {"agent_id": agent_id, "action": "math.add", "context": {"a": 1, "b": 2}}
        with httpx.Client(base_url=gateway.url, headers={"X-API-Key": owner.key}) as client:
            answer = benchmark(lambda: client.post("/sdk/check", json=body))
    assert answer.json()["allowed"]


def test_guarded_call(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """A guarded call: check, tool, and a log entry that is on disk."""
    with LiveGateway(tmp_path) as gateway, Owner(gateway.url) as owner:
        agent_id = owner.agent()
        owner.permit(agent_id, "math.add")
        with Guard(url=gateway.url, api_key=owner.key, agent_id=agent_id) as guard:

            @guard.guarded("math.add")
            def add(a: int, b: int) -> int:
                return a + b

            assert benchmark(add, 1, 2) == 3
