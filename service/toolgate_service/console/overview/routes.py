"""The page that shows what happened lately."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.responses import Response
from starlette.routing import Route

from toolgate_service.agents.models import Agent
from toolgate_service.approvals.waits import AT_MOST, Waits, waits
from toolgate_service.billing import service as billing
from toolgate_service.billing.schemas import UsageView
from toolgate_service.clock import wire
from toolgate_service.console.entrance import OVERVIEW
from toolgate_service.console.overview.chart import Chart, chart_of
from toolgate_service.console.overview.ranges import USUAL, Range, moment_of, ranges_of
from toolgate_service.console.overview.spans import Share, shares_of, span
from toolgate_service.console.rendering import show
from toolgate_service.console.settings.plan import Meter
from toolgate_service.console.visits import Visit, page
from toolgate_service.counts.adding import minute_of
from toolgate_service.counts.models import ACTION, AGENT, DAY, HOUR
from toolgate_service.counts.most import Most, most
from toolgate_service.counts.reading import Counts, Whose, over_time
from toolgate_service.errors import ApiError
from toolgate_service.organizations.models import Organization
from toolgate_service.plans import UNLIMITED
from toolgate_service.storage.database import now
from toolgate_service.upkeep.retention import TEST_DAYS, kept_days


@dataclass(frozen=True, slots=True)
class Named:
    """An agent or an action among those that did most.

    Attributes:
        name: to be shown.
        agent_id: the agent's, if it is one that is still there.
        counts: what it did.
        shares: what of the first one's bar is whose, for drawing.
    """

    name: str
    agent_id: str | None
    counts: Counts
    shares: Sequence[Share]


@dataclass(frozen=True, slots=True)
class Overview:
    """What the page shows of a range."""

    chart: Chart
    agents: Sequence[Named]
    actions: Sequence[Named]
    waits: Waits
    usage: UsageView | None


async def overview(visit: Visit) -> Response:
    """Show what happened within a range."""
    async with visit.gateway.database.reading() as session:
        ranges = ranges_of(await _kept_days(session, visit))
        wanted = _wanted(visit, ranges)
        moment = now(session)
        since = wanted.since(moment)
        listed_since = since - since % (HOUR if wanted.by_the_minute else DAY)
        found = await _read(session, visit, wanted, since, listed_since, minute_of(moment))
    return await show(
        visit,
        "overview.html",
        ranges=ranges,
        wanted=wanted,
        since=moment_of(since),
        listed_since=moment_of(listed_since),
        ends=moment_of(since + wanted.bars * wanted.width),
        from_then=wire(moment_of(listed_since)),
        chart=found.chart,
        agents=found.agents,
        actions=found.actions,
        waits=found.waits,
        steps=_steps(found.waits),
        at_most=AT_MOST,
        span=span,
        number="{:,}".format,
        usage=found.usage,
        unlimited=UNLIMITED,
        meters=[] if found.usage is None else _meters(found.usage),
    )


async def _read(
    session: AsyncSession, visit: Visit, wanted: Range, since: int, listed_since: int, until: int
) -> Overview:
    whose = Whose(visit.caller.organization_id, visit.environment)
    by_the_hour = wanted.by_the_minute
    counted = await over_time(session, whose, since, wanted.width, wanted.bars)
    agents = await most(session, whose, AGENT, listed_since, until, by_the_hour=by_the_hour)
    actions = await most(session, whose, ACTION, listed_since, until, by_the_hour=by_the_hour)
    names = await _names(session, whose, [one.name for one in agents])
    usage = None
    if not visit.is_test:
        usage = await billing.usage(session, visit.gateway.plans, whose.organization_id)
    return Overview(
        chart_of(wanted, since, counted),
        _named(agents, names),
        _named(actions, {}),
        await waits(session, *whose, moment_of(since)),
        usage,
    )


async def _kept_days(session: AsyncSession, visit: Visit) -> int:
    if visit.is_test:
        return TEST_DAYS
    query = select(Organization).where(Organization.id == visit.caller.organization_id)
    one = (await session.exec(query)).one()
    return kept_days(
        visit.gateway.plans, one.plan, one.plan_changed_at, one.retention_days_before, now(session)
    )


def _wanted(visit: Visit, ranges: Sequence[Range]) -> Range:
    given = visit.request.query_params.get("range", USUAL)
    for one in ranges:
        if one.name == given:
            return one
    names = ", ".join(one.name for one in ranges)
    raise ApiError(400, f"There is no range {given[:40]!r} here; choose one of {names}")


async def _names(
    session: AsyncSession, whose: Whose, ids: Sequence[str]
) -> Mapping[str, tuple[str, str | None]]:
    query = select(Agent.id, Agent.name, col(Agent.deleted_at)).where(
        Agent.organization_id == whose.organization_id,
        Agent.environment == whose.environment,
        col(Agent.id).in_(ids),
    )
    return {
        agent_id: (name, agent_id if deleted_at is None else None)
        for agent_id, name, deleted_at in (await session.exec(query)).all()
    }


def _named(found: Sequence[Most], names: Mapping[str, tuple[str, str | None]]) -> Sequence[Named]:
    return [
        Named(
            *names.get(one.name, (one.name, None)), one.counts, shares_of(one.counts, found[0].counts.total)
        )
        for one in found
    ]


def _meters(usage: UsageView) -> Sequence[Meter]:
    return (Meter("Agents", usage.agents), Meter("Log entries", usage.logs, "this month"))


#: how the waits are told apart
_STEPS = (
    ("Under a minute", timedelta(minutes=1)),
    ("1 to 5 minutes", timedelta(minutes=5)),
    ("5 to 15 minutes", timedelta(minutes=15)),
    ("15 minutes to an hour", timedelta(hours=1)),
    ("1 to 4 hours", timedelta(hours=4)),
    ("4 to 24 hours", timedelta(days=1)),
    ("A day and more", timedelta.max),
)


def _steps(found: Waits) -> Sequence[tuple[str, int]]:
    """Return how many requests waited for how long."""
    bounds = [timedelta(0), *(until for _, until in _STEPS)]
    return [
        (name, sum(low <= one < high for one in found.decided))
        for (name, _), low, high in zip(_STEPS, bounds, bounds[1:], strict=False)
    ]


ROUTES: Sequence[Route] = (Route(OVERVIEW, page(overview), methods=["GET"]),)
