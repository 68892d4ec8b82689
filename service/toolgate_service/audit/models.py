"""The management audit: who changed what, when, from where (decisions §3)."""

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, Index, Text
from sqlmodel import Field

from toolgate_service.storage.base import Table
from toolgate_service.storage.types import Id, Timestamp


class AuditEntry(Table, table=True):
    """One change, or one showing of a key."""

    __tablename__ = "audit_entries"
    __table_args__ = (
        ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        Index(None, "organization_id", "created_at", "id"),
        Index("ix_audit_entries_by_kind", "organization_id", "kind", "created_at", "id"),
        Index("ix_audit_entries_by_user", "organization_id", "user_id", "created_at", "id"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    #: null where the change belongs to no environment, as a user's does
    environment: str | None = Field(default=None, max_length=10)
    #: null where the operator or the payment provider acted
    user_id: str | None = Field(default=None, sa_type=Id)
    #: for instance ``permission.created``
    kind: str = Field(max_length=64)
    resource_id: str | None = Field(default=None, max_length=64)
    #: what changed, as JSON; never a secret
    changes: str | None = Field(default=None, sa_type=Text)
    ip_address: str | None = Field(default=None, max_length=45)
    created_at: datetime = Field(sa_type=Timestamp)
