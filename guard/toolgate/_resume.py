"""Context variables that a call takes when it begins: an approval request to continue, and an authorization."""

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
    """Block whose first guarded call continues an approval request; entered once, with `with` or `async with`.

    Args:
        approval_id: The approval request.
        belongs: Returns True for the guard that requested it.

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
        # Tasks that began inside still see the object.
        self._is_free = False
        if self._token is not None:
            # A generator may be closed in another context than it began in; its exception must not be replaced.
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
        """Return the approval id to the first call of the right guard, and None to all others."""
        with self._lock:
            if not self._is_free or not self._belongs(state):
                return None
            self._is_free = False
            return self._approval_id


def take_approval(state: GuardState) -> str | None:
    """Return the approval request that a call beginning now continues; no other call continues it."""
    for resume in _resumes.get():
        approval_id = resume.take(state)
        if approval_id is not None:
            return approval_id
    return None


class _Authorization:
    """Decision that lets one equal call run, once."""

    def __init__(self, state: GuardState, action: str, agent_id: str, context: dict[str, Json]) -> None:
        self._state = state
        self._call = action, agent_id, dumps(context, canonical=True)
        self._is_valid = True
        self._lock = threading.Lock()

    def take(self, state: GuardState, action: str, agent_id: str, context: dict[str, Json]) -> bool:
        """Return True if the decision was made for this call, and invalidate it."""
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
    """Let the first equal guarded call inside, in this thread or task, run without a second check."""
    authorization = _Authorization(state, action, agent_id, context)
    token = _authorization.set(authorization)
    try:
        yield
    finally:
        # Tasks that began inside still see the object.
        authorization.invalidate()
        _authorization.reset(token)


def take_authorization(state: GuardState, action: str, agent_id: str, context: dict[str, Json]) -> bool:
    """Return True if a decision was made for exactly this call; the next equal call is checked again."""
    authorization = _authorization.get()
    return authorization is not None and authorization.take(state, action, agent_id, context)


_resumes: ContextVar[tuple[Resume, ...]] = ContextVar("toolgate_resumes", default=())
_authorization: ContextVar[_Authorization | None] = ContextVar("toolgate_authorization", default=None)
