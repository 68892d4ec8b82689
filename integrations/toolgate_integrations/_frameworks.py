"""The frameworks there are plugins for, and whether one is here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from toolgate import ConfigurationError

__all__ = ["INTEGRATIONS", "Integration", "MissingFrameworkError", "is_at_least", "require"]


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
        Integration("langchain", "langchain", "1.0.3"),
        Integration("openai_agents", "openai-agents", "0.12.1"),
        Integration("pydantic_ai", "pydantic-ai-slim", "2.0"),
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
    if _order(found) < _order(wanted.minimum):
        raise MissingFrameworkError(
            f"{wanted.distribution!r} is {found}, and {wanted.minimum} is the oldest that can be guarded; {cure}"
        )


def is_at_least(identifier: str, minimum: str) -> bool:
    """Whether the framework of a plugin, which is there, is of a version or a later one.

    Args:
        identifier: The plugin's.
        minimum: The version.
    """
    return _order(version(INTEGRATIONS[identifier].distribution)) >= _order(minimum)


def _order(text: str) -> tuple[int, tuple[int, ...], bool]:
    """What versions are compared by: what leads up to a release comes before it, what is mended after it does not."""
    found = _VERSION.match(text)
    if found is None:
        return (0, (), False)
    numbers = [int(each) for each in found["release"].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return (int(found["epoch"] or 0), tuple(numbers), found["leads_up"] is None)


# As far as PEP 440 is needed: `packaging`, which knows all of it, is no dependency of every framework.
_VERSION: Final = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)[._-]?(?P<leads_up>a|b|c|rc|pre|dev)?",
    re.IGNORECASE | re.ASCII,
)
