"""What every plugin shares: the frameworks there are, and the bridge from a framework's calls to guarded actions.

Translation only: what may happen is decided by the gateway, and asked for by `toolgate`.
"""

from __future__ import annotations

from toolgate import ConfigurationError
from toolgate_integrations._between import Begun, Between
from toolgate_integrations._frameworks import INTEGRATIONS, Integration, MissingFrameworkError, require
from toolgate_integrations._naming import ToolActions, ToolCall, fitting, function_of
from toolgate_integrations._rejecting import Rejecting
from toolgate_integrations._waiting import Waiting

__all__ = [
    "INTEGRATIONS",
    "Begun",
    "Bridge",
    "Integration",
    "MissingFrameworkError",
    "ToolActions",
    "ToolCall",
    "fitting",
    "function_of",
    "require",
    "text_or_none",
    "valid_on_hold",
]


class Bridge(Waiting, Rejecting, Between):
    """Carries out a framework's tool calls as guarded actions, looks whether they wait, and takes rejections."""

    def __deepcopy__(self, memo: object) -> Bridge:
        """The same one: a copy of what is guarded is guarded by the same guard."""
        return self


def valid_on_hold(on_hold: str, pauses: str | None = None) -> None:
    """Look whether `on_hold` can be one of a plugin.

    Args:
        on_hold: What its user says.
        pauses: What it calls its way to pause; None if it has none.

    Raises:
        ConfigurationError: It cannot.
    """
    if on_hold not in ("wait", "tell") and (pauses is None or on_hold != pauses):
        words = "'wait' or 'tell'" if pauses is None else f"{pauses!r}, 'wait' or 'tell'"
        raise ConfigurationError(f"on_hold is {on_hold!r}; use {words}")


def text_or_none(given: object, name: str) -> str | None:
    """What a plugin's user names something, if they do.

    Args:
        given: What they say.
        name: What it is called where they say it.

    Raises:
        ConfigurationError: It is no text.
    """
    if given is not None and not isinstance(given, str):
        raise ConfigurationError(f"{name} is {given!r}; pass text, or leave it out")
    return given
