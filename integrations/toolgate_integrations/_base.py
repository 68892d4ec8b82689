"""What every plugin shares: the frameworks there are, and the bridge from a framework's calls to guarded actions.

Translation only: what may happen is decided by the gateway, and asked for by `toolgate`.
"""

from __future__ import annotations

from toolgate import ConfigurationError
from toolgate_integrations._frameworks import INTEGRATIONS, Integration, MissingFrameworkError, require
from toolgate_integrations._naming import ToolActions, ToolCall, fitting
from toolgate_integrations._rejecting import Rejecting
from toolgate_integrations._waiting import Waiting

__all__ = [
    "INTEGRATIONS",
    "Bridge",
    "Integration",
    "MissingFrameworkError",
    "ToolActions",
    "ToolCall",
    "fitting",
    "require",
    "valid_on_hold",
]


class Bridge(Waiting, Rejecting):
    """Carries out a framework's tool calls as guarded actions, looks whether they wait, and takes rejections."""


def valid_on_hold(on_hold: str, pauses: str) -> None:
    """Look whether `on_hold` can be one of a plugin that calls its way to pause `pauses`.

    Raises:
        ConfigurationError: It cannot.
    """
    if on_hold not in (pauses, "wait", "tell"):
        raise ConfigurationError(f"on_hold is {on_hold!r}; use {pauses!r}, 'wait' or 'tell'")
