"""The guards of this process, found by where and as whom they ask: a pickle names one so, and never its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from toolgate.runtime import Runtime

__all__ = ["find", "remember", "words_for"]


def remember(runtime: Runtime) -> None:
    """Let it be found for as long as somebody uses it."""
    _known.add(runtime)


def words_for(runtime: Runtime) -> tuple[str, str | None, str]:
    """What `find` finds it by: the gateway, the agent, and both under a digest that its API key alone makes."""
    url, agent_id = runtime.settings.url, runtime.settings.agent_id
    return url, agent_id, runtime.hider.label(f"guard\n{url}\n{agent_id or ''}")


def find(url: str, agent_id: str | None, digest: str) -> Runtime:
    """The guard's shared parts in this process.

    Raises:
        ConfigurationError: If there is no such guard, with the cure.
    """
    for runtime in list(_known):
        if words_for(runtime) == (url, agent_id, digest) and runtime.is_open:
            return runtime
    raise ConfigurationError(
        f"what is unpickled is guarded by a Guard at {url!r} for agent {agent_id!r}, and this process has none; "
        "make one with the same settings where it is imported, or use toolgate.guarded"
    )


_known: Final[WeakSet[Runtime]] = WeakSet()
