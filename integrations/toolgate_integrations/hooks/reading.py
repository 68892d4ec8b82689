"""A hook's JSON: what is missing or of another kind is refused, since nothing may run unasked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from toolgate import ConfigurationError

__all__ = ["as_json", "duration_of", "folder_beside", "object_of", "own_text", "text_of", "told"]


def told(given: bytes) -> dict[str, Any]:
    """The one JSON object that a hook is given.

    Raises:
        ConfigurationError: It is none.
    """
    try:
        found = json.loads(given)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the hook's input is no JSON ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise ConfigurationError(f"the hook's input is no JSON object, but {type(found).__name__}")
    return found


def text_of(given: Mapping[str, Any], name: str) -> str:
    """A text that has to be there.

    Raises:
        ConfigurationError: It is not.
    """
    found = own_text(given, name)
    if found is None:
        raise ConfigurationError(f"the hook's input has no {name!r}; was it written by another program?")
    return found


def own_text(given: Mapping[str, Any], name: str) -> str | None:
    """A text that need not be there; anything else in its place is none."""
    found = given.get(name)
    return found if isinstance(found, str) and found else None


def object_of(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """An object that has to be there.

    Raises:
        ConfigurationError: It is not.
    """
    found = given.get(name)
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"the hook's input has no object {name!r}; was it written by another program?"
        )
    return found


def duration_of(given: Mapping[str, Any]) -> float | None:
    """How long a tool ran, in milliseconds, if that is told."""
    found = given.get("duration_ms")
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def folder_beside(arguments: Mapping[str, Any], folder: str | None) -> dict[str, str]:
    """The folder in which a command runs: without it `rm -r build` says little."""
    return {"cwd": folder} if folder and "command" in arguments and "cwd" not in arguments else {}


def as_json(answer: Mapping[str, Any]) -> bytes:
    """What a hook answers. In ASCII: no encoding of a terminal's can spoil it."""
    return json.dumps(answer).encode("ascii")
