"""How much of its plan an organization uses (spec §2, decisions §7). The test environment counts nowhere."""

from collections.abc import Iterator

from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.billing.schemas import (
    CountsView,
    ShareView,
    UsageView,
    UsageWarningView,
    WarningView,
)
from toolgate_service.organizations.models import MonthlyUsage
from toolgate_service.plans import FULL, UNLIMITED, WARN_AT, Plan, crosses
from toolgate_service.storage.base import PRODUCTION
from toolgate_service.storage.database import now


async def count_usage(session: AsyncSession, organization_id: str) -> CountsView:
    """Count production agents, inactive ones included, and this UTC month's production log entries."""
    agents = select(func.count()).where(
        Agent.organization_id == organization_id,
        Agent.environment == PRODUCTION,
        col(Agent.deleted_at).is_(None),
    )
    entries = select(MonthlyUsage.log_entries).where(
        MonthlyUsage.organization_id == organization_id,
        MonthlyUsage.environment == PRODUCTION,
        MonthlyUsage.month == now(session).strftime("%Y-%m"),
    )
    return CountsView(
        agents_count=(await session.exec(agents)).one(),
        logs_this_month=(await session.exec(entries)).first() or 0,
    )


def usage_view(plan: Plan, counts: CountsView) -> UsageView:
    """Return how much of a plan is used, with a warning for each limit that is near or reached."""
    agents = share(counts.agents_count, plan.max_agents)
    logs = share(counts.logs_this_month, plan.max_logs_per_month)
    return UsageView(
        agents=agents,
        logs=logs,
        warnings=[*_warnings("agents", plan.name, agents), *_warnings("logs", plan.name, logs)],
        plan=plan.name,
    )


def share(current: int, limit: int) -> ShareView:
    """Return how much of a limit is used: of none 0 percent, of a limit of zero always 100."""
    if limit == UNLIMITED:
        percentage = 0.0
    elif limit == 0:
        percentage = float(FULL)
    else:
        # Whole numbers until the end: what is not full is never shown as 100.
        percentage = current * 10_000 // limit / 100
    return ShareView(current=current, limit=limit, percentage=percentage)


def warning_at(kind: str, plan: str, count: int, limit: int) -> UsageWarningView | None:
    """Return the warning that a new thing sets off; None when it is not the one that reaches a threshold.

    Args:
        kind: ``agents`` or ``logs``.
        plan: the plan's name.
        count: how many there are, the new one included.
        limit: how many there may be.
    """
    if crosses(count, limit) is None:
        return None
    used = share(count, limit)
    (warning,) = _warnings(kind, plan, used)
    return UsageWarningView(**warning.model_dump(), **used.model_dump(), plan=plan)


def _warnings(kind: str, plan: str, used: ShareView) -> Iterator[WarningView]:
    if used.percentage >= FULL:
        severity, how = "critical", "is reached"
    elif used.percentage >= WARN_AT:
        severity, how = "warning", "is near"
    else:
        return
    message = f"The {plan} plan's limit of {kind} {how}: {used.current}/{used.limit} used"
    yield WarningView(type=kind, message=message, severity=severity)
