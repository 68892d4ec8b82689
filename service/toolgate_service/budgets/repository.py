"""Database queries for budgets, and the cache of the budgets of each environment."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import sqlalchemy
from sqlalchemy import bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.budgets.evaluation import NO_BUDGETS, BudgetSet, CompiledBudget, measured_argument
from toolgate_service.budgets.models import Budget, BudgetReservation, BudgetTotal
from toolgate_service.budgets.windows import parse_window
from toolgate_service.context import AuthContext
from toolgate_service.db.database import Database
from toolgate_service.organizations.epoch_cache import EpochCache, Tenant

#: columns of a budget that `_compile_budget` receives, in the order of its parameters
_COLUMNS = [
    "id",
    "name",
    "scope",
    "agents",
    "actions",
    "measure",
    "currency_arg",
    "period",
    "maximum",
    "at_limit",
]
_ENABLED = sqlalchemy.select(*(col(getattr(Budget, name)) for name in _COLUMNS)).where(
    col(Budget.organization_id) == bindparam("organization_id"),
    col(Budget.environment) == bindparam("environment"),
    col(Budget.enabled).is_(True),
)

_TOTAL = select(BudgetTotal).where(
    col(BudgetTotal.budget_id) == bindparam("budget_id"),
    col(BudgetTotal.subject) == bindparam("subject"),
    col(BudgetTotal.currency) == bindparam("currency"),
    col(BudgetTotal.starts_at) == bindparam("starts_at"),
)
# Lock the row of the total: the log writer changes it too, without holding the organization's lock.
_TOTAL_LOCKED = _TOTAL.with_for_update()

_OF_DECISION = select(BudgetReservation).where(
    col(BudgetReservation.decision_id) == bindparam("decision_id"),
    col(BudgetReservation.organization_id) == bindparam("organization_id"),
    col(BudgetReservation.environment) == bindparam("environment"),
)


class BudgetCache(EpochCache[BudgetSet]):
    """Cache of the enabled budgets of each environment. It does not contain totals."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, NO_BUDGETS)

    def has_data(self, auth: AuthContext) -> bool:
        """Return whether the environment has enabled budgets."""
        return bool(auth.has_budgets)

    async def read(self, session: AsyncSession, tenant: Tenant, values: dict[str, str]) -> BudgetSet:  # noqa: ARG002 - parameter of the base class
        """Read the budgets of an environment."""
        rows = (await (await session.connection()).execute(_ENABLED, values)).all()
        return BudgetSet(_compile_budget(*row) for row in rows)


def _compile_budget(
    budget_id: str,
    name: str,
    scope: str,
    agents: str | None,
    actions: str,
    measure: str,
    currency_arg: str | None,
    period: str,
    maximum: Decimal,
    at_limit: str,
) -> CompiledBudget:
    return CompiledBudget(
        budget_id,
        name,
        scope,
        None if agents is None else frozenset(json.loads(agents)),
        tuple(json.loads(actions)),
        measured_argument(measure),
        currency_arg,
        parse_window(period),
        maximum,
        at_limit,
    )


async def find_total(session: AsyncSession, *, lock: bool, **key: Any) -> BudgetTotal | None:
    """Return the total with the key `budget_id`, `subject`, `currency` and `starts_at`; None if there is none.

    With `lock`, no other transaction can change the row until the end of the session's transaction.
    """
    return (await session.exec(_TOTAL_LOCKED if lock else _TOTAL, params=key)).first()


async def find_reservations(
    session: AsyncSession, auth: AuthContext, decision_id: str
) -> Sequence[BudgetReservation]:
    """Return the reservations of a decision."""
    values = {
        "decision_id": decision_id,
        "organization_id": auth.organization_id,
        "environment": auth.environment,
    }
    return (await session.exec(_OF_DECISION, params=values)).all()
