"""Operations on budgets: list, create, change and delete budgets; list and prune their totals and reservations.

A change applies from the next check on, on every gateway, because it increases the version number (epoch) of the
environment.
"""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import bindparam
from sqlmodel import col, exists, func, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller, transaction_as
from toolgate_service.audit import service as audit
from toolgate_service.budgets.evaluation import add, subtract
from toolgate_service.budgets.models import UNSETTLED, Budget, BudgetReservation, BudgetTotal
from toolgate_service.budgets.reservation import current_amounts
from toolgate_service.budgets.schemas import (
    AtLimit,
    BudgetChange,
    BudgetUsage,
    BudgetView,
    NewBudget,
    ReservationView,
    Scope,
    State,
)
from toolgate_service.budgets.windows import parse_window
from toolgate_service.context import AppContext
from toolgate_service.core.errors import ApiError, StorageError, not_found
from toolgate_service.core.ids import is_id, new_id
from toolgate_service.db.database import Database, now
from toolgate_service.db.pagination import Found, Page, find_page
from toolgate_service.jobs.batches import delete_where
from toolgate_service.rules.evaluation import WILDCARD
from toolgate_service.rules.references import resolve_agents
from toolgate_service.webhooks.events import emit

#: maximum number of budgets in one environment
MAX_BUDGETS = 200
#: time for which the total of a window is kept after the end of the window, so that late log entries can still change
#: the total
_TOTALS_KEPT = timedelta(days=32)
#: time for which settled and released reservations are kept: longer than the longest window (31 days) and
#: `_TOTALS_KEPT` together
_RESERVATIONS_KEPT = timedelta(days=64)
#: time for which unsettled reservations are kept and listed
_UNSETTLED_KEPT = timedelta(days=366)

_IN_ENVIRONMENT = (
    col(Budget.organization_id) == bindparam("organization_id"),
    col(Budget.environment) == bindparam("environment"),
)
_ONE = select(Budget).where(col(Budget.id) == bindparam("id"), *_IN_ENVIRONMENT)
_SAME_NAME = select(Budget.id).where(*_IN_ENVIRONMENT, col(Budget.name) == bindparam("name"))
_COUNT = select(func.count()).select_from(Budget).where(*_IN_ENVIRONMENT)


async def list_budgets(session: AsyncSession, caller: Caller, environment: str, page: Page) -> Found[Budget]:
    """Return the budgets of an environment of the organization, newest first."""
    query = select(Budget).where(
        Budget.organization_id == caller.organization_id, Budget.environment == environment
    )
    return await find_page(session, query, Budget, page)


async def get_budget(session: AsyncSession, caller: Caller, environment: str, budget_id: str) -> Budget:
    """Return the budget with this id.

    Raises:
        ApiError: 404 if the environment of the caller's organization has no budget with this id.
    """
    budget = (await session.exec(_ONE, params=_values(caller, environment, id=budget_id))).first()
    if budget is None:
        raise not_found("Budget")
    return budget


async def create_budget(context: AppContext, caller: Caller, environment: str, new: NewBudget) -> BudgetView:
    """Create a budget.

    Raises:
        FieldErrors: 400 if an agent does not exist.
        ApiError: 409 if another budget has this name; 403 if the environment has `MAX_BUDGETS` budgets.
    """
    async with transaction_as(context, caller) as session:
        return await add_budget(session, caller, environment, new)


async def add_budget(session: AsyncSession, caller: Caller, environment: str, new: NewBudget) -> BudgetView:
    """Create a budget as `create_budget` does, but in the caller's open transaction."""
    if (await session.exec(_COUNT, params=_values(caller, environment))).one() >= MAX_BUDGETS:
        raise ApiError(
            403,
            f"An environment can have at most {MAX_BUDGETS} budgets; delete budgets that are not needed",
        )
    budget = Budget(
        id=new_id(),
        organization_id=caller.organization_id,
        environment=environment,
        name="",
        scope=new.scope,
        actions="",
        measure=new.measure,
        currency_arg=new.currency_arg,
        period=new.window,
        maximum=new.limit,
        at_limit=new.at_limit,
        created_by=caller.user_id,
        created_at=now(session),
    )
    await _apply(session, caller, budget, new)
    return await _record(session, caller, "budget.created", budget)


async def change_budget(
    context: AppContext, caller: Caller, environment: str, budget_id: str, change: BudgetChange
) -> BudgetView:
    """Change those fields of a budget that the request contains. The totals of the budget stay unchanged.

    Raises:
        FieldErrors: 400 if an agent does not exist.
        ApiError: 404 if the budget does not exist; 409 if another budget has the new name.
    """
    async with transaction_as(context, caller) as session:
        budget = await get_budget(session, caller, environment, budget_id)
        return await update_budget(session, caller, budget, change)


