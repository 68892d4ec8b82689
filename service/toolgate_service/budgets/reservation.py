"""Reservation of the amounts of a call in the totals of all budgets that apply to it.

`plan_reservation` computes what the call would add to each total, and locks the totals. The transaction then either
stores the reservations of all budgets or none of them.

A rolling window has one total. Before it is used, the amounts of reservations that have left the window are subtracted
from it. A check subtracts at most `MAX_SUBTRACTED` reservations, and more only if the call would otherwise exceed the
limit.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy import bindparam
from sqlmodel import col
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.budgets.evaluation import ZERO, CompiledBudget, add, subtract
from toolgate_service.budgets.models import (
    DENY,
    SETTLED,
    UNSETTLED,
    BudgetReservation,
    BudgetTotal,
)
from toolgate_service.budgets.repository import find_total
from toolgate_service.budgets.schemas import BudgetExceeded, measure_text
from toolgate_service.budgets.windows import ROLLING_START, Window
from toolgate_service.context import AuthContext
from toolgate_service.core.ids import new_id
from toolgate_service.core.strict_json import plain_number
from toolgate_service.db.database import now
from toolgate_service.webhooks.events import emit

#: maximum number of reservations that are read at a time to subtract them from the total of a rolling window
MAX_SUBTRACTED = 1_000

_TICK = timedelta(microseconds=1)

_LEFT_WINDOW = (
    sqlalchemy.select(
        col(BudgetReservation.created_at),
        col(BudgetReservation.state),
        col(BudgetReservation.amount),
        col(BudgetReservation.settled_amount),
    )
    .where(
        col(BudgetReservation.total_id) == bindparam("total_id"),
        col(BudgetReservation.created_at) > bindparam("since"),
        col(BudgetReservation.created_at) <= bindparam("until"),
    )
    .order_by(col(BudgetReservation.created_at))
    .limit(MAX_SUBTRACTED)
)


class Call(NamedTuple):
    """Call that counts towards budgets.

    Attributes:
        args: Arguments of the call.
        dry_run: True to decide without changing anything.
    """

    agent_id: str
    action: str
    args: Mapping[str, object]
    run_id: str | None
    dry_run: bool


@dataclass(slots=True)
class Claim:
    """Amount that a call would add to the total of one budget.

    Attributes:
        total: Row of the total, locked unless the check is a dry run; a new row if the database contains no total yet.
        moment: Time of the reservation.
        left: Amount that is left in the budget before this call.
    """

    budget: CompiledBudget
    amount: Decimal
    total: BudgetTotal
    moment: datetime
    left: Decimal

    @property
    def exceeds(self) -> bool:
        """True if the call would exceed the limit."""
        return self.amount > self.left

    @property
    def reason(self) -> str:
        """Message for a call that would exceed the limit. It contains the limit and the amount that is left."""
        budget, unit = self.budget, self.total.currency
        amounts = [plain_number(one) for one in (self.amount, budget.limit, max(self.left, ZERO))]
        needed, limit, left = (f"{amount} {unit}".rstrip() for amount in amounts)
        what = "another call" if budget.argument is None else f"the amount {needed}"
        return (
            f"Budget '{budget.name}' does not cover {what}: {left} of {limit} is left in this "
            f"{_describe_window(budget)}"
        )


def _describe_window(budget: CompiledBudget) -> str:
    window = budget.window
    return f"window of {window.seconds} seconds" if window.is_rolling else window.kind


@dataclass(frozen=True, slots=True)
class Plan:
    """Amounts that a call would add to the totals of budgets, in the order of the budgets' ids."""

    auth: AuthContext
    call: Call
    claims: Sequence[Claim]

    @property
    def denying(self) -> Claim | None:
        """`Claim` on the first budget that the call would exceed and that then denies it; None if there is none."""
        return next((one for one in self.claims if one.exceeds and one.budget.at_limit == DENY), None)

    @property
    def exceeding(self) -> Claim | None:
        """`Claim` on the first budget whose limit the call would exceed; None if all budgets cover the call."""
        return next((one for one in self.claims if one.exceeds), None)

    @property
    def left(self) -> str | None:
        """Smallest of the amounts that would be left in the budgets after this call; None if no budget applies."""
        left = [subtract(one.left, one.amount) for one in self.claims]
        return plain_number(min(left)) if left else None

    def store(self, session: AsyncSession, decision_id: str, approval_id: str | None = None) -> None:
        """Reserve the amounts in all totals, in the transaction that allows the call."""
        for claim in self.claims:
            total = claim.total
            total.reserved = add(total.reserved, claim.amount)
            total.ends_at = claim.budget.window.span(claim.moment).ends_at
            session.add(total)
            session.add(
                BudgetReservation(
                    id=new_id(),
                    organization_id=self.auth.organization_id,
                    environment=self.auth.environment,
                    budget_id=claim.budget.id,
                    total_id=total.id,
                    decision_id=decision_id,
                    agent_id=self.call.agent_id,
                    action=self.call.action,
                    run_id=self.call.run_id,
                    amount=claim.amount,
                    state=UNSETTLED,
                    over_limit=claim.exceeds,
                    approval_id=approval_id,
                    created_at=claim.moment,
                )
            )

    async def announce(self, session: AsyncSession) -> None:
        """Emit the event `budget.exceeded` for each budget that the call exceeds, once per total and window.

        A dry run emits no events.
        """
        if self.call.dry_run:
            return
        for claim in self.claims:
            if not claim.exceeds or _was_announced(claim):
                continue
            claim.total.exceeded_at = claim.moment
            session.add(claim.total)
            view = BudgetExceeded(
                id=claim.budget.id,
                name=claim.budget.name,
                scope=claim.budget.scope,
                subject=claim.total.subject or None,
                currency=claim.total.currency or None,
                measure=measure_text(claim.budget.argument),
                limit=claim.budget.limit,
                left=claim.left,
                amount=claim.amount,
                at_limit=claim.budget.at_limit,
                agent_id=self.call.agent_id,
                action=self.call.action,
            )
            await emit(session, self.auth.organization_id, self.auth.environment, "budget.exceeded", view)


