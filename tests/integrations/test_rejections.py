"""A rejection in the framework cancels an approval that was already given, in every framework that can pause."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.frameworks.choosing import harnesses
from support.frameworks.harness import Call, Harness, Mode, Scene, Session, set_scene
from support.gateway import Owner

PAY = Call("pay", {"to": "eve", "amount": 40}, "call-pay")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with every framework that pauses and takes rejections, in every mode."""
    metafunc.parametrize(
        ("harness", "mode"),
        [
            pytest.param(harness, mode, id=f"{harness.name}-{mode}")
            for harness in harnesses(metafunc.config)
            for mode in harness.modes
            if "pause" in harness.holds
            and not {"test_rejected_in_the_framework", "test_replayed_after_a_restart"}
            & harness.cannot.keys()
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
    await session.close()


@pytest.mark.parametrize("edited", [False, True], ids=["as-asked", "edited"])
async def test_rejection_cancels_a_given_approval_for_every_worker(
    session: Session, scene: Scene, *, edited: bool
) -> None:
    seen = await session.start(PAY)
    approval_id = seen.held["call-pay"]
    scene.approve(approval_id, **({"context": {"to": "eve", "amount": 25}} if edited else {}))
    earlier = session.restarted()
    seen = await session.resume("reject")
    assert scene.ran == []
    assert _open(scene) == []
    assert seen.text == "done"
    resumed = asyncio.create_task(earlier.resume())
    # Some frameworks refuse to resume a run that has ended: that is as good.
    await asyncio.wait({resumed})
    assert not isinstance(resumed.exception(), AssertionError)
    await earlier.close()
    assert scene.ran == []
    assert _open(scene) == []


async def test_rejection_in_a_new_process_cancels_a_given_approval(session: Session, scene: Scene) -> None:
    seen = await session.start(PAY)
    approval_id = seen.held["call-pay"]
    await session.close()
    scene.approve(approval_id)
    fresh = session.restarted()
    try:
        seen = await fresh.resume("reject")
    finally:
        await fresh.close()
    assert scene.ran == []
    assert scene.status(approval_id) == "cancelled"
    assert seen.read["call-pay"]


def _open(scene: Scene) -> list[str]:
    """Return the ids of requests that are pending or approved."""
    found = scene.owner.http.get("/api/approvals").json()
    return [each["id"] for each in found if each["status"] in {"pending", "approved"}]