async def update_budget(
    session: AsyncSession, caller: Caller, budget: Budget, change: BudgetChange
) -> BudgetView:
    """Change a budget as `change_budget` does, but in the caller's open transaction."""
    await _apply(session, caller, budget, change)
    budget.updated_at = now(session)
    return await _record(session, caller, "budget.updated", budget)


async def delete_budget(context: AppContext, caller: Caller, environment: str, budget_id: str) -> None:
    """Delete a budget. The maintenance job later deletes its totals and reservations.

    Raises:
        ApiError: 404 if the budget does not exist.
    """
    async with transaction_as(context, caller) as session:
        await remove_budget(session, caller, await get_budget(session, caller, environment, budget_id))


async def remove_budget(session: AsyncSession, caller: Caller, budget: Budget) -> None:
    """Delete a budget as `delete_budget` does, but in the caller's open transaction."""
    await _record(session, caller, "budget.deleted", budget)
    await session.delete(budget)
    await session.flush()


async def list_usage(
    session: AsyncSession, caller: Caller, environment: str, budget_id: str, page: Page
) -> tuple[Sequence[BudgetUsage], Found[BudgetTotal]]:
    """Return the totals of a budget in its current window, and the page of database rows from which they were read.

    Raises:
        ApiError: 404 if the budget does not exist.
    """
    budget = await get_budget(session, caller, environment, budget_id)
    moment = now(session)
    query = select(BudgetTotal).where(BudgetTotal.budget_id == budget.id, BudgetTotal.ends_at > moment)
    found = await find_page(session, query, BudgetTotal, page)
    return [await _usage(session, budget, total, moment) for total in found.rows], found


async def _usage(session: AsyncSession, budget: Budget, total: BudgetTotal, moment: datetime) -> BudgetUsage:
    window = parse_window(budget.period)
    settled, reserved = await current_amounts(session, total, window, moment)
    return BudgetUsage(
        subject=total.subject or None,
        currency=total.currency or None,
        limit=budget.maximum,
        used=settled,
        reserved=reserved,
        left=subtract(budget.maximum, add(settled, reserved)),
        window_start=moment - window.length if window.is_rolling else total.starts_at,
        window_end=moment if window.is_rolling else total.ends_at,
    )


async def list_reservations(
    session: AsyncSession,
    caller: Caller,
    environment: str,
    page: Page,
    *,
    state: str | None,
    budget_id: str | None,
) -> tuple[Sequence[ReservationView], Found[BudgetReservation]]:
    """Return the reservations for the budgets of an environment, newest first, and the page of their database rows.

    Reservations for deleted budgets are omitted.
    """
    if budget_id is not None and not is_id(budget_id):
        return [], Found([], 0, None)
    query = select(BudgetReservation).where(
        BudgetReservation.organization_id == caller.organization_id,
        BudgetReservation.environment == environment,
        col(BudgetReservation.budget_id).in_(
            select(Budget.id).where(
                Budget.organization_id == caller.organization_id, Budget.environment == environment
            )
        ),
    )
    if state is not None:
        query = query.where(BudgetReservation.state == state)
    if budget_id is not None:
        query = query.where(BudgetReservation.budget_id == budget_id)
    found = await find_page(session, query, BudgetReservation, page)
    return await _serialize_reservations(session, found.rows), found


async def _serialize_reservations(
    session: AsyncSession, rows: Sequence[BudgetReservation]
) -> Sequence[ReservationView]:
    if not rows:
        return []
    budgets = select(Budget.id, Budget.name).where(col(Budget.id).in_({row.budget_id for row in rows}))
    names = dict((await session.exec(budgets)).all())
    totals = select(BudgetTotal).where(col(BudgetTotal.id).in_({row.total_id for row in rows}))
    found = {total.id: total for total in (await session.exec(totals)).all()}
    moment = now(session)
    return [_reservation(row, names[row.budget_id], found.get(row.total_id), moment) for row in rows]


