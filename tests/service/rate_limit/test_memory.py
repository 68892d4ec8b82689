"""Rate windows: one minute, exact, all ending at the same moment (decisions §7)."""

import pytest

from toolgate_service.core.errors import StartError
from toolgate_service.core.settings import load_settings
from toolgate_service.rate_limit.limiter import MemoryRateLimiter, Rate


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def test_a_window_counts_down_to_refusal() -> None:
    """Three of three pass, the fourth is refused, and refusing costs nothing."""
    windows = MemoryRateLimiter(Clock(600.0))
    rates = [await windows.count("o", "production/actions", 3) for _ in range(5)]
    assert [rate.exceeded for rate in rates] == [False, False, False, True, True]
    assert [rate.remaining for rate in rates] == [2, 1, 0, 0, 0]
    assert {(rate.limit, rate.reset) for rate in rates} == {(3, 660)}


async def test_looking_costs_nothing_and_says_what_counting_will() -> None:
    """Before, at and beyond the limit, and in a new minute: the same as the next request is told."""
    clock = Clock(600.0)
    windows = MemoryRateLimiter(clock)
    for moment in (600.0, 600.0, 600.0, 660.0):
        clock.now = moment
        looks = {await windows.peek("o", "production/actions", 2) for _ in range(3)}
        assert looks == {await windows.count("o", "production/actions", 2)}


async def test_a_new_minute_is_a_new_window() -> None:
    """At the minute's end the count begins anew, not a moment earlier."""
    clock = Clock(659.999)
    windows = MemoryRateLimiter(clock)
    assert (await windows.count("o", "production/actions", 1)).exceeded is False
    assert (await windows.count("o", "production/actions", 1)).exceeded is True
    clock.now = 660.0
    fresh = await windows.count("o", "production/actions", 1)
    assert (fresh.exceeded, fresh.reset) == (False, 720)


@pytest.mark.parametrize(
    "other", [("p", "production/actions"), ("o", "test/actions"), ("o", "production/reads")]
)
async def test_windows_do_not_mix(other: tuple[str, str]) -> None:
    """Organizations, environments and surfaces are counted apart."""
    windows = MemoryRateLimiter(Clock(0.0))
    await windows.count("o", "production/actions", 1)
    assert (await windows.count(*other, 1)).exceeded is False
    assert (await windows.count("o", "production/actions", 1)).exceeded is True


@pytest.mark.parametrize(
    ("now", "seconds"), [(600.0, 60), (600.001, 60), (659.0, 1), (659.999, 1), (630.5, 30)]
)
async def test_waiting_as_long_as_told_is_long_enough(now: float, seconds: int) -> None:
    """`Retry-After` is whole seconds, at least one, and never ends before the window does."""
    rate = await MemoryRateLimiter(Clock(now)).count("o", "production/actions", 0)
    assert rate.retry_after == seconds
    assert now + rate.retry_after >= rate.reset - 0.001


def test_the_refusal_says_when_to_come_back() -> None:
    """429 with the seconds in the text and in `Retry-After` (spec §7)."""
    rate = Rate(limit=100, remaining=0, reset=660, exceeded=True, retry_after=12)
    refusal = rate.refusal()
    assert refusal.status_code == 429
    assert refusal.detail == "Rate limit exceeded; retry after 12 seconds"
    assert refusal.headers == {"Retry-After": "12"}
    assert rate.headers() == {
        b"x-ratelimit-limit": b"100",
        b"x-ratelimit-remaining": b"0",
        b"x-ratelimit-reset": b"660",
    }


async def test_old_windows_are_forgotten() -> None:
    """Memory holds the current minute alone."""
    clock = Clock(0.0)
    windows = MemoryRateLimiter(clock)
    for number in range(100):
        await windows.count(f"o{number}", "production/actions", 1)
    clock.now = 60.0
    await windows.count("o", "production/actions", 1)
    assert len(windows._counts) == 1


async def test_a_clock_set_back_opens_no_window() -> None:
    """Stepping back over a minute's end and forward again gives nobody a second minute."""
    clock = Clock(660.0)
    windows = MemoryRateLimiter(clock)
    await windows.count("o", "production/actions", 1)
    for now in (659.9, 660.1):
        clock.now = now
        assert (await windows.count("o", "production/actions", 1)).exceeded is True


def test_a_limit_beyond_counting_is_no_setting() -> None:
    """Counts have 32 bits on a server: a larger limit would refuse each request there, and is refused at the start."""
    with pytest.raises(StartError, match="TOOLGATE_MANAGEMENT_REQUESTS_PER_MINUTE"):
        load_settings({"management_requests_per_minute": 2**31})
    assert load_settings({"management_requests_per_minute": 10**9}).management_requests_per_minute == 10**9
