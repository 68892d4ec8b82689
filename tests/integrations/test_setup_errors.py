"""A guard that is not set up, or whose API key the gateway refuses, ends the run of every framework."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.frameworks.choosing import harnesses
from support.frameworks.harness import Call, Harness, Mode, Scene, Session, error_texts, set_scene
from support.gateway import Owner

from toolgate import Guard

LOOK = Call("look", {"what": "sky"}, "call-look")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with every framework, in every mode."""
    metafunc.parametrize(
        ("harness", "mode"),
        [
            pytest.param(harness, mode, id=f"{harness.name}-{mode}")
            for harness in harnesses(metafunc.config)
            for mode in harness.modes
            # Its own process runs on: see its own tests.
            if not harness.name.startswith("claude")
        ],
    )


@pytest.fixture
def scene(owner: Owner, harness: Harness) -> Iterator[Scene]:
    with set_scene(owner, harness.prefix) as scene:
        yield scene


@pytest.fixture
async def session(scene: Scene, harness: Harness, mode: Mode, tmp_path: Path) -> AsyncIterator[Session]:
    with Guard(scene.owner.url, f"ak_{'x' * 37}", scene.agent_id) as guard:
        session = harness.session(replace(scene, guard=guard), mode, tmp_path)
        yield session
        await session.close()


async def test_refused_api_key_ends_the_run(
    session: Session, scene: Scene, harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "toolgate"):
        run = asyncio.create_task(session.start(LOOK))
        await asyncio.wait({run})
    # Over a protocol, and between processes, only the text of the error arrives.
    error = run.exception()
    assert error is not None
    assert "refuses the API key" in error_texts(error)
    assert scene.ran == []
    logged = [each for each in caplog.records if each.name == "toolgate" and each.levelno == logging.ERROR]
    assert ["TOOLGATE_API_KEY" in each.getMessage() for each in logged] == [True]
