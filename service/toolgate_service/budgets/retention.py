"""Retention of the totals and reservations of budgets whose windows have ended."""

from collections import Counter
from datetime import datetime, timedelta

from sqlmodel import col, exists, or_

from toolgate_service.budgets.models import UNSETTLED, BudgetReservation, BudgetTotal
from toolgate_service.db.database import Database
from toolgate_service.jobs.batches import delete_where

#: time after the end of a window for which its total is kept, so that late log entries still settle reservations
TOTALS = timedelta(days=32)
#: time for which settled and released reservations are kept: longer than the longest window (31 days) and `TOTALS`
#: together
RESERVATIONS = timedelta(days=64)
#: time for which unsettled reservations are kept and listed
UNSETTLED_RESERVATIONS = timedelta(days=366)


async def prune_budgets(database: Database, batch: int, moment: datetime) -> Counter[str]:
    """Delete old totals and reservations, and return the number of deleted rows by table name."""
    reservations, state = col(BudgetReservation.created_at), col(BudgetReservation.state)
    # Keep reservations that the total of a rolling window still includes, because the gateway subtracts each one when
    # it leaves the window.
    is_in_total = exists().where(
        col(BudgetTotal.id) == col(BudgetReservation.total_id),
        or_(col(BudgetTotal.subtracted_until).is_(None), col(BudgetTotal.subtracted_until) < reservations),
    )
    counts: Counter[str] = Counter()
    counts["budget_totals"] = await delete_where(
        database, batch, BudgetTotal, col(BudgetTotal.ends_at) < moment - TOTALS
    )
    counts["budget_reservations"] = await delete_where(
        database,
        batch,
        BudgetReservation,
        reservations < moment - RESERVATIONS,
        or_(state != UNSETTLED, reservations < moment - UNSETTLED_RESERVATIONS),
        ~is_in_total,
    )
    return counts
