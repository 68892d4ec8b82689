from __future__ import annotations

from typing import Any

import pytest
from toolgate.performers import AsyncPerformer, Performer
from toolgate.steps import Approval, AwaitApproval

from toolgate import GatewayUnavailable
from toolgate._approval_flow import PollSchedule
from toolgate._capture.context import Captured
from toolgate._identity import Identity
from toolgate._outbox.place import Place
from toolgate._outbox.recorder import Recorder

STEP = AwaitApproval("a.b", Identity("agent-1"), "appr-1")
PENDING = Approval("pending")
DOWN = GatewayUnavailable("down")


class World:
    """A gateway of scripted answers and a clock; a long poll takes as long as it may, a failure 5 s."""

    def __init__(self, *answers: Any, poll: float | None = None) -> None:
        self.now = 0.0
        self.answers = list(answers)
        self.waits: list[int] = []
        self.pauses: list[float] = []
        self._poll = poll

    def clock(self) -> float:
        return self.now

    def approval(self, approval_id: str, wait: int) -> Approval:
        self.waits.append(wait)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            self.now += 5
            raise answer
        self.now += wait if self._poll is None else self._poll
        found: Approval = answer
        return found

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class AsyncClient:
    def __init__(self, world: World) -> None:
        self._world = world

    async def approval(self, approval_id: str, wait: int) -> Approval:
        return self._world.approval(approval_id, wait)

    async def check(self, check: Any) -> Any:
        raise NotImplementedError


class Nothing:
    """The arguments of a call that has none."""

    def capture(self) -> Captured:
        return Captured({})

    def edit(self, asked: Any, approved: Any) -> str | None:
        pytest.fail("nothing was edited")

    as_given = capture


def _nobody(*_: object) -> Any:
    pytest.fail("waiting records nothing")


def performer(world: World, hold_timeout: float | None) -> Performer:
    recorder = Recorder(Place(None), _nobody, _nobody, 1.0)
    client: Any = world
    return Performer(
        client,
        recorder,
        Nothing(),
        hold_timeout=hold_timeout,
        clock=world.clock,
        sleep=world.sleep,
    )


def wait(world: World, hold_timeout: float | None) -> Approval | None:
    return performer(world, hold_timeout).await_approval(STEP)


def test_waits_until_decided() -> None:
    """Long polls of at most 30 s follow each other until a person has decided."""
    world = World(PENDING, PENDING, Approval("approved"))
    assert wait(world, None) == Approval("approved")
    assert world.waits == [30, 30, 30]


async def test_waits_until_decided_async() -> None:
    """As the synchronous test."""
    world = World(PENDING, PENDING, Approval("approved"))

    async def sleep(seconds: float) -> None:
        world.sleep(seconds)

    recorder = Recorder(Place(None), _nobody, _nobody, 1.0)
    patient = AsyncPerformer(AsyncClient(world), recorder, Nothing(), clock=world.clock, sleep=sleep)
    assert await patient.await_approval(STEP) == Approval("approved")
    assert world.waits == [30, 30, 30]


def test_time_is_up() -> None:
    """hold_timeout ends the wait, and the polls never ask for more than is left."""
    world = World(PENDING)
    assert wait(world, 65) is None
    assert world.waits == [30, 30, 5, 0]
    assert world.now == 65


def test_decided_in_the_last_moment() -> None:
    """A decision made during the last pause is not missed."""
    world = World(PENDING, Approval("approved"))
    assert wait(world, 0.5) == Approval("approved")
    assert world.waits == [0, 0]


def test_one_time_for_the_whole_call() -> None:
    """A call that is held a second time does not get its time anew."""
    world = World(Approval("approved"), PENDING)
    patient = performer(world, 40)
    assert patient.await_approval(STEP) == Approval("approved")
    assert patient.await_approval(STEP) is None
    assert world.now == 40


def test_a_gateway_that_does_not_hold_back() -> None:
    """A gateway that answers at once is asked once a second and not without pause."""
    world = World(PENDING, poll=0.0)
    assert wait(world, 5) is None
    assert len(world.waits) == 6
    assert world.pauses[0] == 1.0


def test_outage_within_hold_timeout() -> None:
    """A gateway that restarts does not end the wait before its time."""
    world = World(DOWN, DOWN, Approval("approved"))
    assert wait(world, 60) == Approval("approved")


def test_outage_until_hold_timeout() -> None:
    """An outage until the time is up leaves the call pending."""
    assert wait(World(DOWN), 600) is None


def test_endless_outage() -> None:
    """Without hold_timeout an unbroken outage of 300 s is GatewayUnavailable, an interrupted one is not."""
    world = World(*[DOWN] * 59, PENDING, *[DOWN] * 59, Approval("approved"))
    assert wait(world, None) == Approval("approved")
    endless = World(DOWN)
    with pytest.raises(GatewayUnavailable):
        wait(endless, None)
    assert endless.now == 300


def test_next_poll_is_a_whole_second() -> None:
    """The wait sent is a whole number of seconds, and 0 for the last fraction."""
    world = World(PENDING)
    patience = PollSchedule(0.5, world.clock)
    assert patience.next_poll() == 0
    assert patience.pause() == 0.5
