"""The call by the name somebody else gave it: a framework's id of one tool call, and of the run it belongs to."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar, Token
from dataclasses import replace
from types import TracebackType

from toolgate.errors import ConfigurationError
from toolgate.identity import Identity, valid_id

__all__ = ["calling", "in_run", "named", "pauses_now"]


def calling(
    call_id: str | None, *, run_id: str | None = None, pauses: Iterable[type[BaseException]] = ()
) -> AbstractContextManager[None]:
    """Name the call that begins inside: what carries out the same call again asks about the same call.

    The first guarded call or block that begins inside, in this thread or task, bears the name. Held, it is the same
    request however often it is asked for, and its hold or refusal is one log entry; an approval made for it lets
    no other call through, and it never passes by an approval twice (decisions §5).

    Args:
        call_id: The call, within its run; 1 to 255 printable characters. None names the run alone.
        run_id: The run of all calls inside, unless `acting_as` names one.
        pauses: Exceptions by which tools inside stop only to be called again: they are logged `pending` in
            place of `failed`.

    Returns:
        A context manager, to be entered once with `with` (also inside coroutines).

    Raises:
        ConfigurationError: If an id cannot be one.
    """
    if call_id is not None:
        valid_id(call_id, "call_id")
    if run_id is not None:
        valid_id(run_id, "run_id")
    return _Calling(call_id, run_id, tuple(pauses))


def in_run(who: Identity) -> Identity:
    """Who acts, in the run of the call that is named, unless they have one."""
    calling = _calling.get()
    if calling is None or calling.run_id is None or who.run_id is not None:
        return who
    return replace(who, run_id=calling.run_id)


def named(who: Identity) -> Identity:
    """Who calls, in its run, and by its name if this is the first call to take it."""
    calling = _calling.get()
    call_id = None if calling is None else calling.take()
    who = in_run(who)
    return who if call_id is None else replace(who, call_id=call_id)


def pauses_now() -> tuple[type[BaseException], ...]:
    """What tools that begin now may raise to be called again."""
    calling = _calling.get()
    return () if calling is None else calling.pauses


class _Calling(AbstractContextManager[None]):
    def __init__(
        self, call_id: str | None, run_id: str | None, pauses: tuple[type[BaseException], ...]
    ) -> None:
        self.run_id = run_id
        self.pauses = pauses
        self._call_id: str | None = call_id
        self._lock = threading.Lock()
        self._token: Token[_Calling | None] | None = None

    def take(self) -> str | None:
        """The name, once: what is guarded inside the tool is other calls."""
        with self._lock:
            call_id, self._call_id = self._call_id, None
            return call_id

    def __enter__(self) -> None:
        if self._token is not None:
            raise ConfigurationError("a calling(…) object is entered once; call calling(…) again")
        self._token = _calling.set(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Tasks begun inside still see it afterwards.
        self.take()
        if self._token is not None:
            # What is closed in another context than it began in must not be ended by this.
            with suppress(ValueError):
                _calling.reset(self._token)


_calling: ContextVar[_Calling | None] = ContextVar("toolgate_calling", default=None)