def _was_announced(claim: Claim) -> bool:
    last, window = claim.total.exceeded_at, claim.budget.window
    return last is not None and (not window.is_rolling or last + window.length > claim.moment)


async def plan_reservation(
    session: AsyncSession, auth: AuthContext, call: Call, budgets: Sequence[CompiledBudget]
) -> Plan:
    """Return what a call would add to the totals of budgets, and lock these totals.

    For a rolling window, reservations that have left the window may be subtracted from the total. A dry run computes
    the same amounts, but locks and changes nothing.

    Args:
        session: Session with a write transaction under the organization's lock; for a dry run, with a read transaction.
        auth: Context of the API key.
        call: The call.
        budgets: All budgets that apply to the call, in the order of their ids.

    Raises:
        InvalidAmount: The arguments of the call do not contain a valid amount or currency.
    """
    moment, claims = now(session), []
    measured = [(budget, *budget.measure(call.args)) for budget in budgets]
    for budget, amount, currency in measured:
        span = budget.window.span(moment)
        key: dict[str, Any] = {
            "budget_id": budget.id,
            "subject": budget.subject(call.agent_id, call.run_id),
            "currency": currency,
            "starts_at": span.starts_at,
        }
        total = await find_total(session, lock=not call.dry_run, **key)
        if total is None:
            # No other transaction inserts this row at the same time, because only checks insert totals, and this
            # check holds the organization's lock.
            total = BudgetTotal(
                **key,
                id=new_id(),
                organization_id=auth.organization_id,
                environment=auth.environment,
                ends_at=span.ends_at,
                settled=ZERO,
                reserved=ZERO,
                created_at=moment,
            )
            claims.append(Claim(budget, amount, total, moment, budget.limit))
            continue
        claim = Claim(budget, amount, total, _next_moment(budget, total, moment), ZERO)
        await _compute_left(session, claim, dry_run=call.dry_run)
        claims.append(claim)
    return Plan(auth, call, claims)


