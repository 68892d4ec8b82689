"""Checks whose body arrives long after their head."""

import json
import time

import httpx
import pytest
from support.gateway import Owner
from support.raw import Raw
from support.waiting import until

from toolgate_service.context import EPOCH_SECONDS


@pytest.mark.parametrize("change", ["freeze", "key", "permission"])
def test_change_before_the_body_arrives_applies_to_the_check(newcomer: Owner, change: str) -> None:
    agent = newcomer.agent()
    permission = newcomer.permit(agent, "stripe.refund")
    key = newcomer.http.post(f"/api/agents/{agent}/keys").json()
    body = json.dumps({"agent_id": agent, "action": "stripe.refund"}).encode()
    headers = {"X-API-Key": key["api_key"]}
    for _ in range(2):
        assert httpx.post(f"{newcomer.url}/sdk/check", content=body, headers=headers).json()["allowed"]
    with Raw(newcomer.url) as connection:
        head = f"POST /sdk/check HTTP/1.1\r\nHost: x\r\nX-API-Key: {key['api_key']}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.send(head.encode())
        sent = time.monotonic()
        changed = {
            "freeze": lambda: newcomer.http.post("/api/freeze", json={"reason": "stop"}),
            "key": lambda: newcomer.http.delete(f"/api/agents/{agent}/keys/{key['id']}"),
            "permission": lambda: newcomer.http.delete(f"/api/permissions/{permission}"),
        }[change]()
        assert changed.is_success
        # The head was read before the change, or it is rejected itself.
        until(lambda: time.monotonic() > sent + EPOCH_SECONDS + 0.5)
        answer = connection.send(body).answer("POST")
    assert answer.status == 401 or answer.json()["allowed"] is False
