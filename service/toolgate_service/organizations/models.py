"""Organizations, their two environments, their API keys and their usage counters."""

from datetime import datetime
from typing import Literal, TypeAlias

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, Text, text
from sqlmodel import Field

from toolgate_service.plans import PLAN_NAMES
from toolgate_service.storage.base import ENVIRONMENTS, Table, in_environment, of_agent, of_user, one_of
from toolgate_service.storage.types import Id, Timestamp

Cause: TypeAlias = Literal["operator", "payment"]
OPERATOR: Cause = "operator"
PAYMENT: Cause = "payment"


class Organization(Table, table=True):
    """A tenant."""

    __tablename__ = "organizations"
    __table_args__ = (one_of("plan", PLAN_NAMES),)

    id: str = Field(primary_key=True, sa_type=Id)
    name: str = Field(max_length=100)
    slug: str = Field(max_length=120, unique=True)
    plan: str = Field(max_length=20)
    plan_changed_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: days that entries were kept under the plan before; a shorter retention acts 30 days after the change
    retention_days_before: int | None = None
    #: set per organization by the operator; null means the plan's
    requests_per_minute: int | None = None
    #: the payment provider's customer, linked by an operator
    provider_customer_id: str | None = Field(default=None, max_length=255, unique=True)
    #: networks that may use the API keys, as JSON; null means all
    ip_allow_list: str | None = Field(default=None, sa_type=Text)
    is_active: bool = True
    created_at: datetime = Field(sa_type=Timestamp)


class Environment(Table, table=True):
    """One of an organization's two worlds: production or test (decisions §8)."""

    __tablename__ = "environments"
    __table_args__ = (
        ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        one_of("name", ENVIRONMENTS),
    )

    organization_id: str = Field(primary_key=True, sa_type=Id)
    name: str = Field(primary_key=True, max_length=10)
    #: bytes of log entries held, counted for the test environment's cap
    log_bytes: int = Field(default=0, sa_type=BigInteger)


class ApiKey(Table, table=True):
    """A key of the SDK surface: an organization's own, or one that acts only as one agent (decisions §9)."""

    __tablename__ = "api_keys"
    __table_args__ = (
        in_environment(),
        of_agent(),
        of_user("created_by"),
        Index(None, "organization_id", "environment", "agent_id"),
        Index(
            "uq_api_keys_organization_key",
            "organization_id",
            "environment",
            unique=True,
            sqlite_where=text("agent_id IS NULL AND revoked_at IS NULL"),
            postgresql_where=text("agent_id IS NULL AND revoked_at IS NULL"),
        ),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    agent_id: str | None = Field(default=None, sa_type=Id)
    #: SHA-256 of the key, by which a request finds it
    digest: str = Field(max_length=64, unique=True)
    #: the key sealed, for showing it again
    ciphertext: bytes
    last_four: str = Field(max_length=4)
    created_by: str | None = Field(default=None, sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    revoked_at: datetime | None = Field(default=None, sa_type=Timestamp)


class MonthlyUsage(Table, table=True):
    """How many log entries an environment wrote in a UTC calendar month, kept in the writing transaction."""

    __tablename__ = "monthly_usage"
    __table_args__ = (in_environment(),)

    organization_id: str = Field(primary_key=True, sa_type=Id)
    environment: str = Field(primary_key=True, max_length=10)
    #: ``2026-11``
    month: str = Field(primary_key=True, max_length=7)
    log_entries: int = Field(default=0, sa_type=BigInteger)


class RateWindow(Table, table=True):
    """Requests of the current minute, where several processes share no Redis (decisions §7)."""

    __tablename__ = "rate_windows"
    __table_args__ = (ForeignKeyConstraint(["organization_id"], ["organizations.id"]),)

    organization_id: str = Field(primary_key=True, sa_type=Id)
    #: whose requests: ``production/actions`` (check and log), ``test/reads`` (approvals and permissions), ``user/…``
    scope: str = Field(primary_key=True, max_length=64)
    #: minutes since the epoch
    minute: int
    requests: int = 0


class Deactivation(Table, table=True):
    """One cause for which an organization is inactive."""

    __tablename__ = "deactivations"
    __table_args__ = (
        ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        one_of("cause", (OPERATOR, PAYMENT)),
    )

    organization_id: str = Field(primary_key=True, sa_type=Id)
    cause: str = Field(primary_key=True, max_length=10)
    created_at: datetime = Field(sa_type=Timestamp)
