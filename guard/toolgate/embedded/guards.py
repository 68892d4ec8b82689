"""Making a guard with its gateway in this process."""

from __future__ import annotations

import hashlib
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from toolgate._outbox.place import MEMORY
from toolgate.embedded.at_exit import close_at_exit
from toolgate.embedded.gateway import EmbeddedGateway
from toolgate.embedded.loading import open_embedded
from toolgate.errors import ConfigurationError
from toolgate.permitted import Actions, Permitted, read_permissions

if TYPE_CHECKING:
    from toolgate.guard import Guard

__all__ = ["embedded_guard"]

_Guard = TypeVar("_Guard", bound="Guard")
_MEMORY: Final = ":memory:"


def embedded_guard(
    make: type[_Guard],
    path: str | os.PathLike[str],
    agent: str,
    allow: Actions,
    hold: Actions,
    timeout: float | None,
) -> _Guard:
    """Open the gateway and make the guard that asks it.

    Raises:
        ConfigurationError: An argument is wrong, the gateway is not installed, or the file cannot be used.
    """
    place = _place(path)
    permissions = [_sent(each) for each in read_permissions(allow, hold)]
    if not isinstance(agent, str):
        raise ConfigurationError(f"agent is {agent!r}; pass a name, like 'support-bot'")
    embedded = open_embedded(place, agent, permissions)
    gateway = EmbeddedGateway(embedded)
    try:
        # An address that is this file's: what still waits to be recorded goes to no other.
        named = hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
        guard = make(
            f"http://{named}.embedded.invalid",
            embedded.api_key,
            embedded.agent_id,
            timeout=timeout,
            allow_insecure=True,
            transport=gateway,
            outbox=MEMORY if place == _MEMORY else None,
        )
    except BaseException:
        embedded.close()
        raise
    # Signalled and not awaited: whatever thread collects garbage must not wait for this one.
    weakref.finalize(guard, gateway.end).atexit = False
    close_at_exit(guard._runtime)  # noqa: SLF001 - the same object, one floor down
    return guard


def _place(path: object) -> str:
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise ConfigurationError(
            f"path is {path!r}; pass the database's file, like 'toolgate.db', or {_MEMORY!r}"
        )
    text = os.fsdecode(path)
    return text if text == _MEMORY else str(Path(text).expanduser().absolute())


def _sent(permitted: Permitted) -> dict[str, Any]:
    return {
        "action": permitted.action,
        "requires_approval": permitted.held,
        "max_amount": permitted.max_amount,
        "amount_required": permitted.amount_required,
    }
