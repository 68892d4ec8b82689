"""Rows of the table: one function per row, which sets up the two compared sides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from load import peers
from load.connection import Asked, Target
from load.generator import Load, Slice
from load.histogram import Histogram
from load.pairs import Side
from load.stage import CONTEXT, TOO_MUCH, Ours, Stage, right

SQLITE, POSTGRESQL = "sqlite", "postgresql"
#: requests a second of the row about checks beside logs
STEADY = 1000
#: logs beside them: a little more, so that the two timetables meet in every possible way
BESIDE = 1003
#: connections of an open loop: enough that a free one is there unless the server stalls
WAITING = 64
#: gateways that share a database, and connections that share the gateways
REPLICAS = 3
SHARED = 48

Sides: TypeAlias = Callable[[Stage], AbstractAsyncContextManager[tuple[Side, Side]]]


@dataclass(frozen=True)
class Bar:
    """Bound of a ratio.

    Attributes:
        at_least: Whether it is a lower bound.
        ratio: The bound.
        at_median: Whether the median itself is judged, in place of the interval's lenient end.
    """

    ratio: float
    at_least: bool
    at_median: bool = False

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.ratio:g} ×"

    def judged(self, median: float, low: float, high: float) -> float:
        """Return the value to compare with the bound.

        Args:
            median: Of the ratios.
            low: The interval's lower end.
            high: Its upper end.
        """
        return median if self.at_median else high if self.at_least else low

    def reached(self, value: float) -> bool:
        """Return True if a value meets the bound.

        Args:
            value: Result of `judged`.
        """
        return value >= self.ratio if self.at_least else value <= self.ratio


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: What `--only` takes.
        title: What is measured.
        unit: Of the figures that are compared.
        bars: By database; what is about one database has no other.
        sides: Sets up what is compared.
        minutes: Whether slices are minutes, sent by a timetable, in place of seconds in a closed loop.
    """

    name: str
    title: str
    unit: str
    bars: dict[str, Bar]
    sides: Sides = field(repr=False)
    minutes: bool = False


def rate(one: Slice) -> float:
    """Answers a second.

    Args:
        one: A slice.
    """
    return one.rate


def medians(one: Slice) -> float:
    """The medians of what was asked in turn, together, in microseconds.

    Args:
        one: A slice.
    """
    return sum(kind.quantile(0.5) for kind in one.latencies) / 1e3


def p99(one: Slice) -> float:
    """The latency in microseconds that one in a hundred exceeds.

    Args:
        one: A slice.
    """
    return one.latencies[0].quantile(0.99) / 1e3


@asynccontextmanager
async def closed(
    ours: tuple[str, Target], other: tuple[str, Target], connections: int, figure: Callable[[Slice], float]
) -> AsyncIterator[tuple[Side, Side]]:
    """Two sides under the same closed loop.

    Args:
        ours: What it is, and what is asked.
        other: Likewise.
        connections: How many each has.
        figure: What is compared.
    """
    async with AsyncExitStack() as stack:
        loads = [await stack.enter_async_context(Load(target, connections)) for _, target in (ours, other)]
        yield Side(ours[0], loads[0].closed, figure), Side(other[0], loads[1].closed, figure)


def _beside_floor(
    stage: Stage, connections: int, figure: Callable[[Slice], float]
) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    ours = stage.gateway()
    check = ours.check()
    other = ("no-op", stage.floor(check.request))
    return closed(("check", ours.target(check)), other, connections, figure)


def check_beside_floor(stage: Stage) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    """Checks as fast as sixteen connections get them, beside what does nothing.

    Args:
        stage: Where.
    """
    return _beside_floor(stage, 16, rate)


def check_beside_cerbos(stage: Stage) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    """The same beside Cerbos, which decides by one condition and records nothing.

    Args:
        stage: Where.
    """
    asked, refused = peers.ask_cerbos(CONTEXT), peers.ask_cerbos(TOO_MUCH, b"EFFECT_DENY")
    other = ("Cerbos 0.51", stage.peer(peers.cerbos, asked, refused))
    ours = stage.gateway()
    return closed(("check", ours.target(ours.check())), other, 16, rate)


