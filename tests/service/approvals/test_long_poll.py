"""Waiting costs the requests of people nothing (decisions §3)."""

from typing import cast

import pytest

from toolgate_service.approvals.long_poll import LongPoll
from toolgate_service.auth_store import AuthStore
from toolgate_service.context import AppContext, AuthContext
from toolgate_service.core.concurrency import Notifier

ACTIVE = AuthContext("k", None, "o", "production", 1, "free", None)


class FakeAuthStore:
    """Answers looks; the database's sessions are out of reach."""

    def __init__(self) -> None:
        self.standings: AuthContext | None = ACTIVE
        self.looks = 0

    async def load(self, *_: str) -> AuthContext | None:
        return self.standings

    async def is_pending(self, _approval_id: str) -> bool:
        self.looks += 1
        return True


class FakeGateway:
    """No more than waiting needs: a pooled session would fail."""

    def __init__(self) -> None:
        self.notifier = Notifier()
        self.auth_store = FakeAuthStore()


@pytest.fixture
def parts() -> tuple[LongPoll, FakeGateway]:
    """Somebody who asks, and the gateway's parts."""
    gateway = FakeGateway()
    context, auth_store = cast("AppContext", gateway), cast("AuthStore", gateway.auth_store)
    return LongPoll(context, auth_store, "digest", ACTIVE, "203.0.113.9"), gateway


async def test_whoever_hung_up_is_not_waited_for(parts: tuple[LongPoll, FakeGateway]) -> None:
    """Once the caller is gone nobody looks any more."""
    poll, gateway = parts
    answers = iter([False, True])

    async def hung_up() -> bool:
        gateway.notifier.notify("a")
        return next(answers)

    await poll.wait_for_change("a", 60, hung_up)
    assert gateway.auth_store.looks == 2


@pytest.mark.parametrize(
    ("networks", "looks"), [('["198.51.100.0/24"]', 2), ('["203.0.113.0/24"]', 3), (None, 3)]
)
async def test_a_key_that_stops_working_from_here_ends_the_wait(
    parts: tuple[LongPoll, FakeGateway], networks: str | None, looks: int
) -> None:
    """Once the allowed networks leave the caller outside, it waits no longer; within, and without any, it goes on."""
    poll, gateway = parts
    answers = iter([False, False, True])

    async def hung_up() -> bool:
        gateway.auth_store.standings = ACTIVE._replace(ip_allow_list=networks)
        gateway.notifier.notify("a")
        return next(answers)

    await poll.wait_for_change("a", 60, hung_up)
    assert gateway.auth_store.looks == looks


async def test_a_key_that_stops_working_ends_the_wait(parts: tuple[LongPoll, FakeGateway]) -> None:
    """A revoked key waits for nothing, though the request is still pending."""
    poll, gateway = parts

    async def hung_up() -> bool:
        gateway.auth_store.standings = None
        gateway.notifier.notify("a")
        return False

    await poll.wait_for_change("a", 60, hung_up)
    assert gateway.auth_store.looks == 2
