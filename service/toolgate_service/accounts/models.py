"""Database tables of users, sessions and one-time tokens."""

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, Index, Text, UniqueConstraint, text
from sqlmodel import Field

from toolgate_service.db.models import Id, Table, Timestamp, of_user, one_of

ADMIN = "admin"
MEMBER = "member"
VIEWER = "viewer"
ROLES = (ADMIN, MEMBER, VIEWER)

FULL = "full"
CLI = "cli"
SCOPES = (FULL, CLI)


class User(Table, table=True):
    """User of an organization. The row of a removed user is kept, so that logs can still show the e-mail address."""

    __tablename__ = "users"
    __table_args__ = (
        ForeignKeyConstraint(["organization_id"], ["organizations.id"]),
        UniqueConstraint("organization_id", "id"),
        one_of("role", ROLES),
        Index(
            "uq_users_email",
            "email",
            unique=True,
            sqlite_where=text("removed_at IS NULL"),
            postgresql_where=text("removed_at IS NULL"),
        ),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    #: e-mail address, always stored in lower case
    email: str = Field(max_length=320)
    password_hash: str = Field(sa_type=Text)
    role: str = Field(max_length=10)
    #: Number that increases when the role or password changes or the user is removed. Tokens with a lower number are
    #: invalid.
    version: int = 1
    #: unused: links to Slack users are stored in the table `slack_app_links`
    slack_user_id: str | None = Field(default=None, max_length=64)
    created_at: datetime = Field(sa_type=Timestamp)
    removed_at: datetime | None = Field(default=None, sa_type=Timestamp)


class Session(Table, table=True):
    """Login session. The session's id is the claim ``jti`` of its token."""

    __tablename__ = "sessions"
    __table_args__ = (of_user("user_id"), one_of("scope", SCOPES), Index(None, "expires_at"))

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id, index=True)
    scope: str = Field(max_length=10)
    #: hash of the client's network, computed like `LoginAttempt.address`
    address: str | None = Field(default=None, max_length=80)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)
    revoked_at: datetime | None = Field(default=None, sa_type=Timestamp)


class Invitation(Table, table=True):
    """Invitation to join an organization. The token is stored as a hash and can be used once."""

    __tablename__ = "invitations"
    __table_args__ = (of_user("invited_by"), one_of("role", ROLES), Index(None, "expires_at"))

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id, index=True)
    email: str = Field(max_length=320)
    role: str = Field(max_length=10)
    token_hash: str = Field(max_length=64, unique=True)
    invited_by: str = Field(sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)
    accepted_at: datetime | None = Field(default=None, sa_type=Timestamp)
    revoked_at: datetime | None = Field(default=None, sa_type=Timestamp)


class PasswordReset(Table, table=True):
    """Password reset that a user requested. Its token is stored as a hash and can be used once."""

    __tablename__ = "password_resets"
    __table_args__ = (of_user("user_id"), Index(None, "expires_at"))

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id, index=True)
    token_hash: str = Field(max_length=64, unique=True)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)
    used_at: datetime | None = Field(default=None, sa_type=Timestamp)


class LoginFailures(Table, table=True):
    """Number of recent failed logins of one subject: an IP address, an e-mail address, or a pair of both."""

    __tablename__ = "login_failures"
    __table_args__ = (Index(None, "last_failed_at"),)

    #: kind of the subject and its hash: ``pair:…``, ``address:…`` or ``email:…``
    subject: str = Field(primary_key=True, max_length=80)
    failures: int = 0
    last_failed_at: datetime = Field(sa_type=Timestamp)
