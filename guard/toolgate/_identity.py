"""Agent, run, call id and stated reason of the current thread or task (context variables).

The agent is, in this order: an `agent_id` passed to the call itself (`check`, `log`, `action`), `acting_as`, the
decorator's `agent_id`, the guard's argument, `TOOLGATE_AGENT_ID`.
"""

from __future__ import annotations

import contextvars
import functools
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, ParamSpec, TypeVar, cast

from toolgate._logging import report_setup_error, warn_renamed
from toolgate.errors import ConfigurationError

__all__ = [
    "MAX_REASON_LENGTH",
    "Identity",
    "acting_as",
    "bind_context",
    "calling",
    "carry",
    "current_reason",
    "identify",
    "identify_call",
    "is_allowed_in_text",
    "pausing_exceptions",
    "reason",
    "sendable_reason",
    "tool_call",
    "valid_approval_id",
    "valid_id",
    "with_current_run",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")

MAX_REASON_LENGTH: Final = 1000
_MAX_ID_LENGTH: Final = 255
_JOINERS: Final = "\u200c\u200d"


@dataclass(frozen=True, slots=True)
class Identity:
    """The agent of a call, its run, and the id that its framework gave the call."""

    agent_id: str
    run_id: str | None = None
    call_id: str | None = None


def valid_id(value: object, name: str) -> str:
    """Return `value` if it is an identifier: 1 to 255 printable characters.

    Raises:
        ConfigurationError: Naming `name`, the value and the fix.
    """
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name} is {value!r}; pass a non-empty string")
    if len(value) > _MAX_ID_LENGTH or not value.isprintable():
        raise ConfigurationError(
            f"{name} {value[:40]!r} has {len(value)} characters; use at most {_MAX_ID_LENGTH} printable ones"
        )
    return value


def valid_approval_id(value: object) -> str:
    """Return `value` if it can be the id of an approval request.

    Raises:
        ConfigurationError: Naming the value and the fix.
    """
    if valid_id(value, "approval_id") in {".", ".."}:
        raise ConfigurationError(f"approval_id is {value!r}; pass the approval_id of an ApprovalPending")
    return cast("str", value)


def acting_as(agent_id: str, *, run_id: str | None = None) -> AbstractContextManager[None]:
    """Let another agent make the calls inside the block, in this thread or task only.

        with toolgate.acting_as("billing-bot", run_id="run-17"):
            refund("ch_1", 5)

    Args:
        agent_id: The agent of the calls inside.
        run_id: The run they belong to; without it the run of an enclosing `acting_as` applies.

    Returns:
        A context manager, to be entered once with `with` (also inside coroutines).

    Raises:
        ConfigurationError: If an id is empty, longer than 255 characters or not printable.
    """
    valid_id(agent_id, "agent_id")
    if run_id is not None:
        valid_id(run_id, "run_id")
    return _ActingAs(agent_id, run_id)


def tool_call(
    call_id: str | None, *, run_id: str | None = None, pauses: Iterable[type[BaseException]] = ()
) -> AbstractContextManager[None]:
    """Give the next guarded call inside the block the id that an agent framework gave it.

    The first guarded call or block that begins inside, in this thread or task, gets the id. While it requires an
    approval, it is the same approval request however often it is repeated, and its pending or denied outcome is one
    log entry. An approval of it covers no other call, and the call never runs twice by an approval.

    Args:
        call_id: The call, within its run; 1 to 255 printable characters. None sets the run alone.
        run_id: The run of all calls inside, unless `acting_as` sets one.
        pauses: Exceptions that tools inside raise in order to be called again later: the call is logged `pending`
            instead of `failed`.

    Returns:
        A context manager, to be entered once with `with` (also inside coroutines).

    Raises:
        ConfigurationError: If an id is not valid.
    """
    if call_id is not None:
        valid_id(call_id, "call_id")
    if run_id is not None:
        valid_id(run_id, "run_id")
    return _ToolCall(call_id, run_id, tuple(pauses))


def calling(
    call_id: str | None, *, run_id: str | None = None, pauses: Iterable[type[BaseException]] = ()
) -> AbstractContextManager[None]:
    """Deprecated name of `tool_call`."""
    warn_renamed("toolgate.calling", "toolgate.tool_call")
    return tool_call(call_id, run_id=run_id, pauses=pauses)


