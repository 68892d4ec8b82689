"""Which agent acts, and in which run.

Order: an `agent_id` written at the very call (`check`, `log`, `action`), then `acting_as`,
then the decorator's, then the guard's argument, then `TOOLGATE_AGENT_ID`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import cast

from toolgate.errors import ConfigurationError
from toolgate.setup_errors import report_setup_error

__all__ = ["Identity", "acting_as", "identify", "valid_approval_id", "valid_id"]

_MAX_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Identity:
    """The agent that acts, the run it acts in, and the call as its framework names it."""

    agent_id: str
    run_id: str | None = None
    call_id: str | None = None


_acting: ContextVar[Identity | None] = ContextVar("toolgate_acting", default=None)


def valid_id(value: object, name: str) -> str:
    """Return `value` if it can be an identifier: 1 to 255 printable characters.

    Raises:
        ConfigurationError: Naming `name`, the value and the cure.
    """
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError(f"{name} is {value!r}; pass a non-empty string")
    if len(value) > _MAX_LENGTH or not value.isprintable():
        raise ConfigurationError(
            f"{name} {value[:40]!r} has {len(value)} characters; use at most {_MAX_LENGTH} printable ones"
        )
    return value


def valid_approval_id(value: object) -> str:
    """Return `value` if it can be an approval's id.

    Raises:
        ConfigurationError: Naming the value and the cure.
    """
    if valid_id(value, "approval_id") in {".", ".."}:
        raise ConfigurationError(f"approval_id is {value!r}; pass the approval_id of an ApprovalPending")
    return cast("str", value)


def acting_as(agent_id: str, *, run_id: str | None = None) -> AbstractContextManager[None]:
    """Make the calls inside act as another agent, in this thread or task only.

    Args:
        agent_id: The agent the calls inside act as.
        run_id: The run they belong to; without it an enclosing `acting_as`'s run goes on.

    Returns:
        A context manager, to be entered once with `with` (also inside coroutines).

    Raises:
        ConfigurationError: If an id is empty, longer than 255 characters or not printable.
    """
    valid_id(agent_id, "agent_id")
    if run_id is not None:
        valid_id(run_id, "run_id")
    return _ActingAs(agent_id, run_id)


def identify(explicit: str | None, *fallbacks: str | None) -> Identity:
    """Say who acts now.

    Args:
        explicit: An agent id written at the call itself; wins over `acting_as`.
        *fallbacks: Agent ids to take when nothing else says who acts, the first one that is set.

    Raises:
        ConfigurationError: If nothing names an agent.
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


# A class and not @contextmanager: that would also work as a decorator, and on a coroutine function
# the identity would be gone before the body runs.
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
