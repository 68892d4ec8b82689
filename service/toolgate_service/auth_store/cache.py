"""Cache of authentication contexts. A context is valid while the epoch of its environment is unchanged."""

from toolgate_service.context import AuthContext

#: maximum number of contexts, about 1 KB each
SIZE = 10_000


class ContextCache:
    """Cache of authentication contexts by API key, agent and action.

    Every transaction that changes the API keys, agents, permissions or the organization of an environment raises the
    environment's epoch. Each context contains the epoch at which it was read. A request compares it with the epoch that
    the database returned for this request. If the context's epoch is equal or later, the context is at least as new as
    the request, and may be used.

    Args:
        size: Maximum number of contexts. When the cache is full, the context that was added first is removed.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._contexts: dict[tuple[str, str, str], AuthContext] = {}

    def find(self, key_digest: str, agent_id: str = "", action: str = "") -> AuthContext | None:
        """Return the newest context that was stored; the caller compares its epoch."""
        return self._contexts.get((key_digest, agent_id, action))

    def find_since(
        self, epoch: int | None, key_digest: str, agent_id: str, action: str
    ) -> AuthContext | None:
        """Return the stored context if it was read under this epoch or a later one."""
        cached = self._contexts.get((key_digest, agent_id, action))
        if cached is None or epoch is None or cached.epoch is None or cached.epoch < epoch:
            return None
        return cached

    def store(self, key_digest: str, agent_id: str, action: str, context: AuthContext) -> None:
        """Store a context, unless its organization is not active or the agent has no permission for the action.

        Without the latter condition, a client could fill the cache with invented agents and actions.
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
            # The stored context is newer, because concurrent reads can finish in another order.
            return
        self._contexts[key] = context
