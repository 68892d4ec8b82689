"""A run that resumes long after a person denied its call reads the denial: no new approval request is made."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.frameworks.choosing import harnesses
from support.frameworks.harness import Call, Harness, Mode, Scene, Session, set_scene
from support.gateway import LiveGateway, Owner
from support.tables import execute

PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the test every framework that pauses, in every mode."""
    found = [one for one in harnesses(metafunc.config) if "pause" in one.holds]
    metafunc.parametrize(
        ("harness", "mode"),
        [pytest.param(one, mode, id=f"{one.name}-{mode}") for one in found for mode in one.modes],
    )


@pytest.fixture
def scene(owner: Owner, harness: Harness) -> Iterator[Scene]:
    with set_scene(owner, harness.prefix, None) as scene:
        yield scene


@pytest.fixture
async def session(scene: Scene, harness: Harness, mode: Mode, tmp_path: Path) -> AsyncIterator[Session]:
    session = harness.session(scene, mode, tmp_path, "pause")
    yield session
    scene.let_go()
    await session.close()


async def test_resumed_long_after_a_denial(session: Session, scene: Scene, live_gateway: LiveGateway) -> None:
    seen = await session.start(PAY)
    approval = seen.held["call-pay"]
    scene.deny(approval, "eve is not our customer")
    long_ago = "2026-01-01T00:00:00.000000Z"
    assert execute(live_gateway, "UPDATE approvals SET decided_at = ? WHERE id = ?", long_ago, approval) == 1
    seen = await session.resume()
    assert scene.ran == []
    assert "eve is not our customer" in seen.read["call-pay"]
    assert seen.text == "done"
    assert scene.requests() == 1
