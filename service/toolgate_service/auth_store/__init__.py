"""Interface for the database reads that authenticate requests.

For speed, the implementations call the database drivers directly instead of SQLAlchemy.
"""

from typing import Protocol

from toolgate_service.accounts.sessions import ActiveSession, TokenClaims
from toolgate_service.context import AuthContext, AuthResult
from toolgate_service.db.database import Usage
from toolgate_service.rate_limit.limiter import Surface


class AuthStore(Protocol):
    """Reader of API keys, sessions and permissions.

    Every read returns the latest committed state. For example, the first check after the deletion of a permission is
    already denied.

    An authentication context (`AuthContext`) contains the row of an API key with its organization and, if they are
    requested, an agent and its permission for an action.
    """

    async def open(self) -> None:
        """Connect to the database, whose schema must exist."""

    async def authenticate(self, key_digest: str, surface: Surface) -> AuthResult | None:
        """Count a request with an API key, and return its authentication context and the state of its rate limit.

        The result is None if the key is not valid. If the organization is not active, the request is not counted, and
        the state of the rate limit is None. `surface` is the group of endpoints to which the request belongs. Each
        group has a separate rate limit.
        """

    async def load(
        self, key_digest: str, agent_id: str = "", action: str = "", *, epoch: int | None = None
    ) -> AuthContext | None:
        """Return the context of an API key, an agent and an action; None if the key is unknown or revoked.

        `epoch` is the epoch (version of the environment's data) of the context that `authenticate` returned. If it is
        given, a cached context of the same or a later epoch is returned without a database read.
        """

    async def sign_in(self, claims: TokenClaims) -> ActiveSession | None:
        """Return the session of a user's token; None if the session has ended."""

    async def is_pending(self, approval_id: str) -> bool:
        """Return whether an approval request exists and is pending."""

    def usage(self) -> Usage | None:
        """Return the usage of the connection pool; None if the store has no pool."""

    async def close(self) -> None:
        """Close all connections to the database."""
