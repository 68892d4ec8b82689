"""Database tables of access requests and of their items."""

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, Index, PrimaryKeyConstraint, Text, UniqueConstraint
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, in_environment, index_where


class AccessRequest(Table, table=True):
    """Access request: the task with which a client follows one or several approval requests.

    The status of the task is not stored, because it follows from the approval requests of the items.
    """

    __tablename__ = "access_requests"
    __table_args__ = (
        in_environment(),
        UniqueConstraint("organization_id", "environment", "id"),
        Index(None, "expires_at"),
        index_where(
            "uq_access_requests_key",
            "idempotency_key IS NOT NULL",
            *("organization_id", "environment", "key_id", "idempotency_key"),
            unique=True,
        ),
        index_where("ix_access_requests_callbacks", "callback IS NOT NULL", "organization_id", "id"),
    )

    #: UUID of version 4, because the Access Request and Approval Profile requires an id without information
    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    #: id of the API key with which the request was submitted
    key_id: str = Field(sa_type=Id)
    #: submitted body as canonical JSON, without the binding tokens; `{}` after the context of an approval request was
    #: erased
    submission: str = Field(sa_type=Text)
    #: true if the body contained `items`
    is_bulk: bool
    idempotency_key: str | None = Field(default=None, max_length=255)
    #: SHA-256 digest of the body, to detect another body with the same idempotency key
    fingerprint: str = Field(max_length=64)
    #: callback that was not sent yet, as JSON; otherwise null
    callback: str | None = Field(default=None, sa_type=Text)
    created_at: datetime = Field(sa_type=Timestamp)
    #: time after which the task can no longer be read
    expires_at: datetime = Field(sa_type=Timestamp)


class AccessRequestItem(Table, table=True):
    """Item of an access request: a denied evaluation, and the approval request that the evaluation created or found.

    `approval_id` is not a foreign key, because the approval request may be deleted before the access request.
    """

    __tablename__ = "access_request_items"
    __table_args__ = (
        PrimaryKeyConstraint("request_id", "position"),
        ForeignKeyConstraint(
            ["organization_id", "environment", "request_id"],
            ["access_requests.organization_id", "access_requests.environment", "access_requests.id"],
        ),
        # A denial can be submitted only once.
        UniqueConstraint(
            "organization_id", "environment", "evaluation_id", name="uq_access_request_items_evaluation"
        ),
        Index(None, "organization_id", "environment", "approval_id"),
        Index(None, "expires_at"),
    )

    request_id: str = Field(sa_type=Id)
    #: index of the item in the submission
    position: int
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    #: id of the denied evaluation in the decision log
    evaluation_id: str = Field(sa_type=Id)
    approval_id: str = Field(sa_type=Id)
    #: time after which the access request can no longer be read
    expires_at: datetime = Field(sa_type=Timestamp)
