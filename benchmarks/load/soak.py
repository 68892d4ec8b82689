"""Hours in minutes: steady load, and how the gateway's memory grows under it."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable

from load.generator import Load, Slice
from load.machine import memory_of
from load.results import Result
from load.rows import WAITING
from load.stage import Stage

NAME = "soak"
TITLE = "memory of the gateway under 500 checks/s and 500 logs/s: growth after warm-up"
RATE = 500
#: of what it was after the warm-up
MOST = 0.05
#: seconds before memory counts, and seconds at either end that are compared
WARM, END = 60.0, 60.0
EVERY = 5.0


async def soak(stage: Stage, database: str, seconds: float, told: Callable[[float, int], None]) -> Result:
    """Load a gateway and watch its memory.

    Args:
        stage: Where.
        database: The gateway's.
        seconds: For how long after the warm-up.
        told: Callback every five seconds, with the time since the start and the bytes.
    """
    ours = stage.gateway()
    samples: list[tuple[float, int]] = []
    async with (
        Load(ours.target(ours.check()), WAITING) as checks,
        Load(ours.target(ours.log()), WAITING) as logs,
    ):
        watching = asyncio.ensure_future(_watch(ours.server.pid, samples, told))
        used, wall = time.process_time(), time.perf_counter()
        try:
            found = await asyncio.gather(
                checks.open(WARM + seconds, RATE), logs.open(WARM + seconds, RATE + 1)
            )
        finally:
            watching.cancel()
        share = (time.process_time() - used) / (time.perf_counter() - wall)
    return _result(database, seconds, samples, found, share)


async def _watch(process: int, samples: list[tuple[float, int]], told: Callable[[float, int], None]) -> None:
    began = time.monotonic()
    # Cancelled when the load has ended.
    while True:
        now = time.monotonic() - began
        samples.append((round(now, 1), memory_of(process)))
        told(*samples[-1])
        await asyncio.sleep(EVERY)


def growth(samples: list[tuple[float, int]], warm: float, end: float) -> float:
    """By which share memory grew: the median of the last stretch beside that of the first after the warm-up.

    Args:
        samples: Seconds since the start, and bytes.
        warm: Seconds that do not count.
        end: How many seconds are taken together at either end; at most half of what there is.

    Raises:
        ValueError: Nothing was seen after the warm-up.
    """
    counted = [(at, size) for at, size in samples if at >= warm]
    if not counted:
        raise ValueError(f"no memory was seen after a warm-up of {warm:g} s")
    first, last = counted[0][0], counted[-1][0]
    stretch = min(end, (last - first) / 2)
    before = statistics.median(size for at, size in counted if at <= first + stretch)
    after = statistics.median(size for at, size in counted if at >= last - stretch)
    return after / before - 1


def _result(
    database: str, seconds: float, samples: list[tuple[float, int]], found: tuple[Slice, Slice], share: float
) -> Result:
    grown = growth(samples, WARM, END)
    return {
        "row": NAME,
        "database": database,
        "title": TITLE,
        "bar": f"< {MOST:.0%}",
        "growth": grown,
        "reached": grown < MOST,
        "minutes": seconds / 60,
        "warm_seconds": WARM,
        "answers": [one.latencies[0].total for one in found],
        "latency_us": [
            {str(q): one.latencies[0].quantile(q) / 1e3 for q in (0.5, 0.99, 0.999)} for one in found
        ],
        "load_share": share,
        "samples": samples,
    }