def _next_moment(budget: CompiledBudget, total: BudgetTotal, moment: datetime) -> datetime:
    """Return the time of a new reservation.

    In a rolling window, the time is later than that of each earlier reservation, even if the clock was set back. It can
    therefore serve as a position up to which reservations were subtracted.
    """
    if not budget.window.is_rolling:
        return moment
    return max(moment, total.ends_at - budget.window.length + _TICK)


async def _compute_left(session: AsyncSession, claim: Claim, *, dry_run: bool) -> None:
    total, limit = claim.total, claim.budget.limit
    settled, reserved, until = total.settled, total.reserved, total.subtracted_until
    claim.left = subtract(limit, add(settled, reserved))
    if not claim.budget.window.is_rolling:
        return
    edge = claim.moment - claim.budget.window.length
    if total.ends_at <= claim.moment:
        # All reservations have left the window, so there is no need to read them.
        settled, reserved, until = ZERO, ZERO, edge
    else:
        async for gone in _reservations_before(session, total, edge):
            settled, reserved = subtract(settled, gone.settled), subtract(reserved, gone.reserved)
            until = gone.until
            claim.left = subtract(limit, add(settled, reserved))
            if not claim.exceeds:
                break
    claim.left = subtract(limit, add(settled, reserved))
    if not dry_run and until != total.subtracted_until:
        total.settled, total.reserved, total.subtracted_until = settled, reserved, until
        session.add(total)


class _Gone(NamedTuple):
    """Amounts of reservations that have left a rolling window, and the time up to which they were read."""

    settled: Decimal
    reserved: Decimal
    until: datetime


async def _reservations_before(
    session: AsyncSession, total: BudgetTotal, edge: datetime
) -> AsyncIterator[_Gone]:
    """Yield the amounts that reservations up to the time `edge` still add to the total, one sum per batch."""
    connection, since = await session.connection(), total.subtracted_until or ROLLING_START
    while True:
        values = {"total_id": total.id, "since": since, "until": edge}
        rows = (await connection.execute(_LEFT_WINDOW, values)).all()
        if not rows:
            return
        settled = reserved = ZERO
        for row in rows:
            if row.state == SETTLED:
                settled = add(settled, row.settled_amount)
            elif row.state == UNSETTLED:
                reserved = add(reserved, row.amount)
        since = rows[-1].created_at
        yield _Gone(settled, reserved, since)
        if len(rows) < MAX_SUBTRACTED:
            return


async def current_amounts(
    session: AsyncSession, total: BudgetTotal, window: Window, moment: datetime
) -> tuple[Decimal, Decimal]:
    """Return the settled and the unsettled amount of a total at the time `moment`, without changing the row."""
    settled, reserved = total.settled, total.reserved
    if window.is_rolling:
        async for gone in _reservations_before(session, total, moment - window.length):
            settled, reserved = subtract(settled, gone.settled), subtract(reserved, gone.reserved)
    return settled, reserved


async def smallest_left(
    session: AsyncSession, reservations: Sequence[BudgetReservation], budgets: Sequence[CompiledBudget]
) -> str | None:
    """Return the smallest of the amounts that are now left in the budgets of the reservations.

    The result is None if `budgets` contains none of these budgets.
    """
    by_id = {budget.id: budget for budget in budgets}
    left = []
    for one in reservations:
        budget, total = by_id.get(one.budget_id), await session.get(BudgetTotal, one.total_id)
        if budget is not None and total is not None:
            settled, reserved = await current_amounts(session, total, budget.window, now(session))
            left.append(subtract(budget.limit, add(settled, reserved)))
    return plain_number(min(left)) if left else None