def bind_context(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return `function`, to be called in another thread with the agent, run and call id of this one.

    For `loop.run_in_executor`, `ThreadPoolExecutor.submit` and `threading.Thread`, which start without the values of
    `acting_as` and `resume`; `asyncio.to_thread` and tasks inherit them. The result may be called any number of times,
    also in parallel. A process pool inherits nothing: use `acting_as` inside the function that it runs.

        pool.submit(toolgate.bind_context(refund), "ch_1", 5)

    Args:
        function: A plain function.

    Returns:
        A function with the same signature.
    """
    context = contextvars.copy_context()

    @functools.wraps(function)
    def bound(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        # A copy for each call: only one thread at a time can enter a context.
        return context.copy().run(function, *args, **kwargs)

    return bound


def carry(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Deprecated name of `bind_context`."""
    warn_renamed("toolgate.carry", "toolgate.bind_context")
    return bind_context(function)


def identify(explicit: str | None, *fallbacks: str | None) -> Identity:
    """Return the current agent and its run.

    Args:
        explicit: An agent id passed to the call itself; wins over `acting_as`.
        *fallbacks: Agent ids to use without `acting_as`; the first that is set.

    Raises:
        ConfigurationError: If no agent is set.
    """
    acting = _acting.get()
    run_id = acting.run_id if acting else None
    if explicit is not None:
        return Identity(explicit, run_id)
    if acting:
        return acting
    for agent_id in fallbacks:
        if agent_id is not None:
            return Identity(agent_id, run_id)
    error = ConfigurationError(
        "no agent is named; set TOOLGATE_AGENT_ID, pass agent_id=… or wrap the call in acting_as(…)"
    )
    report_setup_error(error)
    raise error


def with_current_run(who: Identity) -> Identity:
    """Return `who` with the run of the enclosing `tool_call`, unless it has one."""
    current = _tool_call.get()
    if current is None or current.run_id is None or who.run_id is not None:
        return who
    return replace(who, run_id=current.run_id)


def identify_call(explicit: str | None, *fallbacks: str | None) -> Identity:
    """Return the agent and run of a call that begins, and the id of the enclosing `tool_call` if it is still free."""
    who = identify(explicit, *fallbacks)
    current = _tool_call.get()
    if current is None:
        return who
    call_id = current.take()
    who = with_current_run(who)
    return who if call_id is None else replace(who, call_id=call_id)


def pausing_exceptions() -> tuple[type[BaseException], ...]:
    """Return the exceptions by which tools of the enclosing `tool_call` pause."""
    current = _tool_call.get()
    return () if current is None else current.pauses


@contextmanager
def reason(text: str) -> Iterator[None]:
    """State why the agent makes the tool calls inside the block: approvers read it beside each request.

    The text is the model's or the user's request. The gateway does not verify it, no decision depends on it, and an
    approval is not bound to it. Secrets are masked as in arguments, and only the first 1,000 characters are sent.

        with toolgate.reason(user_message):
            agent.invoke({"messages": [user_message]})

    Args:
        text: The reason, without leading and trailing white space; an empty text is no reason.

    Raises:
        ConfigurationError: If the text is not a string.
    """
    _valid_reason(text)
    token = _reason.set(text)
    try:
        yield
    finally:
        # A generator may be closed in another context than it began in.
        with suppress(ValueError):
            _reason.reset(token)


def current_reason(patterns: Iterable[re.Pattern[str]] = ()) -> str | None:
    """Return the reason of the enclosing `reason` block, ready to be sent, or None."""
    text = _reason.get()
    return None if text is None else sendable_reason(text, patterns)


def sendable_reason(text: str, patterns: Iterable[re.Pattern[str]] = ()) -> str | None:
    """Return a reason of at most 1,000 characters, without secrets and control characters; None if it is empty.

    Raises:
        ConfigurationError: If it is not a string.
    """
    from toolgate._capture.redaction import REDACTED, SecretRule

    text = _valid_reason(text).strip()
    # The whole text, before it is cut: half a secret does not look like one.
    masked = SecretRule(patterns=patterns).mask(text)
    if masked is not None:
        text = REDACTED if masked.visible is None else masked.visible
    text = "".join(char if is_allowed_in_text(char) else "�" for char in text[: MAX_REASON_LENGTH + 1])
    return (text if len(text) <= MAX_REASON_LENGTH else f"{text[: MAX_REASON_LENGTH - 1]}…") or None


def is_allowed_in_text(char: str) -> bool:
    """Return True if the gateway accepts a character in free text."""
    # Python calls blanks other than the space, and joiners of emoji, not printable.
    return char.isprintable() or char in "\n\r\t" or char in _JOINERS or unicodedata.category(char) == "Zs"


def _valid_reason(text: object) -> str:
    if not isinstance(text, str):
        raise ConfigurationError(
            f"reason is of type {type(text).__name__}; use a text, such as the user's request"
        )
    return text


# Classes and not @contextmanager: that would also work as a decorator, and on a coroutine function the context
# variable would be reset before the body runs.
class _ActingAs(AbstractContextManager[None]):
    def __init__(self, agent_id: str, run_id: str | None) -> None:
        self._agent_id = agent_id
        self._run_id = run_id
        self._token: Token[Identity | None] | None = None

    def __enter__(self) -> None:
        if self._token is not None:
            raise ConfigurationError("an acting_as(…) object is entered once; call acting_as(…) again")
        outer = _acting.get()
        run_id = self._run_id if self._run_id is not None or outer is None else outer.run_id
        self._token = _acting.set(Identity(self._agent_id, run_id))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            _acting.reset(self._token)


class _ToolCall(AbstractContextManager[None]):
    def __init__(
        self, call_id: str | None, run_id: str | None, pauses: tuple[type[BaseException], ...]
    ) -> None:
        self.run_id = run_id
        self.pauses = pauses
        self._call_id: str | None = call_id
        self._lock = threading.Lock()
        self._token: Token[_ToolCall | None] | None = None

    def take(self) -> str | None:
        """Return the call id once: guarded calls inside the tool are other calls."""
        with self._lock:
            call_id, self._call_id = self._call_id, None
            return call_id

    def __enter__(self) -> None:
        if self._token is not None:
            raise ConfigurationError("a tool_call(…) object is entered once; call tool_call(…) again")
        self._token = _tool_call.set(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Tasks that began inside still see the object.
        self.take()
        if self._token is not None:
            # A generator may be closed in another context than it began in.
            with suppress(ValueError):
                _tool_call.reset(self._token)


_acting: ContextVar[Identity | None] = ContextVar("toolgate_acting", default=None)
_tool_call: ContextVar[_ToolCall | None] = ContextVar("toolgate_tool_call", default=None)
_reason: ContextVar[str | None] = ContextVar("toolgate_reason", default=None)
