"""Overview page: tool calls over time, the most active agents and actions, waiting times of approvals, and usage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import Response
from starlette.routing import Route

from toolgate_service.agents.models import Agent
from toolgate_service.approvals.repository import MAX_WAITS, WaitStats, load_wait_stats
from toolgate_service.billing import service as billing
from toolgate_service.billing.schemas import UsageView
from toolgate_service.console.auth_pages import OVERVIEW
from toolgate_service.console.charts import (
    DEFAULT_RANGE,
    Chart,
    Range,
    Share,
    build_chart,
    build_shares,
    format_duration,
    list_ranges,
    moment_of,
)
from toolgate_service.console.dependencies import PageContext, page_handler
from toolgate_service.console.settings_plan import Meter
from toolgate_service.console.templates import render_page
from toolgate_service.core.clock import wire
from toolgate_service.core.errors import ApiError
from toolgate_service.core.plans import UNLIMITED
from toolgate_service.db.database import now
from toolgate_service.logs.models import ACTION, AGENT, DAY, HOUR
from toolgate_service.logs.retention import TEST_DAYS, kept_days
from toolgate_service.logs.stats import Counts, EnvironmentKey, TopEntry, counts_over_time, minute_of, top_n
from toolgate_service.organizations.models import Organization

#: Ranges of the waiting time until an approval request was decided: label and exclusive upper bound.
_WAIT_RANGES = (
    ("Under a minute", timedelta(minutes=1)),
    ("1 to 5 minutes", timedelta(minutes=5)),
    ("5 to 15 minutes", timedelta(minutes=15)),
    ("15 minutes to an hour", timedelta(hours=1)),
    ("1 to 4 hours", timedelta(hours=4)),
    ("4 to 24 hours", timedelta(days=1)),
    ("A day and more", timedelta.max),
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """Row in the list of the agents, or of the actions, with the most calls.

    Attributes:
        agent_id: Id of the agent; None for an action or a deleted agent.
        counts: Number of calls by decision.
        shares: Segments of the row's bar. Its length is relative to the first row's bar, which is the longest.
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
    return kept_days(
        page.gateway.plans, one.plan, one.plan_changed_at, one.retention_days_before, now(session)
    )


def _chosen_range(page: PageContext, ranges: Sequence[Range]) -> Range:
    given = page.request.query_params.get("range", DEFAULT_RANGE)
    for one in ranges:
        if one.name == given:
            return one
    names = ", ".join(one.name for one in ranges)
    raise ApiError(400, f"There is no range {given[:40]!r} here; choose one of {names}")


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
    """Return the number of decided approval requests for each range of waiting times, as pairs of label and number."""
    bounds = [timedelta(0), *(until for _, until in _WAIT_RANGES)]
    return [
        (name, sum(low <= one < high for one in found.decided))
        for (name, _), low, high in zip(_WAIT_RANGES, bounds, bounds[1:], strict=False)
    ]


ROUTES: Sequence[Route] = (Route(OVERVIEW, page_handler(show_overview), methods=["GET"]),)
