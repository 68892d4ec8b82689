"""Overview page: tool calls over time, most active agents and actions, waiting times for approvals, and plan usage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import Response
from starlette.routing import Route

from toolgate_service.agents.models import Agent
from toolgate_service.approvals.repository import MAX_WAITS, WaitStats, load_wait_stats
from toolgate_service.billing import service as billing
from toolgate_service.billing.schemas import UsageView
from toolgate_service.console.auth_pages import OVERVIEW
from toolgate_service.console.dependencies import PageContext, page_route
from toolgate_service.console.settings import Meter
from toolgate_service.console.templates import render_page
from toolgate_service.core.clock import wire
from toolgate_service.core.errors import ApiError
from toolgate_service.core.plans import UNLIMITED
from toolgate_service.db.database import now
from toolgate_service.logs.counts import Counts, EnvironmentKey, TopEntry, counts_over_time, minute_of, top_n
from toolgate_service.logs.models import ACTION, AGENT, DAY, HOUR, MINUTE
from toolgate_service.logs.service import TEST_DAYS, retention_days
from toolgate_service.organizations.models import Organization

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Maximum number of bars in a chart. If the time range has more days than this, each bar covers several days.
MAX_BARS = 100

#: Size of the chart in the units of its SVG view box. The page scales the chart to the available space.
WIDTH = 1_000
HEIGHT = 200
#: Minimum height of a bar's segment in SVG units. It keeps a single call visible next to a bar of a thousand calls.
MIN_HEIGHT = 3
#: Width of a bar as a fraction of the space that each bar has. The rest is the gap between bars.
BAR_WIDTH = 0.82

#: Segments of a bar from bottom to top: calls that were allowed, that wait for an approval, and that were denied.
KINDS = ("allowed", "held", "blocked")


@dataclass(frozen=True, slots=True)
class Range:
    """Time range that a chart can show. It ends at the current time.

    Attributes:
        name: Value of the query parameter that selects the range.
        title: Label on the page.
        width: Duration of one bar in minutes.
        bars: Number of bars.
    """

    name: str
    title: str
    width: int
    bars: int

    @property
    def days(self) -> float:
        """Duration of the range in days."""
        return self.width * self.bars / DAY

    @property
    def bar(self) -> str:
        """Duration of one bar as text, such as "hour" or "6 hours"."""
        for length, word in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
            if self.width % length == 0:
                number = self.width // length
                return word if number == 1 else f"{number} {word}s"
        raise AssertionError(self.width)

    @property
    def by_the_minute(self) -> bool:
        """True if each bar covers one minute."""
        return self.width == MINUTE

    def since(self, moment: datetime) -> int:
        """Return the start of the range in minutes since the Unix epoch, if the range ends at `moment`.

        The start is rounded to the beginning of a minute, an hour or a UTC day, depending on the range.
        """
        step = min(self.width, DAY) if self.days <= 1 else DAY
        minute = minute_of(moment)
        return minute - minute % step + step - self.bars * self.width


STANDARD: Sequence[Range] = (
    Range("hour", "Hour", MINUTE, 60),
    Range("day", "24 hours", HOUR, 24),
    Range("week", "7 days", 6 * HOUR, 28),
    Range("month", "30 days", DAY, 30),
    Range("quarter", "90 days", DAY, 90),
    Range("year", "53 weeks", 7 * DAY, 53),
)
DEFAULT_RANGE = "day"


def list_ranges(kept_days: int) -> Sequence[Range]:
    """Return the time ranges that a chart can show if log entries are stored for a limited number of days.

    If `kept_days` lies between two standard ranges, the last range of the result has `kept_days` days, rounded up so
    that all bars cover the same number of days.

    Args:
        kept_days: Number of days for which log entries are stored; -1 for unlimited.
    """
    if kept_days == UNLIMITED:
        return STANDARD
    within = [one for one in STANDARD if one.days <= kept_days]
    if within[-1].days < kept_days < STANDARD[-1].days:
        several = -(-kept_days // MAX_BARS)
        within.append(Range("kept", f"{kept_days} days", several * DAY, -(-kept_days // several)))
    return within


def moment_of(minute: int) -> datetime:
    """Convert minutes since the Unix epoch to a time in UTC."""
    return _EPOCH + timedelta(minutes=minute)


@dataclass(frozen=True, slots=True)
class Piece:
    """Segment of a vertical bar. Its position and height are in SVG units."""

    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    """Vertical bar that consists of stacked segments. Its position and width are in SVG units."""

    since: datetime
    counts: Counts
    x: float
    slot: float
    pieces: Sequence[Piece]

    @property
    def inner_x(self) -> float:
        """X coordinate of the bar's left edge. Half of the gap between two bars is to the left of it."""
        return round(self.x + self.slot * (1 - BAR_WIDTH) / 2, 2)

    @property
    def inner_width(self) -> float:
        """Width of the bar without the gap."""
        return round(self.slot * BAR_WIDTH, 2)


