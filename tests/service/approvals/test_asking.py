"""Waiting costs the requests of people nothing (decisions §3)."""

from typing import Any, cast

import pytest

from toolgate_service.approvals.hub import DecisionHub
from toolgate_service.approvals.waiting import Asking
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.standing import Standing

ACTIVE = Standing("k", None, "o", "production", 1, "free", None, None, None, None, None, None, None)


class Reader:
    """Answers looks; the database's sessions are out of reach."""

    def __init__(self) -> None:
        self.standings: Standing | None = ACTIVE
        self.looks = 0

    async def standing(self, *_: str) -> Standing | None:
        return self.standings

    async def still_pending(self, _approval_id: str) -> bool:
        self.looks += 1
        return True


class FakeGateway:
    """No more than waiting needs: a pooled session would fail."""

    def __init__(self) -> None:
        self.hub = DecisionHub()
        self.reader = Reader()


@pytest.fixture
def parts() -> tuple[Asking, FakeGateway]:
    """Somebody who asks, and the gateway's parts."""
    gateway = FakeGateway()
    return Asking(cast("Gateway", cast("Any", gateway)), "digest", ACTIVE, "203.0.113.9"), gateway


async def test_whoever_hung_up_is_not_waited_for(parts: tuple[Asking, FakeGateway]) -> None:
    """Once the caller is gone nobody looks any more."""
    asking, gateway = parts
    answers = iter([False, True])

    async def hung_up() -> bool:
        gateway.hub.tell("a")
        return next(answers)

    await asking.wait_for_change("a", 60, hung_up)
    assert gateway.reader.looks == 2


@pytest.mark.parametrize(
    ("networks", "looks"), [('["198.51.100.0/24"]', 2), ('["203.0.113.0/24"]', 3), (None, 3)]
)
async def test_a_key_that_stops_working_from_here_ends_the_wait(
    parts: tuple[Asking, FakeGateway], networks: str | None, looks: int
) -> None:
    """Once the allowed networks leave the caller outside, it waits no longer; within, and without any, it goes on."""
    asking, gateway = parts
    answers = iter([False, False, True])

    async def hung_up() -> bool:
        gateway.reader.standings = ACTIVE._replace(ip_allow_list=networks)
        gateway.hub.tell("a")
        return next(answers)

    await asking.wait_for_change("a", 60, hung_up)
    assert gateway.reader.looks == looks


async def test_a_key_that_stops_working_ends_the_wait(parts: tuple[Asking, FakeGateway]) -> None:
    """A revoked key waits for nothing, though the request is still pending."""
    asking, gateway = parts

    async def hung_up() -> bool:
        gateway.reader.standings = None
        gateway.hub.tell("a")
        return False

    await asking.wait_for_change("a", 60, hung_up)
    assert gateway.reader.looks == 2