def _reservation(
    row: BudgetReservation, name: str, total: BudgetTotal | None, moment: datetime
) -> ReservationView:
    state: State = row.state  # type: ignore[assignment]  # a check constraint allows only these values
    return ReservationView(
        id=row.id,
        budget_id=row.budget_id,
        budget_name=name,
        decision_id=row.decision_id,
        agent_id=row.agent_id,
        action=row.action,
        run_id=row.run_id,
        subject=(total.subject or None) if total else None,
        currency=(total.currency or None) if total else None,
        amount=row.amount,
        settled_amount=row.settled_amount,
        state=state,
        over_limit=row.over_limit,
        approval_id=row.approval_id,
        created_at=row.created_at,
        settled_at=row.settled_at,
        age_seconds=max(0, (moment - row.created_at) // timedelta(seconds=1)),
    )


async def refuse_unknown_zones(database: Database) -> None:
    """Verify that the time zone database of this machine contains the time zones of all budgets.

    Raises:
        StorageError: The time zone database does not contain the time zone of a budget.
    """
    async with database.reading() as session:
        periods = (await session.exec(select(Budget.period).distinct())).all()
    for period in periods:
        try:
            parse_window(period)
        except ValueError:
            raise StorageError(
                f"The time zone of the budget window {period!r} is not in the time zone database of this machine: "
                "install the package tzdata, then start the gateway again"
            ) from None


def serialize_budget(budget: Budget) -> BudgetView:
    """Return the response body for a budget."""
    scope: Scope = budget.scope  # type: ignore[assignment]  # a check constraint allows only these values
    at_limit: AtLimit = budget.at_limit  # type: ignore[assignment]  # as above
    return BudgetView(
        id=budget.id,
        name=budget.name,
        scope=scope,
        agents=[WILDCARD] if budget.agents is None else json.loads(budget.agents),
        actions=json.loads(budget.actions),
        measure=budget.measure,
        currency_arg=budget.currency_arg,
        window=budget.period,
        limit=budget.maximum,
        at_limit=at_limit,
        enabled=budget.enabled,
        created_by=budget.created_by,
        created_at=budget.created_at,
        updated_at=budget.updated_at,
    )


async def _apply(
    session: AsyncSession, caller: Caller, budget: Budget, body: NewBudget | BudgetChange
) -> None:
    """Set the changeable fields of a budget that a request body contains, and store the budget."""
    given = body.model_dump(exclude_unset=isinstance(body, BudgetChange))
    if "name" in given and given["name"] != budget.name:
        params = _values(caller, budget.environment, name=given["name"])
        if (await session.exec(_SAME_NAME, params=params)).first() is not None:
            raise ApiError(409, f"A budget with the name {given['name']!r} already exists; use another name")
    for name in ("name", "at_limit", "enabled"):
        if name in given:
            setattr(budget, name, given[name])
    if "agents" in given:
        budget.agents = await resolve_agents(
            session, budget.organization_id, budget.environment, given["agents"], budget.agents
        )
    if "actions" in given:
        budget.actions = json.dumps(list(dict.fromkeys(given["actions"])))
    if "limit" in given:
        budget.maximum = given["limit"]
    session.add(budget)
    await session.flush()


async def _record(session: AsyncSession, caller: Caller, kind: str, budget: Budget) -> BudgetView:
    view = serialize_budget(budget)
    changes = view.model_dump(exclude={"id", "created_by", "created_at", "updated_at"})
    audit.record(session, caller, kind, budget.id, environment=budget.environment, changes=changes)
    await emit(session, budget.organization_id, budget.environment, kind, view)
    return view


def _values(caller: Caller, environment: str, **more: str) -> dict[str, str]:
    return {"organization_id": caller.organization_id, "environment": environment, **more}


async def prune_budgets(database: Database, batch: int, moment: datetime) -> Counter[str]:
    """Delete old totals and reservations, and return the number of deleted rows by table name.

    Each transaction deletes at most `batch` rows.
    """
    reservations, state = col(BudgetReservation.created_at), col(BudgetReservation.state)
    # Keep reservations that the total of a rolling window still includes, because the gateway subtracts each one when
    # it leaves the window.
    is_in_total = exists().where(
        col(BudgetTotal.id) == col(BudgetReservation.total_id),
        or_(col(BudgetTotal.subtracted_until).is_(None), col(BudgetTotal.subtracted_until) < reservations),
    )
    counts: Counter[str] = Counter()
    counts["budget_totals"] = await delete_where(
        database, batch, BudgetTotal, col(BudgetTotal.ends_at) < moment - _TOTALS_KEPT
    )
    counts["budget_reservations"] = await delete_where(
        database,
        batch,
        BudgetReservation,
        reservations < moment - _RESERVATIONS_KEPT,
        or_(state != UNSETTLED, reservations < moment - _UNSETTLED_KEPT),
        ~is_in_total,
    )
    return counts
