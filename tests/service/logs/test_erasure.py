"""Erasure of the context of a log entry."""

from typing import Any

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.tables import rows

TEST = {"environment": "test"}
BYTES = "SELECT log_bytes FROM environments WHERE organization_id = ? AND name = 'test'"


def test_retry_after_the_erasure_does_not_return_the_context(acme: Owner) -> None:
    agent = acme.agent()

    def log(context: object) -> httpx.Response:
        body: dict[str, Any] = {"agent_id": agent, "action": "a.b", "status": "success", "context": context}
        headers = {"X-API-Key": acme.key, "Idempotency-Key": f"key-of-{agent}"}
        return httpx.post(f"{acme.url}/sdk/log", json=body, headers=headers, timeout=30)

    entry = log({"name": "Ada"}).json()["id"]
    assert "Ada" in log({"name": "Ada"}).text
    assert acme.http.post(f"/api/logs/{entry}/erase").is_success
    assert "Ada" not in log({}).text


@pytest.mark.parametrize("repeats", [1, 2])
def test_erased_context_counts_no_longer_towards_the_size_of_a_test_log(
    gateway: LiveGateway, newcomer: Owner, repeats: int
) -> None:
    agent = newcomer.http.post("/api/agents", json={"name": "bot"}, params=TEST).json()["id"]
    key = newcomer.http.get("/api/organization/test-key").json()["api_key"]

    def log(context: object) -> str:
        body = {"agent_id": agent, "action": "a.b", "status": "success", "context": context}
        answer = httpx.post(f"{newcomer.url}/sdk/log", json=body, headers={"X-API-Key": key}, timeout=30)
        entry: str = answer.json()["id"]
        return entry

    def held() -> int:
        ((size,),) = rows(gateway, BYTES, newcomer.user["organization_id"])
        return int(size)

    log({})
    small = held()
    entry = log({"x": "x" * 10_000})
    assert held() > small + 10_000
    for _ in range(repeats):
        assert newcomer.http.post(f"/api/logs/{entry}/erase", params=TEST).is_success
    assert small < held() < small + 1_000
