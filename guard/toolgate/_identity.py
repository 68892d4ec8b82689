"""Context variables of the current thread or task, which the next guarded call uses when it begins.

They contain the agent, its run, the call id and the stated reason. Two more variables contain the approval request that
the next call continues (`Resume`), and the decision about an enclosing action block (`authorize`), which allows the
call without a second check.

The agent of a call is the first of these that is set: the `agent_id` passed to `check`, `log` or `action`; the agent of
`acting_as`; the `agent_id` of the decorator; the `agent_id` of the guard; the variable `TOOLGATE_AGENT_ID`.
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
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar, cast

from toolgate._telemetry import report_setup_error, warn_renamed
from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from toolgate._capture.jsontext import Json
    from toolgate._state import GuardState

__all__ = [
    "MAX_REASON_LENGTH",
    "Identity",
    "Resume",
    "acting_as",
    "authorize",
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
    "take_approval",
    "take_authorization",
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
    """Agent and run of a call, and the id that the agent framework gave the call."""

    agent_id: str
    run_id: str | None = None
    call_id: str | None = None


def valid_id(value: object, name: str) -> str:
    """Return `value` if it is a valid identifier: 1 to 255 printable characters.

    Raises:
        ConfigurationError: The value is not valid; the message contains `name`, the value and the fix.
    """
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name} is {value!r}; pass a non-empty string")
    if len(value) > _MAX_ID_LENGTH or not value.isprintable():
        raise ConfigurationError(
            f"Invalid {name} {value[:40]!r}; use at most {_MAX_ID_LENGTH} printable characters"
        )
    return value


def valid_approval_id(value: object) -> str:
    """Return `value` if it can be the id of an approval request.

    Raises:
        ConfigurationError: The value is not valid; the message contains it and the fix.
    """
    if valid_id(value, "approval_id") in {".", ".."}:
        raise ConfigurationError(f"approval_id is {value!r}; pass the approval_id of an ApprovalPending")
    return cast("str", value)


def acting_as(agent_id: str, *, run_id: str | None = None) -> AbstractContextManager[None]:
    """Set the agent of all calls inside the block, in this thread or task only.

        with toolgate.acting_as("billing-bot", run_id="run-17"):
            refund("ch_1", 5)

    Args:
        agent_id: The agent of the calls inside the block.
        run_id: The run of these calls. If it is None, the run of an enclosing `acting_as` applies.

    Returns:
        A context manager that can be entered once, with `with` (also inside coroutines).

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
    """Set the call id of the next guarded call: the id that the agent framework gave this tool call.

    The first guarded call or block that begins inside this block, in this thread or task, gets the id. If the call
    requires an approval and the framework repeats it with the same id, the gateway uses the same approval request, and
    stores one pending or denied log entry instead of one per repetition. An approval of the call covers no other call,
    and allows the call to run only once.

    Args:
        call_id: Id of the call, unique within its run; 1 to 255 printable characters. None sets only the run.
        run_id: The run of all calls inside the block, unless `acting_as` sets a run.
        pauses: Types of exceptions with which a tool requests to be called again later. Such a call is logged as
            `pending` instead of `failed`.

    Returns:
        A context manager that can be entered once, with `with` (also inside coroutines).

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
    """Return a function that calls `function` in another thread with the agent, run and call id of this thread.

    Use it with `loop.run_in_executor`, `ThreadPoolExecutor.submit` and `threading.Thread`. Functions that they run do
    not get the values of `acting_as`, `tool_call`, `reason` and `resume`; tasks and `asyncio.to_thread` get them. The
    returned function may be called any number of times, also in parallel. For a process pool, use `acting_as` inside
    the function that the pool runs.

        pool.submit(toolgate.bind_context(refund), "ch_1", 5)

    Args:
        function: A plain function.

    Returns:
        A function with the same signature.
    """
    context = contextvars.copy_context()

    @functools.wraps(function)
    def bound(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        # Each call uses its own copy, because two threads cannot run in one context at the same time.
        return context.copy().run(function, *args, **kwargs)

    return bound


def carry(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Deprecated name of `bind_context`."""
    warn_renamed("toolgate.carry", "toolgate.bind_context")
    return bind_context(function)