@dataclass(frozen=True, slots=True)
class Chart:
    """Bar chart of the tool calls in a time range.

    Attributes:
        bars: Bars from the oldest to the newest.
        top: Number of calls that the top of the vertical axis represents.
        total: Number of calls in all bars together, by decision.
    """

    bars: Sequence[Bar]
    top: int
    total: Counts


def build_chart(time_range: Range, since: int, counted: Sequence[Counts]) -> Chart:
    """Return the bar chart for a time range.

    Args:
        time_range: Time range of the chart.
        since: Start of the time range in minutes since the Unix epoch.
        counted: Number of calls by decision, for each bar from the oldest to the newest.
    """
    top = round_up(max(one.total for one in counted))
    slot = WIDTH / len(counted)
    total = Counts()
    bars = []
    for number, one in enumerate(counted):
        total = total.plus(one)
        began = moment_of(since + number * time_range.width)
        bars.append(Bar(began, one, round(number * slot, 2), round(slot, 2), _pieces(one, top)))
    return Chart(bars, top, total)


def round_up(number: int) -> int:
    """Round a number up to the next number in the series 1, 2, 4, 6, 8, 10, 20, 40, 60 and so on.

    The result is the top value of an axis. All values except 1 are even, so that the label at half height is an
    integer.
    """
    power = 1
    while True:
        for step in (1, 2, 4, 6, 8):
            if number <= step * power:
                return step * power
        power *= 10


def _pieces(counts: Counts, top: int) -> Sequence[Piece]:
    heights = {
        kind: max(MIN_HEIGHT, number / top * HEIGHT) for kind in KINDS if (number := getattr(counts, kind))
    }
    # If the minimum height of small segments makes the bar higher than the chart, scale all its segments down.
    scale = min(1, HEIGHT / sum(heights.values())) if heights else 1
    found, at = [], float(HEIGHT)
    for kind, height in heights.items():
        at -= height * scale
        found.append(Piece(kind, round(max(at, 0), 2), round(height * scale, 2)))
    return found


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Share(NamedTuple):
    """Segment of a horizontal bar. Its position and width are percentages of the available width."""

    kind: str
    x: float
    width: float


def format_duration(length: timedelta) -> str:
    """Return a duration as text with at most two units, such as "4 min 10 s" or "2 h"."""
    left = max(0, round(length.total_seconds()))
    words = []
    for seconds, unit in _UNITS:
        number, left = divmod(left, seconds)
        if number:
            words.append(f"{number} {unit}")
        if words and (not number or len(words) == 2):  # noqa: PLR2004 - at most two units are shown
            break
    return " ".join(words) or "0 s"


def build_shares(counts: Counts, whole: int) -> Sequence[Share]:
    """Return the segments of a horizontal bar. A bar of `whole` calls has the full width."""
    found, at = [], 0.0
    for kind in KINDS:
        width = 100 * getattr(counts, kind) / whole
        if width:
            found.append(Share(kind, round(at, 2), round(width, 2)))
            at += width
    return found


