"""What the tests of several plugins share."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest
from support.frameworks.harness import Scene, set_scene
from support.gateway import Owner
from support.waiting import until


@pytest.fixture
def scene_prefix() -> str:
    """Of the scene's actions; where the framework has its tools from a server or a plugin, that one's name."""
    return "tools"


@pytest.fixture
def scene(owner: Owner, scene_prefix: str) -> Iterator[Scene]:
    """The scene of the behaviour suite: four tools, and an agent before a live gateway."""
    with set_scene(owner, scene_prefix) as scene:
        yield scene


@pytest.fixture
def guard_waits(caplog: pytest.LogCaptureFixture) -> Callable[[], Awaitable[object]]:
    """Waits until a guard waits for a person: the gateway knows of a request before its answer is here."""
    caplog.set_level(logging.DEBUG, "toolgate")

    def told() -> bool:
        return any(getattr(each, "toolgate_event", None) == "waiting" for each in caplog.records)

    return lambda: asyncio.to_thread(until, told)