def identify(explicit: str | None, *fallbacks: str | None) -> Identity:
    """Return the current agent and its run.

    Args:
        explicit: An agent id passed to the call itself; takes precedence over `acting_as`.
        *fallbacks: Agent ids to use outside of `acting_as`; the first one that is not None is used.

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
        "no agent id is set; set the environment variable TOOLGATE_AGENT_ID, pass agent_id=… or wrap the call in acting_as(…)"
    )
    report_setup_error(error)
    raise error


def with_current_run(who: Identity) -> Identity:
    """Return `who` (agent and run of a call); if it contains no run, add the run of the enclosing `tool_call` block."""
    current = _tool_call.get()
    if current is None or current.run_id is None or who.run_id is not None:
        return who
    return replace(who, run_id=current.run_id)


def identify_call(explicit: str | None, *fallbacks: str | None) -> Identity:
    """Return the agent, the run and the call id of a call that begins.

    Only the first call that begins inside a `tool_call` block gets the call id of the block.
    `explicit` and `fallbacks` are agent ids, as in `identify`.
    """
    who = identify(explicit, *fallbacks)
    current = _tool_call.get()
    if current is None:
        return who
    call_id = current.take()
    who = with_current_run(who)
    return who if call_id is None else replace(who, call_id=call_id)


def pausing_exceptions() -> tuple[type[BaseException], ...]:
    """Return the argument `pauses` of the enclosing `tool_call`: types of exceptions to log as `pending`."""
    current = _tool_call.get()
    return () if current is None else current.pauses


@contextmanager
def reason(text: str) -> Iterator[None]:
    """Set the reason of the tool calls inside the block. Approvers see the reason with each approval request.

    Pass, for example, the user's request to the agent. The gateway does not verify the text, and no decision depends on
    it. An approval stays valid if the reason changes. Secrets are masked as in arguments, and at most 1,000 characters
    are sent.

        with toolgate.reason(user_message):
            agent.invoke({"messages": [user_message]})

    Args:
        text: The reason; surrounding white space is removed, and an empty text is not sent.

    Raises:
        ConfigurationError: If the text is not a string.
    """
    _valid_reason(text)
    token = _reason.set(text)
    try:
        yield
    finally:
        # `reset` raises ValueError if the block is in a generator that began in one context (such as a task) and is
        # closed in another. In the second context, nothing has to be reset.
        with suppress(ValueError):
            _reason.reset(token)


def current_reason(patterns: Iterable[re.Pattern[str]] = ()) -> str | None:
    """Return the text of the enclosing `reason` block, with secrets masked and cut to 1,000 characters, or None."""
    text = _reason.get()
    return None if text is None else sendable_reason(text, patterns)


def sendable_reason(text: str, patterns: Iterable[re.Pattern[str]] = ()) -> str | None:
    """Return `text` without secrets and control characters, cut to 1,000 characters; None if it is empty.

    Raises:
        ConfigurationError: If `text` is not a string.
    """
    from toolgate._capture.redaction import REDACTED, SecretRule

    text = _valid_reason(text).strip()
    # Secrets are masked before the text is cut, because a secret that is cut off might not match its pattern.
    masked = SecretRule(patterns=patterns).mask(text)
    if masked is not None:
        text = REDACTED if masked.visible is None else masked.visible
    text = "".join(char if is_allowed_in_text(char) else "�" for char in text[: MAX_REASON_LENGTH + 1])
    return (text if len(text) <= MAX_REASON_LENGTH else f"{text[: MAX_REASON_LENGTH - 1]}…") or None


def is_allowed_in_text(char: str) -> bool:
    """Return True if the gateway accepts a character in free text."""
    # White space other than the ASCII space, and the joiners inside emoji, are allowed although `isprintable` is False.
    return char.isprintable() or char in "\n\r\t" or char in _JOINERS or unicodedata.category(char) == "Zs"


def _valid_reason(text: object) -> str:
    if not isinstance(text, str):
        raise ConfigurationError(
            f"reason is of type {type(text).__name__}; pass a string, such as the user's request"
        )
    return text


# The following context managers do not use @contextmanager, because its result can also be used as a decorator. As the
# decorator of a coroutine function, it would reset the context variable before the body of the function runs.
class _ActingAs(AbstractContextManager[None]):
    def __init__(self, agent_id: str, run_id: str | None) -> None:
        self._agent_id = agent_id
        self._run_id = run_id
        self._token: Token[Identity | None] | None = None

    def __enter__(self) -> None:
        if self._token is not None:
            raise ConfigurationError("acting_as(…) was already entered; call it again for each with block")
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
        """Return the call id once, and then None, so that guarded calls inside the tool do not get the same id."""
        with self._lock:
            call_id, self._call_id = self._call_id, None
            return call_id

    def __enter__(self) -> None:
        if self._token is not None:
            raise ConfigurationError("tool_call(…) was already entered; call it again for each with block")
        self._token = _tool_call.set(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Tasks that were started inside the block still refer to this object. They must not get the call id after the
        # block.
        self.take()
        if self._token is not None:
            # `reset` raises ValueError if the block is in a generator that began in one context (such as a task) and is
            # closed in another. In the second context, nothing has to be reset.
            with suppress(ValueError):
                _tool_call.reset(self._token)


_acting: ContextVar[Identity | None] = ContextVar("toolgate_acting", default=None)
_tool_call: ContextVar[_ToolCall | None] = ContextVar("toolgate_tool_call", default=None)
_reason: ContextVar[str | None] = ContextVar("toolgate_reason", default=None)


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
                raise ConfigurationError("resume(…) was already entered; call it again for each with block")
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
    """Authorization to run one call, with the given action, agent and arguments, without a check."""

    def __init__(self, state: GuardState, action: str, agent_id: str, context: dict[str, Json]) -> None:
        self._state = state
        self._call = action, agent_id, _canonical(context)
        self._is_valid = True
        self._lock = threading.Lock()

    def take(self, state: GuardState, action: str, agent_id: str, context: dict[str, Json]) -> bool:
        """Return True if the authorization is for this call and has not been used; mark it as used."""
        if state is not self._state or self._call != (action, agent_id, _canonical(context)):
            return False
        with self._lock:
            was_valid, self._is_valid = self._is_valid, False
        return was_valid

    def invalidate(self) -> None:
        with self._lock:
            self._is_valid = False


def _canonical(context: dict[str, Json]) -> str:
    # The import is not at the top of the module, so that decorating a function does not load the imported module.
    from toolgate._capture.jsontext import dumps

    return dumps(context, canonical=True)


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
