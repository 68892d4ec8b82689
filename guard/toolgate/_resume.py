"""Context variables that the next guarded call uses when it begins.

One variable contains the approval request that the call continues (`Resume`). The other contains an authorization
(`authorize`): the decision about an enclosing action block, which allows the call without a second check.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING

from toolgate._capture.jsontext import Json, dumps
from toolgate._identity import valid_approval_id
from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from toolgate._state import GuardState

__all__ = ["Resume", "authorize", "take_approval", "take_authorization"]


class Resume:
    """Block whose first guarded call continues an approval request. It can be entered once, also with `async with`.

    Args:
        approval_id: Id of the approval request.
        belongs: Function that receives the state of a guard, and returns True if its calls may continue the request.

    Raises:
        ConfigurationError: If the id is not valid.
    """

    def __init__(self, approval_id: str, belongs: Callable[[GuardState], bool]) -> None:
        self._approval_id = valid_approval_id(approval_id)
        self._belongs = belongs
        self._lock = threading.Lock()
        self._is_free = False
        self._token: Token[tuple[Resume, ...]] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._token is not None:
                raise ConfigurationError("a resume(…) object is entered once; call resume(…) again")
            self._token = _resumes.set((self, *_resumes.get()))
            self._is_free = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Tasks that were started inside the block still refer to this object, and must not use it after the block.
        self._is_free = False
        if self._token is not None:
            # `reset` raises ValueError if the block is in a generator that began in one context (such as a task) and is
            # closed in another. This error must not replace the exception of the block.
            with suppress(ValueError):
                _resumes.reset(self._token)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def take(self, state: GuardState) -> str | None:
        """Return the approval id if it is not yet taken and calls of this guard may use it; otherwise None."""
        with self._lock:
            if not self._is_free or not self._belongs(state):
                return None
            self._is_free = False
            return self._approval_id


def take_approval(state: GuardState) -> str | None:
    """Return the id of the approval request that a new call must continue, or None.

    Each `resume` block passes its id to one call only. Inner blocks take precedence over outer blocks.
    """
    for resume in _resumes.get():
        approval_id = resume.take(state)
        if approval_id is not None:
            return approval_id
    return None


class _Authorization:
    """Authorization for one call with the given action, agent and arguments to run without a check."""

    def __init__(self, state: GuardState, action: str, agent_id: str, context: dict[str, Json]) -> None:
        self._state = state
        self._call = action, agent_id, dumps(context, canonical=True)
        self._is_valid = True
        self._lock = threading.Lock()

    def take(self, state: GuardState, action: str, agent_id: str, context: dict[str, Json]) -> bool:
        """Return True if the authorization is for this call and has not been used; mark it as used."""
        if state is not self._state or self._call != (action, agent_id, dumps(context, canonical=True)):
            return False
        with self._lock:
            was_valid, self._is_valid = self._is_valid, False
        return was_valid

    def invalidate(self) -> None:
        with self._lock:
            self._is_valid = False


@contextmanager
def authorize(state: GuardState, action: str, agent_id: str, context: dict[str, Json]) -> Iterator[None]:
    """Allow one call inside the `with` block, with this action, agent and context, to run without a check.

    The first such call in this thread or task uses the authorization, which ends with the block.
    """
    authorization = _Authorization(state, action, agent_id, context)
    token = _authorization.set(authorization)
    try:
        yield
    finally:
        # Tasks that were started inside the block still refer to the object, and must not use it after the block.
        authorization.invalidate()
        _authorization.reset(token)


def take_authorization(state: GuardState, action: str, agent_id: str, context: dict[str, Json]) -> bool:
    """Return True if an unused authorization exists for exactly this call, and mark it as used."""
    authorization = _authorization.get()
    return authorization is not None and authorization.take(state, action, agent_id, context)


_resumes: ContextVar[tuple[Resume, ...]] = ContextVar("toolgate_resumes", default=())
_authorization: ContextVar[_Authorization | None] = ContextVar("toolgate_authorization", default=None)