def check_alone_beside_floor(stage: Stage) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    """One check after the other, beside what does nothing.

    Args:
        stage: Where.
    """
    return _beside_floor(stage, 1, medians)


def _beside_unrecorded(
    stage: Stage, connections: int, figure: Callable[[Slice], float]
) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    ours, other = stage.gateway(), stage.gateway(unrecorded=True)
    return closed(
        ("check", ours.target(ours.check())),
        ("unrecorded check", other.target(other.check())),
        connections,
        figure,
    )


def check_beside_unrecorded(stage: Stage) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    """Checks as fast as sixteen connections get them, beside the same without the decision log.

    Args:
        stage: Where.
    """
    return _beside_unrecorded(stage, 16, rate)


def check_alone_beside_unrecorded(stage: Stage) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    """One check after the other, beside the same without the decision log.

    Args:
        stage: Where.
    """
    return _beside_unrecorded(stage, 1, medians)


def check_and_log_beside_aegis(stage: Stage) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    """A check and a log entry on disk in turn, beside one request that does neither key nor sync.

    Args:
        stage: Where.
    """
    asked, refused = peers.ask_aegis(CONTEXT), peers.ask_aegis(TOO_MUCH, b'"status":"blocked"')
    other = ("aegis-server /execute", stage.peer(peers.aegis, asked, refused))
    ours = stage.gateway()
    return closed(("check + log", ours.target(ours.check(), ours.log())), other, 1, medians)


def _log_batches(stage: Stage, *, slow_disk: bool) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    ours = stage.gateway(slow_disk=slow_disk)
    single = stage.gateway(slow_disk=slow_disk, one_by_one=True)
    other = ("one entry a batch", single.target(single.log()))
    return closed(("log", ours.target(ours.log())), other, 64, rate)


def log_beside_one_by_one(stage: Stage) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    """Log entries on disk as fast as 64 connections get them, beside one entry a transaction.

    Args:
        stage: Where.
    """
    return _log_batches(stage, slow_disk=False)


def log_beside_one_by_one_on_a_slow_disk(stage: Stage) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    """The same where each sync takes a millisecond longer.

    Args:
        stage: Where.
    """
    return _log_batches(stage, slow_disk=True)


@asynccontextmanager
async def check_beside_logs(stage: Stage) -> AsyncIterator[tuple[Side, Side]]:
    """Checks by a timetable while as many logs are written, beside the same checks alone.

    Args:
        stage: Where.
    """
    ours = stage.gateway()
    async with (
        Load(ours.target(ours.check()), WAITING) as checks,
        Load(ours.target(ours.log()), WAITING) as logs,
    ):

        async def alone(seconds: float) -> Slice:
            return await checks.open(seconds, STEADY)

        async def beside(seconds: float) -> Slice:
            found, logged = await asyncio.gather(checks.open(seconds, STEADY), logs.open(seconds, BESIDE))
            # The logs too: a rate below both together says that the gateway fell behind.
            lasted = max(found.seconds, logged.seconds)
            return Slice(found.latencies + logged.latencies, lasted, found.late)

        yield Side("checks beside logs", beside, p99), Side("checks alone", alone, p99)


