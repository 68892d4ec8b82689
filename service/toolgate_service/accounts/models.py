"""Users, their sessions, and the single-use tokens that let someone in."""

from datetime import datetime

from sqlalchemy import ForeignKeyConstraint, Index, Text, UniqueConstraint, text
from sqlmodel import Field

from toolgate_service.storage.base import Table, of_user, one_of
from toolgate_service.storage.types import Id, Timestamp

ADMIN = "admin"
MEMBER = "member"
VIEWER = "viewer"
ROLES = (ADMIN, MEMBER, VIEWER)

FULL = "full"
CLI = "cli"
SCOPES = (FULL, CLI)


class User(Table, table=True):
    """A person of an organization. Removed ones stay, so that records keep naming them."""

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
    #: in lower case
    email: str = Field(max_length=320)
    password_hash: str = Field(sa_type=Text)
    role: str = Field(max_length=10)
    #: raised by a role change, a removal and a password change: older tokens stop working
    version: int = 1
    #: never written: `slack_links` says who of which workspace is which member
    slack_user_id: str | None = Field(default=None, max_length=64)
    created_at: datetime = Field(sa_type=Timestamp)
    removed_at: datetime | None = Field(default=None, sa_type=Timestamp)


class Session(Table, table=True):
    """A login: its id is the token's ``jti``."""

    __tablename__ = "sessions"
    __table_args__ = (of_user("user_id"), one_of("scope", SCOPES), Index(None, "expires_at"))

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id, index=True)
    scope: str = Field(max_length=10)
    #: where the login came from, hashed as failed logins' addresses are
    address: str | None = Field(default=None, max_length=80)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)
    revoked_at: datetime | None = Field(default=None, sa_type=Timestamp)


class Invitation(Table, table=True):
    """An invitation to join an organization; the token is stored hashed and works once."""

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
    """A password reset under way; the token is stored hashed and works once."""

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
    """Failed logins of late, by pair, by address and by e-mail (decisions §7)."""

    __tablename__ = "login_failures"
    __table_args__ = (Index(None, "last_failed_at"),)

    #: ``pair:…``, ``address:…`` or ``email:…``, hashed
    subject: str = Field(primary_key=True, max_length=80)
    failures: int = 0
    last_failed_at: datetime = Field(sa_type=Timestamp)
