"""Database tables of accounts: users, sessions, invitations, password resets, failed logins and Slack links."""

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
        Index("ix_users_by_email", "organization_id", "email"),
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
    #: number that increases when the user's role or password changes or the user is removed; session tokens that
    #: contain a lower number are invalid
    version: int = 1
    #: unused column: links to Slack users are stored in the table `slack_app_links`
    slack_user_id: str | None = Field(default=None, max_length=64)
    created_at: datetime = Field(sa_type=Timestamp)
    removed_at: datetime | None = Field(default=None, sa_type=Timestamp)


class Session(Table, table=True):
    """Login session of a user. The claim ``jti`` of a session's token contains the id of this row."""

    __tablename__ = "sessions"
    __table_args__ = (of_user("user_id"), one_of("scope", SCOPES), Index(None, "expires_at"))

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id, index=True)
    scope: str = Field(max_length=10)
    #: hash of the network from which the user logged in, equal to `LoginAttempt.address`; the login throttle uses it to
    #: recognize networks that are known for the user
    address: str | None = Field(default=None, max_length=80)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)
    revoked_at: datetime | None = Field(default=None, sa_type=Timestamp)


class Invitation(Table, table=True):
    """Invitation to join an organization. Its link contains a one-time token. Only the hash of the token is stored."""

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
    """Password reset of a user. Its link contains a one-time token. Only the hash of the token is stored."""

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
    """Number of recent failed logins of one subject: an IP address, an e-mail address, or both together."""

    __tablename__ = "login_failures"
    __table_args__ = (Index(None, "last_failed_at"),)

    #: kind and hash of the subject: ``pair:…``, ``address:…`` or ``email:…``
    subject: str = Field(primary_key=True, max_length=80)
    failures: int = 0
    last_failed_at: datetime = Field(sa_type=Timestamp)


class SlackLink(Table, table=True):
    """Link that allows a Slack user to approve and reject calls as a member of the organization.

    A link is valid only in the Slack app in which it was created. It refers to the signing secret of this app and is
    deleted together with the secret. For each secret, a Slack user is linked to at most one member, and a member to at
    most one Slack user.
    """

    __tablename__ = "slack_app_links"
    __table_args__ = (
        of_user("user_id"),
        # Let the database delete the links when their webhook is deleted, because gateways of older versions do not
        # delete them.
        ForeignKeyConstraint(
            ["organization_id", "environment", "webhook_id"],
            ["webhooks.organization_id", "webhooks.environment", "webhooks.id"],
            ondelete="CASCADE",
        ),
        UniqueConstraint("secret_id", "user_id"),
        UniqueConstraint("secret_id", "team_id", "slack_user_id"),
        Index(None, "organization_id", "user_id"),
        Index(None, "webhook_id"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    environment: str = Field(max_length=10)
    webhook_id: str = Field(sa_type=Id)
    #: id of the `webhook_secrets` row that contains the app's signing secret; each new secret gets a new row
    secret_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id)
    #: id of the Slack workspace
    team_id: str = Field(max_length=64)
    #: id of the Slack user
    slack_user_id: str = Field(max_length=64)
    created_at: datetime = Field(sa_type=Timestamp)


class FormerSlackLink(Table, table=True):
    """Link to a Slack user that a gateway from before schema revision 0017 created.

    Such a link does not refer to a Slack app. Current gateways never use it to decide a request, but delete it, for
    example when the member is removed, because gateways of older versions still accept it.
    """

    __tablename__ = "slack_links"
    __table_args__ = (
        of_user("user_id"),
        UniqueConstraint("organization_id", "user_id"),
        UniqueConstraint("organization_id", "team_id", "slack_user_id"),
    )

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id)
    team_id: str = Field(max_length=64)
    slack_user_id: str = Field(max_length=64)
    created_at: datetime = Field(sa_type=Timestamp)


class SlackLinkCode(Table, table=True):
    """Code that a member types in Slack to link the Slack user. The table stores only the hash of the code."""

    __tablename__ = "slack_link_codes"
    __table_args__ = (of_user("user_id"), Index(None, "organization_id", "user_id"))

    id: str = Field(primary_key=True, sa_type=Id)
    organization_id: str = Field(sa_type=Id)
    user_id: str = Field(sa_type=Id)
    #: `User.version` when the code was created; the code is invalid after the user's version changes
    version: int
    code_hash: str = Field(max_length=64, unique=True)
    #: id of the `webhook_secrets` row that contains the signing secret of the Slack app in which the code is valid
    secret_id: str | None = Field(default=None, sa_type=Id)
    created_at: datetime = Field(sa_type=Timestamp)
    expires_at: datetime = Field(sa_type=Timestamp)
    used_at: datetime | None = Field(default=None, sa_type=Timestamp)
