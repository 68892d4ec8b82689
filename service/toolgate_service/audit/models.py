"""Database table of the audit log."""

from datetime import datetime
from typing import Protocol

from sqlalchemy import ForeignKeyConstraint, Index, Text
from sqlmodel import Field

from toolgate_service.db.models import PRODUCTION, Id, Table, Timestamp
from toolgate_service.transparency.chunks import log_changes
from toolgate_service.transparency.leaves import (
    AUDIT_EVENT,
    COLUMNS,
    Leaf,
    build_leaf,
    new_salt,
    row_digest,
)


class AuditEntry(Table, table=True):
    """Audit event: a change of the organization's data, or the display of an API key."""

    __tablename__ = "audit_entries"
    __table_args__ = (
        ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        Index(None, "organization_id", "created_at", "id"),
        Index("ix_audit_entries_by_kind", "organization_id", "kind", "created_at", "id"),
        Index("ix_audit_entries_by_user", "organization_id", "user_id", "created_at", "id"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    #: environment of the change; null if the event belongs to no environment, such as a change of a user's role
    environment: str | None = Field(default=None, max_length=10)
    #: id of the user who made the change; null if an API key, the gateway, its operator or the payment provider made it
    user_id: str | None = Field(default=None, sa_type=Id)
    #: type of the event, for example ``permission.created``
    kind: str = Field(max_length=64)
    resource_id: str | None = Field(default=None, max_length=64)
    #: new values of the changed fields as a JSON object, without secrets
    changes: str | None = Field(default=None, sa_type=Text)
    ip_address: str | None = Field(default=None, max_length=45)
    created_at: datetime = Field(sa_type=Timestamp)
    #: salt of the row in the transparency log, 32 hexadecimal digits; null for rows from before the log
    salt: str | None = Field(default=None, max_length=32)


class AuditValues(Protocol):
    """Interface of the values of an audit event: a row of `AuditEntry`, or the values of a plain SQL statement."""

    @property
    def organization_id(self) -> str:
        """Id of the organization."""

    @property
    def environment(self) -> str | None:
        """Environment of the change; None if the event belongs to no environment."""

    @property
    def created_at(self) -> datetime:
        """Time of the event."""


def audit_leaf(event: AuditValues) -> Leaf:
    """Return the leaf of an audit event. An event without an environment belongs to the log of production."""
    values = {name: getattr(event, name) for name in (*COLUMNS[AUDIT_EVENT], "salt")}
    return build_leaf(
        AUDIT_EVENT,
        event.organization_id,
        event.environment or PRODUCTION,
        event.created_at,
        id=values["id"],
        type=values["kind"],
        by=values["user_id"],
        digest=row_digest(AUDIT_EVENT, map(values.__getitem__, COLUMNS[AUDIT_EVENT]), values["salt"]),
    )


log_changes(AuditEntry, new_salt, lambda event: (audit_leaf(event), None))
