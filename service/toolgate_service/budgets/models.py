"""Database tables of budgets, of their totals, and of the amounts that calls have reserved."""

from datetime import datetime
from decimal import Decimal

from sqlalchemy import Index, Text, UniqueConstraint
from sqlmodel import Field

from toolgate_service.db.models import ExactDecimal, Id, Table, Timestamp, in_environment, of_user, one_of

ORGANIZATION = "organization"
AGENT = "agent"
RUN = "run"
#: scopes of a budget: one total for the environment of the organization, for each agent, or for each agent run
SCOPES = (ORGANIZATION, AGENT, RUN)

DENY = "deny"
REQUIRE_APPROVAL = "require_approval"
#: effects on a call that would exceed the limit
AT_LIMIT = (DENY, REQUIRE_APPROVAL)

UNSETTLED = "unsettled"
SETTLED = "settled"
RELEASED = "released"
#: states of a reservation: the outcome of the call is unknown, the call succeeded, or the call failed or did not run
STATES = (UNSETTLED, SETTLED, RELEASED)


class Budget(Table, table=True):
    """Limit for the number or the total amount of calls in a time window."""

    __tablename__ = "budgets"
    __table_args__ = (
        in_environment(),
        of_user("created_by"),
        UniqueConstraint("organization_id", "environment", "name"),
        Index("ix_budgets_listed", "organization_id", "environment", "created_at", "id"),
        one_of("scope", SCOPES),
        one_of("at_limit", AT_LIMIT),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    name: str = Field(max_length=100)
    scope: str = Field(max_length=12)
    #: ids of the agents whose calls count, as a JSON list; null for all agents
    agents: str | None = Field(default=None, sa_type=Text)
    #: actions and prefixes followed by ``*``, as a JSON list
    actions: str = Field(sa_type=Text)
    #: ``count``, or ``sum(args.NAME)`` for the sum of the argument with this name
    measure: str = Field(max_length=80)
    #: name of the argument that contains the currency; null if all amounts have one total
    currency_arg: str | None = Field(default=None, max_length=64)
    #: time window in the format of the API, for example ``day(Europe/Berlin)``
    period: str = Field(max_length=80)
    maximum: Decimal = Field(sa_type=ExactDecimal)
    at_limit: str = Field(max_length=16)
    enabled: bool = True
    created_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    updated_at: datetime | None = Field(default=None, sa_type=Timestamp)


class BudgetTotal(Table, table=True):
    """Total of the amounts that count towards a budget, for one subject, currency and time window.

    Depending on the scope of the budget, the subject is the organization, an agent or an agent run.

    The row remains after the budget is deleted, until the maintenance job removes it, so `budget_id` is not a foreign
    key.
    """

    __tablename__ = "budget_totals"
    __table_args__ = (
        in_environment(),
        UniqueConstraint("budget_id", "subject", "currency", "starts_at"),
        Index("ix_budget_totals_listed", "budget_id", "created_at", "id"),
        Index(None, "ends_at"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    budget_id: str = Field(sa_type=Id)
    #: id of the agent for the scope `agent`; id of the run for the scope `run`, empty for calls without a run id; empty
    #: for the scope `organization`
    subject: str = Field(max_length=255)
    #: currency in upper case; empty if the budget has no currency
    currency: str = Field(max_length=16)
    #: start of the window; for a rolling window, always 1970-01-01
    starts_at: datetime = Field(sa_type=Timestamp)
    #: end of the window; for a rolling window, the time at which the latest reservation leaves it
    ends_at: datetime = Field(sa_type=Timestamp)
    #: time up to which reservations have left a rolling window and were subtracted from the total; null if none were
    #: subtracted
    subtracted_until: datetime | None = Field(default=None, sa_type=Timestamp)
    #: sum of the settled amounts
    settled: Decimal = Field(sa_type=ExactDecimal)
    #: sum of the amounts of unsettled reservations
    reserved: Decimal = Field(sa_type=ExactDecimal)
    #: time of the latest event `budget.exceeded`; null if there was none
    exceeded_at: datetime | None = Field(default=None, sa_type=Timestamp)
    created_at: datetime = Field(sa_type=Timestamp)


class BudgetReservation(Table, table=True):
    """Amount that an allowed call adds to a total. The log entry of the call settles or releases the reservation.

    The row remains after the budget is deleted, until the maintenance job removes it, so `budget_id` is not a foreign
    key.
    """

    __tablename__ = "budget_reservations"
    __table_args__ = (
        in_environment(),
        one_of("state", STATES),
        Index("ix_budget_reservations_decision", "decision_id"),
        Index("ix_budget_reservations_total", "total_id", "created_at"),
        Index("ix_budget_reservations_listed", "organization_id", "environment", "state", "created_at", "id"),
        Index("ix_budget_reservations_by_time", "organization_id", "environment", "created_at", "id"),
        Index(None, "created_at"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    budget_id: str = Field(sa_type=Id)
    total_id: str = Field(sa_type=Id)
    decision_id: str = Field(sa_type=Id)
    agent_id: str = Field(sa_type=Id)
    action: str = Field(max_length=255)
    run_id: str | None = Field(default=None, max_length=255)
    #: amount computed from the arguments in the check
    amount: Decimal = Field(sa_type=ExactDecimal)
    #: amount computed from the arguments in the log entry; null until the reservation is settled
    settled_amount: Decimal | None = Field(default=None, sa_type=ExactDecimal)
    state: str = Field(max_length=10)
    #: true if the reservation exceeded the limit and an approval allowed the call nevertheless
    over_limit: bool = False
    #: id of the approval that allowed the call; null if the call needed none
    approval_id: str | None = Field(default=None, sa_type=Id)
    #: time of the check; for a rolling window, unique among the reservations of a total
    created_at: datetime = Field(sa_type=Timestamp)
    #: time at which a log entry last changed the state; null if none did
    settled_at: datetime | None = Field(default=None, sa_type=Timestamp)