#: Ranges of the time that passed until an approval request was decided. Each range has a label and an exclusive upper
#: bound.
_WAIT_RANGES = (
    ("Under a minute", timedelta(minutes=1)),
    ("1 to 5 minutes", timedelta(minutes=5)),
    ("5 to 15 minutes", timedelta(minutes=15)),
    ("15 minutes to an hour", timedelta(hours=1)),
    ("1 to 4 hours", timedelta(hours=4)),
    ("4 to 24 hours", timedelta(days=1)),
    ("A day or more", timedelta.max),
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """Row in the table of the agents, or of the actions, with the most tool calls.

    Attributes:
        agent_id: Id of the agent; None if the row is for an action or a deleted agent.
        counts: Number of calls by decision.
        shares: Segments of the row's bar. The bar of the first row is the longest and has the full width.
    """

    name: str
    agent_id: str | None
    counts: Counts
    shares: Sequence[Share]


@dataclass(frozen=True, slots=True)
class Overview:
    """Data of the overview page for one time range."""

    chart: Chart
    agents: Sequence[Ranked]
    actions: Sequence[Ranked]
    waits: WaitStats
    usage: UsageView | None


async def show_overview(page: PageContext) -> Response:
    """Show the overview page for the time range that the URL selects."""
    async with page.gateway.database.reading() as session:
        ranges = list_ranges(await _kept_days(session, page))
        time_range = _chosen_range(page, ranges)
        moment = now(session)
        since = time_range.since(moment)
        listed_since = since - since % (HOUR if time_range.by_the_minute else DAY)
        found = await _load(session, page, time_range, since, listed_since, minute_of(moment))
    return await render_page(
        page,
        "overview.html",
        ranges=ranges,
        time_range=time_range,
        since=moment_of(since),
        listed_since=moment_of(listed_since),
        ends=moment_of(since + time_range.bars * time_range.width),
        from_then=wire(moment_of(listed_since)),
        chart=found.chart,
        agents=found.agents,
        actions=found.actions,
        waits=found.waits,
        steps=_count_waits(found.waits),
        at_most=MAX_WAITS,
        span=format_duration,
        number="{:,}".format,
        usage=found.usage,
        is_sold=page.gateway.provider_signature is not None,
        unlimited=UNLIMITED,
        meters=[] if found.usage is None else _build_meters(found.usage),
    )


async def _load(
    session: AsyncSession, page: PageContext, time_range: Range, since: int, listed_since: int, until: int
) -> Overview:
    key = EnvironmentKey(page.caller.organization_id, page.environment)
    by_the_hour = time_range.by_the_minute
    counted = await counts_over_time(session, key, since, time_range.width, time_range.bars)
    agents = await top_n(session, key, AGENT, listed_since, until, hours_only=by_the_hour)
    actions = await top_n(session, key, ACTION, listed_since, until, hours_only=by_the_hour)
    names = await _agent_names(session, key, [one.name for one in agents])
    usage = None
    if not page.is_test:
        usage = await billing.get_usage(session, page.gateway.plans, key.organization_id)
    return Overview(
        build_chart(time_range, since, counted),
        _rank(agents, names),
        _rank(actions, {}),
        await load_wait_stats(session, *key, moment_of(since)),
        usage,
    )


async def _kept_days(session: AsyncSession, page: PageContext) -> int:
    if page.is_test:
        return TEST_DAYS
    query = select(Organization).where(Organization.id == page.caller.organization_id)
    one = (await session.exec(query)).one()
    return retention_days(
        page.gateway.plans, one.plan, one.plan_changed_at, one.retention_days_before, now(session)
    )


def _chosen_range(page: PageContext, ranges: Sequence[Range]) -> Range:
    given = page.request.query_params.get("range", DEFAULT_RANGE)
    for one in ranges:
        if one.name == given:
            return one
    names = ", ".join(one.name for one in ranges)
    raise ApiError(400, f"Unknown time range {given[:40]!r}: expected one of {names}")


async def _agent_names(
    session: AsyncSession, key: EnvironmentKey, ids: Sequence[str]
) -> Mapping[str, tuple[str, str | None]]:
    query = select(Agent.id, Agent.name, col(Agent.deleted_at)).where(
        Agent.organization_id == key.organization_id,
        Agent.environment == key.environment,
        col(Agent.id).in_(ids),
    )
    return {
        agent_id: (name, agent_id if deleted_at is None else None)
        for agent_id, name, deleted_at in (await session.exec(query)).all()
    }


def _rank(found: Sequence[TopEntry], names: Mapping[str, tuple[str, str | None]]) -> Sequence[Ranked]:
    return [
        Ranked(
            *names.get(one.name, (one.name, None)),
            one.counts,
            build_shares(one.counts, found[0].counts.total),
        )
        for one in found
    ]


def _build_meters(usage: UsageView) -> Sequence[Meter]:
    return (Meter("Agents", usage.agents), Meter("Log entries", usage.logs, "this month"))


def _count_waits(found: WaitStats) -> Sequence[tuple[str, int]]:
    """Return pairs of label and number: how many approval requests were decided within each range of waiting times."""
    bounds = [timedelta(0), *(until for _, until in _WAIT_RANGES)]
    return [
        (name, sum(low <= one < high for one in found.decided))
        for (name, _), low, high in zip(_WAIT_RANGES, bounds, bounds[1:], strict=False)
    ]


ROUTES: Sequence[Route] = (page_route(OVERVIEW, show_overview),)
