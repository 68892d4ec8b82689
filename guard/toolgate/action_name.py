"""Action identifiers."""

from __future__ import annotations

from typing import Final

from toolgate.errors import ConfigurationError

__all__ = ["exact_action", "valid_action"]

_MAX_LENGTH: Final = 255
_WILDCARDS: Final = "*?"


def valid_action(action: object) -> str:
    """Return `action` if it is an action identifier: 1 to 255 visible ASCII characters (decisions §2).

    Raises:
        ConfigurationError: Naming the value and the cure.
    """
    if not isinstance(action, str):
        raise ConfigurationError(
            f"the action is {action!r} and not a name; write the action in parentheses: @guarded('service.operation')"
        )
    if not 0 < len(action) <= _MAX_LENGTH or not all("!" <= char <= "~" for char in action):
        raise ConfigurationError(
            f"action {action[:40]!r} is no identifier; use 1 to {_MAX_LENGTH} visible ASCII characters, "
            "like 'service.operation'"
        )
    return action


def exact_action(action: object) -> str:
    """Return `action` if a permission can name it: an action identifier without wildcards.

    Raises:
        ConfigurationError: Naming the value and the cure.
    """
    name = valid_action(action)
    found = next((char for char in name if char in _WILDCARDS), None)
    if found is not None:
        raise ConfigurationError(
            f"action {name[:40]!r} contains the wildcard {found!r}, and permissions match actions exactly; "
            "create one permission for each action"
        )
    return name
