"""Dependencies of the service functions, and the data that the gateway loads for a request with an API key."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple, TypeAlias

from sqlalchemy import bindparam, column, text
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.core.concurrency import ConcurrencyLimiter, Notifier
from toolgate_service.core.crypto import Passwords, Vault
from toolgate_service.core.errors import ApiError
from toolgate_service.core.mail_settings import SmtpServer
from toolgate_service.core.plans import Plan
from toolgate_service.core.settings import Settings
from toolgate_service.db.database import EXPORTS, open_database
from toolgate_service.db.models import Id
from toolgate_service.mail import MailQueue, SmtpMailer
from toolgate_service.rate_limit.limiter import Rate

#: maximum number of replays of policies that run at the same time
REPLAYS = 2
#: seconds after the authentication of a request for which the epoch of the authentication is current enough for decisions
EPOCH_SECONDS = 0.5
#: maximum number of authentication contexts in the cache, about 1 KB each
CACHE_SIZE = 10_000


class AppContext:
    """Dependencies of the service functions: settings, database, cryptography, notifier, mail queue and limiters.

    Raises:
        StorageError: The database URL or the secret is invalid.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.plans = settings.plans
        self.database = open_database(settings.database_url)
        self.vault = Vault.of(settings)
        self.passwords = Passwords(settings.login_threads, settings.login_queue)
        self.notifier = Notifier()
        self.exports = ConcurrencyLimiter("exports", EXPORTS, EXPORTS // 2)
        self.replays = ConcurrencyLimiter("replays", REPLAYS, REPLAYS // 2)
        self.mail = _open_mail_queue(settings)


def _open_mail_queue(settings: Settings) -> MailQueue | None:
    if settings.smtp_url is None or settings.mail_from is None:
        return None
    server = SmtpServer.from_url(settings.smtp_url.get_secret_value())
    return MailQueue(SmtpMailer(server, settings.mail_from))


class AuthContext(NamedTuple):
    """Row of a valid API key, joined with its organization, an agent and a permission.

    Attributes:
        key_agent_id: Id of the only agent that the key may act as; None for a key of the organization.
        ip_allow_list: Networks from which the organization allows requests, as stored; None if all are allowed.
        agent_id: Id of the requested agent; None if none was requested, or if it does not exist in the environment.
        permission_id: Id of the agent's permission for the action. None if there is no permission; then the other
            fields of the permission are None too.
        agent_name: Name of the agent; None if there is no agent.
        freeze_reason: Reason of an active freeze that denies the call; None if there is none.
        has_rules: 1 if the environment has enabled rules; otherwise 0. None if no agent was requested.
        has_budgets: 1 if the environment has enabled budgets; otherwise 0. None if no agent was requested.
        shadow_id: Id of the environment's shadow policy, which is evaluated for each check without affecting the
            response; None if there is none, or if no agent was requested.
        epoch: Epoch (version of the environment's data) when the row was read.
        is_advisory: 1 if checks with the key are dry runs, and the key cannot change anything; otherwise 0.
    """

    key_id: str
    key_agent_id: str | None
    organization_id: str
    environment: str
    organization_is_active: int
    plan: str
    requests_per_minute: int | None
    ip_allow_list: str | None = None
    agent_id: str | None = None
    agent_status: str | None = None
    permission_id: str | None = None
    requires_approval: int | None = None
    max_amount: str | None = None
    amount_required: int | None = None
    freeze_reason: str | None = None
    agent_name: str | None = None
    has_rules: int | None = None
    has_budgets: int | None = None
    shadow_id: str | None = None
    epoch: int | None = None
    is_advisory: int = 0

    def rate_limit(self, plans: Mapping[str, Plan]) -> int:
        """Return the organization's limit of requests per minute. It applies to each group of endpoints separately."""
        return self.requests_per_minute or plans[self.plan].requests_per_minute


#: context of a request, and the state of its rate limit; the state is None if the organization is not active, because
#: the request is then not counted
AuthResult: TypeAlias = tuple[AuthContext, Rate | None]

#: SQL query for the columns of `AuthContext`; its bind parameters are the key's digest, the agent's id and the action
AUTH_CONTEXT_SQL = """
SELECT k.id, k.agent_id, k.organization_id, k.environment, o.is_active, o.plan, o.requests_per_minute, o.ip_allow_list,
       a.id, a.status, p.id, p.requires_approval, p.max_amount, p.amount_required,
       (SELECT f.reason FROM freezes f
        WHERE f.organization_id = k.organization_id AND f.lifted_at IS NULL
          AND (f.agent_id IS NULL OR f.agent_id = :agent_id)
          AND (f.action IS NULL OR f.action = :action
               OR (f.action LIKE '%*' AND f.action = substr(:action, 1, length(f.action) - 1) || '*'))
        ORDER BY f.created_at, f.id LIMIT 1),
       a.name,
       EXISTS (SELECT 1 FROM rules r
               WHERE r.organization_id = k.organization_id AND r.environment = k.environment AND r.enabled),
       EXISTS (SELECT 1 FROM budgets b
               WHERE b.organization_id = k.organization_id AND b.environment = k.environment AND b.enabled),
       (SELECT s.id FROM policy_shadows s
        WHERE s.organization_id = k.organization_id AND s.environment = k.environment),
       (SELECT e.epoch FROM epochs e WHERE e.organization_id = k.organization_id AND e.environment = k.environment),
       k.advisory
FROM api_keys k
JOIN organizations o ON o.id = k.organization_id
LEFT JOIN agents a
       ON a.id = :agent_id AND a.organization_id = k.organization_id AND a.environment = k.environment
      AND a.deleted_at IS NULL
LEFT JOIN permissions p
       ON p.organization_id = a.organization_id AND p.environment = a.environment AND p.agent_id = a.id
      AND p.action = :action
WHERE k.digest = :key_digest AND k.revoked_at IS NULL
"""

_IDS = ("key_id", "key_agent_id", "organization_id", "agent_id", "permission_id", "shadow_id")
_TYPED = (
    text(AUTH_CONTEXT_SQL)
    .bindparams(bindparam("agent_id", type_=Id()))
    .columns(*(column(name, Id() if name in _IDS else None) for name in AuthContext._fields))
)


async def load_auth_context(
    session: AsyncSession, key_digest: str, agent_id: str, action: str
) -> AuthContext | None:
    """Load the context of an API key in the transaction of a session; None if the key is unknown or revoked."""
    values = {"key_digest": key_digest, "agent_id": agent_id, "action": action}
    connection = await session.connection()
    rows = (await connection.execute(_TYPED, values)).fetchall()
    return AuthContext(*rows[0]) if rows else None


@dataclass(frozen=True, slots=True)
class KeyCaller:
    """Caller with a valid API key, whose request was counted towards the rate limit.

    Attributes:
        key_digest: Digest of the API key.
        context: Organization, agent and permission of the key.
        authenticated_at: Time of the authentication, in seconds of the monotonic clock.
    """

    key_digest: str
    context: AuthContext
    authenticated_at: float

    @property
    def epoch(self) -> int | None:
        """Epoch of the environment at the authentication; None if the authentication is too long ago to rely on it.

        The body can arrive long after the head of the request, and a batch of evaluations can take seconds.
        """
        return self.context.epoch if monotonic() - self.authenticated_at < EPOCH_SECONDS else None

    def may_act_as(self, agent_id: str) -> bool:
        """Return whether the key may act as an agent: it belongs to this agent, or to the whole organization."""
        return self.context.key_agent_id in {None, agent_id}


def require_active(result: AuthResult | None) -> tuple[AuthContext, Rate]:
    """Return the context and the rate limit's state of an authenticated request.

    Raises:
        ApiError: 401 if the API key is unknown or revoked, or the organization is not active.
    """
    if result is None:
        raise ApiError(401, "Invalid API key")
    context, rate = result
    if rate is None:
        raise ApiError(401, "Organization is not active")
    return context, rate


def require_current(context: AuthContext | None) -> AuthContext:
    """Return a context that was read again after the request was authenticated, if it is still valid.

    Raises:
        ApiError: 401 if the key was revoked, or the organization deactivated, after the request was authenticated.
    """
    if context is None:
        raise ApiError(401, "Invalid API key")
    if not context.organization_is_active:
        raise ApiError(401, "Organization is not active")
    return context


class ContextCache:
    """Cache of authentication contexts by API key, agent and action.

    Each environment has an epoch, a version number of its data. Every transaction that changes its API keys, agents,
    permissions, rules, budgets or freezes, or the organization, or that begins or ends a shadow policy, increments the
    epoch. Each context contains the epoch at which it was read. A request compares this epoch with the epoch that the
    database returned for the request. If the context's epoch is equal or later, no change is missing in the context, and
    the request may use it.

    Args:
        size: Maximum number of contexts. When the cache is full, the context that was added first is removed.
    """

    def __init__(self, size: int = CACHE_SIZE) -> None:
        self._size = size
        self._contexts: dict[tuple[str, str, str], AuthContext] = {}

    def find(self, key_digest: str, agent_id: str = "", action: str = "") -> AuthContext | None:
        """Return the stored context, or None. The caller must compare its epoch with that of the environment."""
        return self._contexts.get((key_digest, agent_id, action))

    def find_since(
        self, epoch: int | None, key_digest: str, agent_id: str, action: str
    ) -> AuthContext | None:
        """Return the stored context if it was read at this epoch (data version) or a later one, otherwise None."""
        cached = self._contexts.get((key_digest, agent_id, action))
        if cached is None or epoch is None or cached.epoch is None or cached.epoch < epoch:
            return None
        return cached

    def store(self, key_digest: str, agent_id: str, action: str, context: AuthContext) -> None:
        """Store the context of an active organization.

        If the context is for an action, it is stored only if the agent has a permission for this action. Otherwise, a
        client could fill the cache with invented agents and actions.
        """
        is_complete = context.permission_id is not None or not action
        if context.epoch is None or not context.organization_is_active or not is_complete:
            return
        key = (key_digest, agent_id, action)
        present = self._contexts.get(key)
        if present is None:
            if len(self._contexts) >= self._size:
                del self._contexts[next(iter(self._contexts))]
        elif present.epoch is not None and present.epoch > context.epoch:
            # Keep the stored context: it is newer, because a concurrent read began later but finished first.
            return
        self._contexts[key] = context
