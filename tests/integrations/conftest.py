"""What the tests of several plugins share."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from support.waiting import until


@pytest.fixture
def guard_waits(caplog: pytest.LogCaptureFixture) -> Callable[[], Awaitable[object]]:
    """Waits until a guard waits for a person: the gateway knows of a request before its answer is here."""
    caplog.set_level(logging.DEBUG, "toolgate")

    def told() -> bool:
        return any(getattr(each, "toolgate_event", None) == "waiting" for each in caplog.records)

    return lambda: asyncio.to_thread(until, told)
