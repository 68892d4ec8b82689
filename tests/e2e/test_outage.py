"""What an agent's process sees when the gateway is gone, and when it comes back."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateway import LiveGateway, Owner

from toolgate import GatewayUnavailable, Guard, GuardError


@pytest.fixture
def own_gateway(tmp_path: Path) -> Iterator[LiveGateway]:
    """A gateway of this test's own, to be killed."""
    with LiveGateway(tmp_path) as gateway:
        yield gateway


def test_without_a_gateway_the_tool_does_not_run(own_gateway):
    """No answer is no permission: GatewayUnavailable within the deadline, for both kinds of tools."""
    owner = Owner(own_gateway.url)
    agent_id = owner.agent()
    owner.permit(agent_id, "math.add")
    ran: list[str] = []
    with Guard(url=own_gateway.url, api_key=owner.key, agent_id=agent_id, timeout=1) as guard:

        @guard.guarded("math.add")
        def add() -> None:
            ran.append("sync")

        @guard.guarded("math.add")
        async def aadd() -> None:
            ran.append("async")

        add()
        own_gateway.kill()
        began = time.monotonic()
        with pytest.raises(GatewayUnavailable):
            add()
        with pytest.raises(GatewayUnavailable):
            asyncio.run(aadd())
        assert time.monotonic() - began < 30
    assert ran == ["sync"]
    owner.close()


@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_a_record_that_cannot_be_sent_changes_nothing_and_is_sent_later(own_gateway, ending):
    """The gateway dies while the tool runs: its outcome stands; the record arrives once the gateway is back."""
    owner = Owner(own_gateway.url)
    agent_id = owner.agent()
    owner.permit(agent_id, "math.add")
    with Guard(url=own_gateway.url, api_key=owner.key, agent_id=agent_id, timeout=1) as guard:

        @guard.guarded("math.add")
        def add(a: int, b: int) -> int:
            own_gateway.kill()
            if ending == "raises":
                raise ZeroDivisionError("as it happens")
            return a + b

        if ending == "raises":
            with pytest.raises(ZeroDivisionError, match="as it happens"):
                add(1, 2)
        else:
            assert add(1, 2) == 3
        assert guard.flush(0.5) is False
        own_gateway.start()
        assert guard.flush(20) is True
    (entry,) = owner.entries()
    assert entry["status"] == ("failed" if ending == "raises" else "success")
    assert entry["occurred_at"] <= entry["created_at"]
    owner.close()


def test_a_wrong_key_is_refused_without_showing_it(own_gateway):
    """A key the gateway does not know: a clear error, no run, and no key in the message or the repr."""
    key = "ak_" + "x" * 37
    with Guard(url=own_gateway.url, api_key=key, agent_id="bot", timeout=1) as guard:

        @guard.guarded("math.add")
        def add() -> None:
            raise AssertionError("the tool ran")

        with pytest.raises(GuardError, match="Invalid API key") as refused:
            add()
        assert key not in f"{refused.value!r} {refused.value} {guard!r}"
