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
        _call_api(gateway, "POST", "/api/freeze", {"action": action, "reason": reason})


def unfreeze(gateway: FakeGateway | EmbeddedGateway) -> None:
    """Lift all freezes."""
    if isinstance(gateway, FakeGateway):
        gateway.unfreeze()
        return
    for each in _call_api(gateway, "GET", "/api/freeze?limit=100"):
        _call_api(gateway, "POST", f"/api/freeze/{each['id']}/lift")


def _call_api(gateway: EmbeddedGateway, method: str, target: str, body: object = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    status, _, answer = gateway._service.decide(method, target, content).result(30)
    assert status in {200, 201}, answer
    return json.loads(answer)
