"""Looking whether a call waits makes its request, and carries nothing out."""

import asyncio

import pytest

from toolgate._drivers import adrive, drive
from toolgate.testing import FakeGateway
from toolgate_integrations.base import Bridge, ToolCall

PAY = ToolCall("pay", {"to": "eve"}, call_id="call-1", run_id="run-1")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_person_who_is_quicker_than_the_look(fake_gateway: FakeGateway, mode: str) -> None:
    """What is approved while it is looked at is not used up by the look: the call itself goes through."""
    fake_gateway.require_approval("tools.pay", then="approved")
    with fake_gateway.guard() as guard:
        bridge = Bridge(guard)
        looked = (
            drive(bridge.find_pending_steps(PAY))
            if mode == "sync"
            else asyncio.run(adrive(bridge.find_pending_steps(PAY)))
        )
        assert looked is not None
        assert drive(bridge.find_pending_steps(PAY)) is None
        assert bridge.run(PAY, lambda context: f"paid {context['to']}") == "paid eve"
    assert [each.status for each in fake_gateway.entries] == ["pending", "success"]
