"""Doing anew what lost a race: how often, and what is never done twice. Without a database."""

import pytest

from toolgate_service.core.errors import LostRace, StorageFault
from toolgate_service.db import retry
from toolgate_service.db.retry import mark_committed, storage_fault, with_retry


class Work:
    """Loses so many times.

    Attributes:
        attempts: how often it was done.
    """

    def __init__(self, losses: int, *, commits_first: bool = False) -> None:
        self._losses = losses
        self._commits_first = commits_first
        self.attempts = 0

    async def __call__(self) -> str:
        self.attempts += 1
        if self._commits_first:
            mark_committed()
        if self.attempts <= self._losses:
            raise LostRace("lost")
        return "done"


async def test_what_lost_is_done_anew_until_it_wins() -> None:
    """Whoever asked hears nothing of it."""
    work = Work(3)
    assert await with_retry(work) == "done"
    assert work.attempts == 4


async def test_it_is_given_up_in_the_end() -> None:
    """After eight attempts the race is told of: the request is a 503."""
    work = Work(1_000)
    with pytest.raises(LostRace):
        await with_retry(work)
    assert work.attempts == 8


async def test_nothing_begins_again_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for an answer waits no longer than that, however quick the next attempt might be."""
    monkeypatch.setattr(retry, "MAX_DURATION", -1.0)
    work = Work(1)
    with pytest.raises(LostRace):
        await with_retry(work)
    assert work.attempts == 1


@pytest.mark.parametrize("within", [False, True], ids=["itself", "a part of it"])
async def test_what_has_committed_something_is_never_done_again(within: bool) -> None:
    """What it committed would happen twice, also where a part of it did that was done anew by itself."""
    first, whole = Work(0, commits_first=True), Work(1, commits_first=not within)

    async def both() -> str:
        if within:
            await with_retry(first)
        return await whole()

    with pytest.raises(LostRace):
        await with_retry(both)
    assert whole.attempts == 1


async def test_a_commit_is_that_of_the_work_it_was_made_in_alone() -> None:
    """What came before, and nobody is doing any more, keeps nothing from being done anew."""
    await with_retry(Work(0, commits_first=True))
    mark_committed()
    assert await with_retry(Work(1)) == "done"


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_lost_race_is_known_by_its_code(code: str) -> None:
    """A failed serialization, and a deadlock."""
    assert isinstance(storage_fault("said", code), LostRace)


@pytest.mark.parametrize("code", ["40003", "40000", "40002", "08006", "57P01", "25006", None])
def test_what_may_have_been_done_is_no_lost_race(code: str | None) -> None:
    """An outcome that nobody knows above all: 40003 is of the same class."""
    known = storage_fault("said", code)
    assert isinstance(known, StorageFault)
    assert not isinstance(known, LostRace)
