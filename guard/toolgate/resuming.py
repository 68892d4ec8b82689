"""Continue an approval asked for earlier: by a call that raised, or by a process that died while it waited."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token
from types import TracebackType

from toolgate.errors import ConfigurationError
from toolgate.identity import valid_approval_id
from toolgate.runtime import Runtime

__all__ = ["Resume", "resumed_by"]


class Resume:
    """A block whose first guarded call continues an approval; entered once, with `with` or `async with`.

    Args:
        approval_id: The approval.
        belongs: Whether a call's guard is the one the approval was asked for with.

    Raises:
        ConfigurationError: If the id can be none.
    """

    def __init__(self, approval_id: str, belongs: Callable[[Runtime], bool]) -> None:
        self._approval_id = valid_approval_id(approval_id)
        self._belongs = belongs
        self._lock = threading.Lock()
        self._free = False
        self._token: Token[tuple[Resume, ...]] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._token is not None:
                raise ConfigurationError("a resume(…) object is entered once; call resume(…) again")
            self._token = _resuming.set((self, *_resuming.get()))
            self._free = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Tasks begun inside still see it afterwards.
        self._free = False
        if self._token is not None:
            # A generator may be closed in another context than it began in; what ends it must not be replaced,
            # and this object, wherever it is still seen, hands out nothing any more.
            with suppress(ValueError):
                _resuming.reset(self._token)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def take(self, runtime: Runtime) -> str | None:
        """The approval, for the first call that asks with the right guard."""
        with self._lock:
            if not self._free or not self._belongs(runtime):
                return None
            self._free = False
            return self._approval_id


def resumed_by(runtime: Runtime) -> str | None:
    """The approval that a call beginning now with this guard continues; no other call will."""
    for resume in _resuming.get():
        approval_id = resume.take(runtime)
        if approval_id is not None:
            return approval_id
    return None


_resuming: ContextVar[tuple[Resume, ...]] = ContextVar("toolgate_resuming", default=())
