"""Freezes of the two gateways in the process of a test: the fake one and the embedded one."""

import json
from typing import Any

from toolgate.embedded import EmbeddedGateway
from toolgate.testing import FakeGateway


def freeze(gateway: FakeGateway | EmbeddedGateway, action: str | None = None, *, reason: str) -> None:
    """Deny the calls of an action, or all calls."""
    if isinstance(gateway, FakeGateway):
        gateway.freeze(action, reason=reason)
    else:
        call_api(gateway, "POST", "/api/freeze", {"action": action, "reason": reason})


def unfreeze(gateway: FakeGateway | EmbeddedGateway) -> None:
    """Lift all freezes."""
    if isinstance(gateway, FakeGateway):
        gateway.unfreeze()
        return
    for each in call_api(gateway, "GET", "/api/freeze?limit=100"):
        call_api(gateway, "POST", f"/api/freeze/{each['id']}/lift")


def call_api(gateway: EmbeddedGateway, method: str, target: str, body: object = None) -> Any:
    """Send a request of the embedded gateway's owner to its API, and return the JSON of the response."""
    content = None if body is None else json.dumps(body).encode()
    status, _, answer = gateway._service.decide(method, target, content).result(30)
    assert status in {200, 201, 204}, answer
    return json.loads(answer or "null")
