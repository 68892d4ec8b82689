"""An entry that the writer has no room for is counted where it is refused, and nowhere else."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.quick import Desk
from toolgate_service.hotpath.rates import MemoryWindows
from toolgate_service.hotpath.recent_keys import RecentKeys
from toolgate_service.hotpath.sqlite.reader import SqliteReader
from toolgate_service.hotpath.standing import Standing
from toolgate_service.logs.at_once import LogsAtOnce
from toolgate_service.organizations.keys import key_digest
from toolgate_service.plans import BUILT_IN
from toolgate_service.settings import Settings
from toolgate_service.web.edge import Rules

STANDING = Standing(
    "k", None, "o", "production", 1, "enterprise", None, "a", "active", None, None, None, None
)


class Counting(MemoryWindows):
    """Windows that remember how often they were asked to count."""

    asked = 0

    def count_now(self, *given: Any) -> Any:
        """Count."""
        self.asked += 1
        return super().count_now(*given)


@pytest.mark.parametrize("has_room", [True, False])
async def test_a_request_is_counted_once(has_room: bool) -> None:
    """Where there is no room it takes the road of all requests, uncounted; otherwise it is counted and taken."""
    settings, windows = Settings(), Counting()
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    writer = SimpleNamespace(has_room=has_room, append_soon=lambda _: future)
    recent = RecentKeys()
    recent.add((key_digest("key"), None))
    gateway = SimpleNamespace(log_writer=writer, plans=BUILT_IN, settings=settings, recent_keys=recent)
    reader = SimpleNamespace(standing_now=lambda *_: STANDING)
    rules = Rules.of(settings)
    desk = Desk(cast("SqliteReader", reader), windows, BUILT_IN)
    body = json.dumps({"agent_id": "a", "action": "pay", "status": "success"}).encode()
    taken = LogsAtOnce(cast("Gateway", gateway), desk, rules)([(b"x-api-key", b"key")], body, None)
    assert (taken is not None, windows.asked) == ((True, 1) if has_room else (False, 0))
