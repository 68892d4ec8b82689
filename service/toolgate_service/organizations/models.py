"""Database tables of organizations, environments, API keys and usage counters."""

from datetime import datetime
from typing import Literal, TypeAlias

from sqlalchemy import BigInteger, ForeignKeyConstraint, Index, Text, false, text
from sqlmodel import Field

from toolgate_service.core.plans import PLAN_NAMES
from toolgate_service.db.models import (
    ENVIRONMENTS,
    Id,
    Table,
    Timestamp,
    in_environment,
    of_agent,
    of_user,
    one_of,
)

Cause: TypeAlias = Literal["operator", "payment"]
OPERATOR: Cause = "operator"
PAYMENT: Cause = "payment"


class Organization(Table, table=True):
    """Organization: the tenant to which users, agents, API keys and logs belong. It has a plan and settings."""

    __tablename__ = "organizations"
    __table_args__ = (one_of("plan", PLAN_NAMES),)

    id: str = Field(primary_key=True, sa_type=Id)
    name: str = Field(max_length=100)
    slug: str = Field(max_length=120, unique=True)
    plan: str = Field(max_length=20)
    plan_changed_at: datetime | None = Field(default=None, sa_type=Timestamp)
    #: number of days for which the previous plan kept log entries; if the current plan keeps them for a shorter time,
    #: this number applies for 30 days after the change
    retention_days_before: int | None = None
    #: rate limit in requests per minute, set by the operator; null means the limit of the plan
    requests_per_minute: int | None = None
    #: id of the customer at the payment provider, set by the operator
    provider_customer_id: str | None = Field(default=None, max_length=255, unique=True)
    #: networks from which clients may use API keys, as JSON; null means that every address is allowed
    ip_allow_list: str | None = Field(default=None, sa_type=Text)
    is_active: bool = True
    created_at: datetime = Field(sa_type=Timestamp)


class Environment(Table, table=True):
    """One of the two environments of an organization: production or test."""

    __tablename__ = "environments"
    __table_args__ = (
        ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        one_of("name", ENVIRONMENTS),
    )

    organization_id: str = Field(primary_key=True, sa_type=Id)
    name: str = Field(primary_key=True, max_length=10)
    #: total size of the stored log entries in bytes; needed for the storage limit of the test environment
    log_bytes: int = Field(default=0, sa_type=BigInteger)


class Epoch(Table, table=True):
    """Version number of the data of an environment, with which gateways validate their caches.

    Every change of the environment's keys, agents, permissions, rules or budgets, or of the organization or its
    freezes, increases the number, as does the beginning or end of a shadow policy. Database triggers do this in the
    transaction of the change, so no code path can omit it. Cached data is valid until the number changes.
    """

    __tablename__ = "epochs"
    __table_args__ = (in_environment(),)

    organization_id: str = Field(primary_key=True, sa_type=Id)
    environment: str = Field(primary_key=True, max_length=10)
    epoch: int = Field(sa_type=BigInteger)


class ApiKey(Table, table=True):
    """API key with which the SDK authenticates. The key belongs to the whole organization or to one agent."""

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
    #: SHA-256 digest of the key, by which the gateway finds the key
    digest: str = Field(max_length=64, unique=True)
    #: encrypted key, stored so that admins can display the key again
    ciphertext: bytes
    last_four: str = Field(max_length=4)
    #: True if the key is advisory: checks with it must be dry runs, and requests with it cannot change anything
    advisory: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    created_by: str | None = Field(default=None, sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    revoked_at: datetime | None = Field(default=None, sa_type=Timestamp)


class MonthlyUsage(Table, table=True):
    """Number of log entries that an environment stored in a calendar month (UTC).

    The transaction that inserts log entries also updates this number.
    """

    __tablename__ = "monthly_usage"
    __table_args__ = (in_environment(),)

    organization_id: str = Field(primary_key=True, sa_type=Id)
    environment: str = Field(primary_key=True, max_length=10)
    #: year and month, for example ``2026-11``
    month: str = Field(primary_key=True, max_length=7)
    log_entries: int = Field(default=0, sa_type=BigInteger)


class RateWindow(Table, table=True):
    """Number of requests in the current minute, for rate limits.

    Gateways that count requests in Redis use this table only while Redis is unavailable. A gateway with SQLite and a
    single worker counts requests in memory instead.
    """

    __tablename__ = "rate_windows"
    __table_args__ = (ForeignKeyConstraint(["organization_id"], ["organizations.id"]),)

    organization_id: str = Field(primary_key=True, sa_type=Id)
    #: group of requests that share a limit, for example ``production/actions`` (checks and logs), ``test/reads`` or
    #: ``user/…``
    scope: str = Field(primary_key=True, max_length=64)
    #: minute in which the requests were counted, as the number of minutes since 1970-01-01 UTC
    minute: int
    requests: int = 0


class Deactivation(Table, table=True):
    """Reason why an organization is inactive: the operator deactivated it, or a payment failed."""

    __tablename__ = "deactivations"
    __table_args__ = (
        ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        one_of("cause", (OPERATOR, PAYMENT)),
    )

    organization_id: str = Field(primary_key=True, sa_type=Id)
    cause: str = Field(primary_key=True, max_length=10)
    created_at: datetime = Field(sa_type=Timestamp)
