"""An approval that expired is no dead end: the model reads so, or the run waits for a new request."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.frameworks.choosing import harnesses
from support.frameworks.harness import Call, Harness, Mode, Scene, Session, set_scene
from support.gateway import LiveGateway, Owner
from support.insight import execute

PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")
LONG_AGO = "2026-01-01T00:00:00.000000Z"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with every framework that pauses, in every mode."""
    metafunc.parametrize(
        ("harness", "mode"),
        [
            pytest.param(harness, mode, id=f"{harness.name}-{mode}")
            for harness in harnesses(metafunc.config)
            for mode in harness.modes
            if "pause" in harness.holds and "test_held_then_approved" not in harness.cannot
        ],
    )


@pytest.fixture
def scene(owner: Owner, harness: Harness) -> Iterator[Scene]:
    with set_scene(owner, harness.prefix) as scene:
        yield scene


@pytest.fixture
async def session(scene: Scene, harness: Harness, mode: Mode, tmp_path: Path) -> AsyncIterator[Session]:
    session = harness.session(scene, mode, tmp_path)
    yield session
    scene.let_go()
    await session.close()


@pytest.mark.parametrize("approved", [True, False], ids=["approved", "pending"])
async def test_expired_request_is_no_dead_end(
    session: Session, scene: Scene, live_gateway: LiveGateway, *, approved: bool
) -> None:
    first = (await session.start(PAY)).held["call-pay"]
    if approved:
        scene.approve(first)
    assert execute(live_gateway, "UPDATE approvals SET expires_at = ? WHERE id = ?", LONG_AGO, first) == 1
    seen = await session.resume()
    assert scene.ran == []
    if seen.held:
        assert seen.held["call-pay"] != first
        scene.approve(seen.held["call-pay"])
        seen = await session.resume()
        assert scene.ran == [("pay", "eve", 40)]
    else:
        assert seen.read["call-pay"].startswith("Not done")
        assert "new request" in seen.read["call-pay"]
        assert scene.requests() == 1
    assert seen.text == "done"