@asynccontextmanager
async def _replicas(
    stage: Stage, ask: Callable[[Ours], Asked], *, with_redis: bool
) -> AsyncIterator[tuple[Side, Side]]:
    async with AsyncExitStack() as stack:
        sides = []
        for many in (REPLICAS, 1):
            ours, ports = stage.replicas(many, with_redis=with_redis)
            asked = ask(ours)
            loads = [
                await stack.enter_async_context(Load(right(port, asked), SHARED // many)) for port in ports
            ]
            label = f"{many} replicas" if many > 1 else "one replica"
            sides.append(Side(label, partial(_at_once, loads), rate))
        yield sides[0], sides[1]


async def _at_once(loads: Sequence[Load], seconds: float) -> Slice:
    """Load several servers at the same time, and add up what they answered."""
    found = await asyncio.gather(*(load.closed(seconds) for load in loads))
    together = Histogram()
    for one in found:
        together.merge(one.latencies[0])
    return Slice((together,), max(one.seconds for one in found))


def checks_of_replicas(stage: Stage) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    """Checks of one organization at three gateways, beside as many connections to one; rates counted in the database.

    Args:
        stage: Where.
    """
    return _replicas(stage, Ours.check, with_redis=False)


def checks_of_replicas_with_redis(stage: Stage) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    """The same with rates counted in Valkey.

    Args:
        stage: Where.
    """
    return _replicas(stage, Ours.check, with_redis=True)


def logs_of_replicas(stage: Stage) -> AbstractAsyncContextManager[tuple[Side, Side]]:
    """Log entries of one organization at three gateways, beside as many connections to one.

    Args:
        stage: Where.
    """
    return _replicas(stage, Ours.log, with_redis=True)


def _both(bar: Bar, postgresql: Bar | None = None) -> dict[str, Bar]:
    return {SQLITE: bar, POSTGRESQL: postgresql or bar}


#: Three processes do not make a core faster: what they may cost is what each bundle is smaller by ...
_SHARED_CORE = {POSTGRESQL: Bar(0.5, at_least=True)}
#: ... and each batch, where the batches of one organization are written one after another.
_IN_TURN = {POSTGRESQL: Bar(1 / REPLICAS, at_least=True)}

ROWS = (
    Row(
        "check-throughput",
        "`/sdk/check`, 16 connections: throughput against the no-op",
        "/s",
        _both(Bar(0.70, at_least=True), Bar(0.90, at_least=True)),
        check_beside_floor,
    ),
    Row(
        "check-cerbos",
        "`/sdk/check`, 16 connections: throughput against Cerbos 0.51 on one core",
        "/s",
        _both(Bar(2, at_least=True)),
        check_beside_cerbos,
    ),
    Row(
        "check-latency",
        "`/sdk/check`, one connection: median against the no-op's",
        "µs",
        _both(Bar(1.5, at_least=False)),
        check_alone_beside_floor,
    ),
    Row(
        "check-decisions",
        "`/sdk/check`, 16 connections: throughput against the same without the decision log",
        "/s",
        _both(Bar(0.85, at_least=True)),
        check_beside_unrecorded,
    ),
    Row(
        "check-decisions-latency",
        "`/sdk/check`, one connection: median against the same without the decision log",
        "µs",
        _both(Bar(1.15, at_least=False)),
        check_alone_beside_unrecorded,
    ),
    Row(
        "check-log-aegis",
        "check + durable log, one connection: the two medians together against aegis-server's `/execute`",
        "µs",
        _both(Bar(1.2, at_least=False)),
        check_and_log_beside_aegis,
    ),
    Row(
        "log-batching",
        "durable `/sdk/log`, 64 connections: throughput against batch size 1",
        "/s",
        _both(Bar(2.5, at_least=True)),
        log_beside_one_by_one,
    ),
    Row(
        "log-batching-slow-disk",
        "the same with every fsync delayed by 1 ms",
        "/s",
        _both(Bar(10, at_least=True)),
        log_beside_one_by_one_on_a_slow_disk,
    ),
    Row(
        "check-beside-logs",
        "p99 of 1,000 checks/s while 1,000 logs/s are written, against the same checks alone, by the minute",
        "µs",
        _both(Bar(3, at_least=False, at_median=True)),
        check_beside_logs,
        minutes=True,
    ),
    Row(
        "replicas-check",
        "`/sdk/check`, 48 connections: three replicas against one, all of them and PostgreSQL on one core",
        "/s",
        _SHARED_CORE,
        checks_of_replicas,
    ),
    Row(
        "replicas-check-redis",
        "the same with rates counted in Valkey, on that core too",
        "/s",
        _SHARED_CORE,
        checks_of_replicas_with_redis,
    ),
    Row(
        "replicas-log",
        "durable `/sdk/log`, 48 connections: three replicas against one, all entries of one organization",
        "/s",
        _IN_TURN,
        logs_of_replicas,
    ),
)
