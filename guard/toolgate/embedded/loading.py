"""Finding the gateway, which the SDK does not know: through the entry points of this distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from importlib.metadata import entry_points
from typing import Any, Final, Protocol, TypeAlias, cast

from toolgate.errors import ConfigurationError

__all__ = ["Answered", "Embedded", "open_embedded"]

_GROUP: Final = "toolgate.gateway"
_CURE: Final = "install it with: pip install 'toolgate[service]'"

#: status, headers with names in lower case, body
Answered: TypeAlias = tuple[int, dict[str, str], bytes]


class Embedded(Protocol):
    """A gateway on a thread of its own."""

    @property
    def agent_id(self) -> str:
        """The agent."""
        ...

    @property
    def api_key(self) -> str:
        """A key that acts as the agent alone."""
        ...

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Future[Answered]:
        """Send one request; a cancelled future hangs up."""
        ...

    def decide(self, method: str, target: str, body: bytes | None) -> Future[Answered]:
        """Send one request as the person at this machine."""
        ...

    def end(self) -> None:
        """Begin to end, and wait for nothing."""
        ...

    def close(self) -> None:
        """End, in order."""
        ...


def open_embedded(path: str, agent: str, permissions: Sequence[Mapping[str, Any]]) -> Embedded:
    """Open the gateway on a file.

    Raises:
        ConfigurationError: It is not installed, or cannot be opened; the message says why, and the cure.
    """
    start, start_error = _load("embedded"), cast("type[Exception]", _load("StartError"))
    try:
        return cast("Embedded", start(path, agent, permissions))
    except start_error as error:
        raise ConfigurationError(f"the embedded gateway cannot be opened: {error}") from error


def _load(name: str) -> Any:
    found = list(entry_points(group=_GROUP, name=name))
    if not found:
        raise ConfigurationError(f"the embedded gateway is not installed; {_CURE}")
    try:
        return found[0].load()
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the embedded gateway needs its extra ({error.name!r} is missing); {_CURE}"
        ) from error
