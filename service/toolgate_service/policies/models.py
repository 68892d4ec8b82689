"""Database tables of policy revisions and of shadow policies."""

from datetime import datetime
from typing import Final

from sqlalchemy import BigInteger, CheckConstraint, Index, PrimaryKeyConstraint, Text
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, in_environment, of_user, one_of
from toolgate_service.transparency.chunks import log_changes
from toolgate_service.transparency.leaves import (
    COLUMNS,
    POLICY_REVISION,
    Leaf,
    build_leaf,
    new_salt,
    row_digest,
)

NEWLY_ALLOWED: Final = "newly_allowed"
NEWLY_HELD: Final = "newly_held"
NEWLY_DENIED: Final = "newly_denied"
#: kinds of differences between the decision about a call and the result of another policy for the same call
DIFFERENCES = (NEWLY_ALLOWED, NEWLY_HELD, NEWLY_DENIED)


class PolicyRevision(Table, table=True):
    """Policy of an environment at one time. Rows are never changed or deleted.

    When a policy is applied, it is stored as a revision. If the environment was changed in another way since the latest
    revision, the current policy is first stored as a revision of its own, so that it can be restored.
    """

    __tablename__ = "policy_revisions"
    __table_args__ = (
        PrimaryKeyConstraint("organization_id", "environment", "number"),
        in_environment(),
        of_user("created_by"),
        CheckConstraint("number >= 1", name="number"),
        Index("ix_policy_revisions_listed", "organization_id", "environment", "created_at", "id"),
    )

    id: str = Field(sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    #: number in the environment, counted from 1 without gaps
    number: int
    #: policy document as JSON
    document: str = Field(sa_type=Text)
    #: SHA-256 digest, equal for documents with the same meaning
    digest: str = Field(max_length=64)
    #: changes since the revision before, as JSON
    changes: str = Field(sa_type=Text)
    message: str = Field(max_length=1000)
    #: number of the revision that was restored; null if the policy was applied from a document
    restores: int | None = None
    created_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    #: salt of the row in the transparency log, 32 hexadecimal digits; null for rows that are older than the log
    salt: str | None = Field(default=None, max_length=32)


def _revision_leaf(revision: PolicyRevision) -> tuple[Leaf, None]:
    values = [getattr(revision, name) for name in COLUMNS[POLICY_REVISION]]
    leaf = build_leaf(
        POLICY_REVISION,
        revision.organization_id,
        revision.environment,
        revision.created_at,
        id=revision.id,
        number=revision.number,
        by=revision.created_by,
        digest=row_digest(POLICY_REVISION, values, revision.salt or ""),
    )
    return leaf, None


log_changes(PolicyRevision, new_salt, _revision_leaf)


class PolicyShadow(Table, table=True):
    """Shadow policy, which is evaluated for each check after the response, and the number of its results by category.

    An environment has at most one shadow policy. Inserting or deleting a row increases the version number (epoch) of
    the environment.
    """

    __tablename__ = "policy_shadows"
    __table_args__ = (
        PrimaryKeyConstraint("organization_id", "environment"),
        in_environment(),
        of_user("created_by"),
    )

    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    id: str = Field(sa_type=Id)
    #: policy document as JSON
    document: str = Field(sa_type=Text)
    digest: str = Field(max_length=64)
    message: str = Field(max_length=1000)
    created_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    unchanged: int = Field(default=0, sa_type=BigInteger)
    newly_allowed: int = Field(default=0, sa_type=BigInteger)
    newly_held: int = Field(default=0, sa_type=BigInteger)
    newly_denied: int = Field(default=0, sa_type=BigInteger)
    not_replayable: int = Field(default=0, sa_type=BigInteger)


class PolicyShadowSample(Table, table=True):
    """Check for which a shadow policy has another result than the gateway."""

    __tablename__ = "policy_shadow_samples"
    __table_args__ = (
        PrimaryKeyConstraint("organization_id", "environment", "shadow_id", "decision_id"),
        in_environment(),
        one_of("difference", DIFFERENCES),
    )

    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    shadow_id: str = Field(sa_type=Id)
    decision_id: str = Field(sa_type=Id)
    agent_id: str = Field(sa_type=Id)
    action: str = Field(max_length=255)
    difference: str = Field(max_length=20)
    #: reason that the agent would receive under the shadow policy; null if the shadow policy allows the call
    reason: str | None = Field(default=None, sa_type=Text)
