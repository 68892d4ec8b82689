"""Settlement of reservations by log entries, in the transaction of the entries.

The status of a call's last log entry determines the state of the reservations that the check of the call made:
`success` settles them with the amount in the context of the entry, `failed` and `denied` release them. A later entry
overrides an earlier one: for example, `success` settles a reservation that `failed` has released. Entries with the
status `pending`, and entries that repeat an idempotency key, change nothing.

The log stores for SQLite and PostgreSQL read the rows, call `settle_reservations`, and write its result. This module
uses no I/O and compares times only with each other, so it accepts the time types of both database drivers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

from toolgate_service.budgets.evaluation import (
    COUNT,
    ZERO,
    InvalidAmount,
    add,
    measured_argument,
    read_amount,
    read_currency,
    subtract,
)
from toolgate_service.budgets.models import RELEASED, SETTLED, UNSETTLED
from toolgate_service.core import strict_json
from toolgate_service.core.ids import is_id
from toolgate_service.organizations.epoch_cache import Tenant

#: state of a reservation after a log entry, by the status of the entry; entries with other statuses do not change the
#: state
_STATES = {"success": SETTLED, "failed": RELEASED, "denied": RELEASED}


class SettlingEntry(NamedTuple):
    """Fields of a log entry that are needed to settle reservations.

    Attributes:
        context: Context of the entry as canonical JSON, or None.
    """

    tenant: Tenant
    decision_id: str
    agent_id: str
    action: str
    status: str
    context: str | None


class ReservationRow(NamedTuple):
    """Column values of a reservation and of its budget, in the order of `RESERVATION_COLUMNS`.

    Attributes:
        amount: Amount computed from the arguments in the check, as stored text.
        settled_amount: Amount computed from the arguments in the log entry, as stored text; None if the reservation is
            not settled.
        created_at: Time of the check, in the type of the database driver.
        measure: Measure of the budget; None if the budget was deleted.
    """

    id: str
    organization_id: str
    environment: str
    budget_id: str
    total_id: str
    decision_id: str
    agent_id: str
    action: str
    state: str
    amount: str
    settled_amount: str | None
    created_at: Any
    measure: str | None
    currency_arg: str | None


#: SQL expressions of the columns of `ReservationRow`, for the aliases `r` of the reservation and `b` of the budget
RESERVATION_COLUMNS = """
r.id, r.organization_id, r.environment, r.budget_id, r.total_id, r.decision_id, r.agent_id, r.action, r.state, r.amount,
r.settled_amount, r.created_at, b.measure, b.currency_arg
"""


class TotalRow(NamedTuple):
    """Column values of a total, in the order of `TOTAL_COLUMNS`.

    Attributes:
        subtracted_until: Time up to which reservations have left a rolling window and were subtracted from the total,
            in the type of the database driver; None if none were subtracted.
        settled: Sum of the settled amounts, as stored text.
        reserved: Sum of the unsettled amounts, as stored text.
    """

    id: str
    currency: str
    subtracted_until: Any
    settled: str
    reserved: str


TOTAL_COLUMNS = ", ".join(TotalRow._fields)


@dataclass(frozen=True, slots=True)
class Settlement:
    """Database updates of a settlement: the new column values of reservations and totals.

    Attributes:
        reservations: State, settled amount and id of each changed reservation.
        totals: Settled amount, reserved amount and id of each changed total.
    """

    reservations: Sequence[tuple[str, str | None, str]]
    totals: Sequence[tuple[str, str, str]]


def settles(decision_id: str, status: str) -> bool:
    """Return whether a log entry with this decision id and status can settle reservations."""
    return status in _STATES and is_id(decision_id)


@dataclass(slots=True)
class _Reservation:
    row: ReservationRow
    state: str
    settled: Decimal

    def counted(self) -> tuple[Decimal, Decimal]:
        """Return the settled and the unsettled amount that the reservation adds to its total."""
        return self.settled, Decimal(self.row.amount) if self.state == UNSETTLED else ZERO


def settle_reservations(
    entries: Iterable[SettlingEntry], reservations: Iterable[ReservationRow], totals: Iterable[TotalRow]
) -> Settlement:
    """Compute how log entries change reservations and totals.

    The entries must be in the order in which they are stored.

    An entry changes only the reservations of its own agent and action, so that an agent cannot release the reservations
    of another agent. A changed reservation does not change its total if the total was deleted, or if the reservation
    has left the rolling window.
    """
    by_id = {row.id: row for row in totals}
    by_decision: dict[tuple[Tenant, str], list[_Reservation]] = {}
    for row in reservations:
        one = _Reservation(row, row.state, Decimal(row.settled_amount or 0))
        by_decision.setdefault(((row.organization_id, row.environment), row.decision_id), []).append(one)
    before = {id(one): one.counted() for found in by_decision.values() for one in found}
    # Only the last entry of a call determines the result, so the contexts of earlier entries are not parsed.
    last = {(entry.tenant, entry.decision_id, entry.agent_id, entry.action): entry for entry in entries}
    for entry in last.values():
        context = _Context(entry.context)
        for one in by_decision.get((entry.tenant, entry.decision_id), ()):
            if (one.row.agent_id, one.row.action) == (entry.agent_id, entry.action):
                _apply(one, entry.status, context, by_id.get(one.row.total_id))
    changed = [
        one
        for found in by_decision.values()
        for one in found
        if one.counted() != before[id(one)] or one.state != one.row.state
    ]
    sums = {row.id: (Decimal(row.settled), Decimal(row.reserved)) for row in by_id.values()}
    touched: dict[str, None] = {}
    for one in changed:
        total = by_id.get(one.row.total_id)
        if total is None or _has_left_window(one.row, total):
            continue
        old, new, amounts = before[id(one)], one.counted(), sums[total.id]
        settled, reserved = (add(amounts[i], subtract(new[i], old[i])) for i in range(2))
        sums[total.id] = (settled, reserved)
        touched[total.id] = None
    return Settlement(
        [(one.state, str(one.settled) if one.state == SETTLED else None, one.row.id) for one in changed],
        [(str(sums[total][0]), str(sums[total][1]), total) for total in touched],
    )


class _Context:
    """Context of a log entry, which is parsed at most once, and only if an amount is read from it."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    @cached_property
    def args(self) -> object:
        return None if self._text is None else strict_json.loads_own(self._text)


def _apply(one: _Reservation, status: str, context: _Context, total: TotalRow | None) -> None:
    one.state = _STATES[status]
    one.settled = ZERO if one.state == RELEASED else _real_amount(one.row, context, total)


def _real_amount(row: ReservationRow, context: _Context, total: TotalRow | None) -> Decimal:
    """Return the amount in the context of a log entry.

    The result is the reserved amount if the context contains no valid amount or another currency, or if the budget was
    deleted.
    """
    reserved = Decimal(row.amount)
    if row.measure is None or (row.measure == COUNT and row.currency_arg is None):
        return reserved
    args = context.args
    if not isinstance(args, Mapping):
        return reserved
    try:
        if total is not None and read_currency(row.currency_arg, args) != total.currency:
            return reserved
        return read_amount(measured_argument(row.measure or ""), args)
    except InvalidAmount:
        # For example, the SDK has redacted the argument, or the entry contains only part of the context.
        return reserved


def _has_left_window(row: ReservationRow, total: TotalRow) -> bool:
    return total.subtracted_until is not None and row.created_at <= total.subtracted_until
