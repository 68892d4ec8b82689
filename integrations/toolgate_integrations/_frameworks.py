"""The frameworks there are plugins for, and whether one is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from toolgate import ConfigurationError

__all__ = ["INTEGRATIONS", "Integration", "MissingFrameworkError", "require"]


@dataclass(frozen=True, slots=True)
class Integration:
    """One framework there is a plugin for.

    Attributes:
        identifier: The plugin's module, and the extra that installs the framework.
        distribution: The framework's package.
        minimum: The oldest version with the hook.
    """

    identifier: str
    distribution: str
    minimum: str


INTEGRATIONS: Final[Mapping[str, Integration]] = {
    one.identifier: one
    for one in (
        Integration("langchain", "langchain", "1.2.15"),
        Integration("openai_agents", "openai-agents", "0.14"),
        Integration("pydantic_ai", "pydantic-ai-slim", "2.28"),
        Integration("mcp", "mcp", "2.0"),
        Integration("fastmcp", "fastmcp", "4.0"),
    )
}


class MissingFrameworkError(ConfigurationError, ImportError):
    """The framework of a plugin is not installed, or too old."""


def require(identifier: str) -> None:
    """Look whether the framework of a plugin is there, before anything of it is imported.

    Raises:
        MissingFrameworkError: It is not, or too old; one line, with the command that installs it.
    """
    wanted = INTEGRATIONS[identifier]
    cure = f"pip install 'toolgate[{identifier.replace('_', '-')}]'"
    try:
        found = version(wanted.distribution)
    except PackageNotFoundError:
        raise MissingFrameworkError(f"{wanted.distribution!r} is not installed; {cure}") from None
    if _release(found) < _release(wanted.minimum):
        raise MissingFrameworkError(
            f"{wanted.distribution!r} is {found}, and {wanted.minimum} is the oldest that can be guarded; {cure}"
        )


def _release(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.split("."):
        digits = "".join(char for char in part if char.isdigit())
        if not part[:1].isdigit():
            break
        numbers.append(int(digits))
    return tuple(numbers)
