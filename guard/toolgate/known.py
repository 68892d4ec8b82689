"""The guards of this process, found by where and as whom they ask: a pickle names one so, and never its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from toolgate.guard import Guard
    from toolgate.runtime import Runtime

__all__ = ["find", "remember", "words_for"]


def remember(guard: Guard) -> None:
    """Let it be found for as long as somebody uses it."""
    _known.add(guard)


def words_for(runtime: Runtime) -> tuple[str, str | None, str]:
    """What `find` finds it by: the gateway, the agent, and both under a digest that its API key alone makes."""
    url, agent_id = runtime.settings.url, runtime.settings.agent_id
    return url, agent_id, runtime.hider.label(f"guard\n{url}\n{agent_id or ''}")


def find(url: str, agent_id: str | None, digest: str) -> Guard:
    """A guard of this process that is open.

    Raises:
        ConfigurationError: If there is no such guard, with the cure.
    """
    for guard in list(_known):
        runtime = guard._runtime  # noqa: SLF001 - the same object, one floor down
        if words_for(runtime) == (url, agent_id, digest) and runtime.is_open:
            return guard
    raise ConfigurationError(
        f"what is unpickled is guarded by a Guard at {url!r} for agent {agent_id!r}, and this process has none; "
        "make one with the same settings where it is imported, or use toolgate.guarded"
    )


_known: Final[WeakSet[Guard]] = WeakSet()
