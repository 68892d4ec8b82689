"""What `toolgate logs tail` takes for new, whatever order entries appear in and however often a look fails."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_cli.client import GatewayError
from toolgate_cli.log_entries import LogEntry
from toolgate_cli.logs import OVERLAP, Follower

START = datetime(2026, 1, 1, tzinfo=UTC)


class Log:
    """A gateway's log: newest first, three entries a page, broken off when it is told to."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.breaks_at: int | None = None
        self.read = 0

    def write(self, name: str, second: float) -> None:
        moment = (START + timedelta(seconds=second)).isoformat()
        self.entries.append(
            {"id": name, "agent_name": "bot", "action": "a.b", "status": "success", "created_at": moment}
        )

    def pages(self, *_: object) -> Iterator[list[dict[str, Any]]]:
        ordered = sorted(self.entries, key=lambda one: (one["created_at"], one["id"]), reverse=True)
        for number, at in enumerate(range(0, max(len(ordered), 1), 3)):
            if number == self.breaks_at:
                raise GatewayError("gone", unavailable=True)
            self.read += 1
            yield ordered[at : at + 3]


def following(log: Log, **options: Any) -> Follower:
    return Follower(log, {}, options.get("text"), options.get("since"))  # type: ignore[arg-type]  # it only reads pages


def names(found: list[tuple[LogEntry, dict[str, Any]]]) -> list[str]:
    return [entry.id for entry, _ in found]


LATE = OVERLAP.total_seconds() - 1


@given(
    st.lists(st.tuples(st.floats(0, LATE), st.integers(0, 3), st.none() | st.integers(0, 2)), max_size=30),
    st.integers(0, 5),
)
def test_nothing_is_lost_and_nothing_comes_twice(
    steps: list[tuple[float, int, int | None]], there_before: int
) -> None:
    """Entries appear late, many at a time, and looks fail on any page: each comes once, at the next look that ends."""
    log, seen = Log(), []
    for number in range(there_before):
        log.write(f"before-{number}", -number * 20)
    follower = following(log)
    seen += names(follower.poll(2))
    assert len(seen) == min(2, there_before)
    expected = set(seen)
    clock = 0.0
    for number, (late, count, breaks_at) in enumerate(steps):
        clock += 1
        for each in range(count):
            log.write(f"{number}-{each}", clock - late)
            expected.add(f"{number}-{each}")
        log.breaks_at = breaks_at
        try:
            seen += names(follower.poll(2))
        except GatewayError:
            continue
    log.breaks_at = None
    seen += names(follower.poll(2))
    assert len(seen) == len(set(seen))
    assert set(seen) == expected


def test_they_come_in_order() -> None:
    """Oldest first, from the first look on."""
    log = Log()
    for second in range(8):
        log.write(f"e{second}", second)
    follower = following(log)
    assert names(follower.poll(3)) == ["e5", "e6", "e7"]
    for second in range(8, 12):
        log.write(f"e{second:02}", second)
    assert names(follower.poll(3)) == ["e08", "e09", "e10", "e11"]


def test_a_moment_to_begin_with() -> None:
    """Everything from then on is new, however much; nothing before it comes."""
    log = Log()
    for second in range(0, 500, 10):
        log.write(f"e{second}", second)
    follower = following(log, since=START + timedelta(seconds=250))
    assert names(follower.poll(0)) == [f"e{second}" for second in range(250, 500, 10)]
    log.write("late", 240)
    log.write("new", 501)
    assert names(follower.poll(0)) == ["new"]


def test_a_text_chooses() -> None:
    """Only matching entries come; the first look goes back for them, but not for ever."""
    log = Log()
    for second in range(3000):
        log.write("wanted" if second == 0 else f"e{second}", second)
    follower = following(log, text="WANTED")
    assert names(follower.poll(1)) == []
    assert log.read < 400
    log.write("wanted-again", 3001)
    log.write("other", 3002)
    assert names(follower.poll(1)) == ["wanted-again"]


def test_memory_stays_small() -> None:
    """What is too old to come again is forgotten."""
    log = Log()
    follower = following(log)
    for second in range(2000):
        log.write(f"e{second}", second)
        log.entries = log.entries[-100:]
        assert names(follower.poll(0)) == ([f"e{second}"] if second else [])
    assert len(follower._seen) <= OVERLAP.total_seconds() + 1


@pytest.mark.parametrize("nonsense", [{}, {"id": 1}, [], None, "x"], ids=repr)
def test_what_is_no_entry_is_refused(nonsense: Any) -> None:
    """And nothing of that look counts as seen."""
    log = Log()
    follower = following(log)
    log.entries = []
    follower.poll(0)
    log.write("real", 1)
    real_pages = log.pages
    log.pages = lambda *_: iter([[log.entries[0], nonsense]])  # type: ignore[method-assign]  # for one look
    with pytest.raises(GatewayError, match="invalid log entry"):
        follower.poll(0)
    log.pages = real_pages  # type: ignore[method-assign]  # as it was
    assert names(follower.poll(0)) == ["real"]
