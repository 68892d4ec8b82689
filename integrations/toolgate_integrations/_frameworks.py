"""The frameworks there are plugins for, and whether one is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from toolgate import ConfigurationError
from toolgate_integrations._versions import order

__all__ = ["INTEGRATIONS", "Integration", "MissingFrameworkError", "Part", "is_at_least", "require"]


@dataclass(frozen=True, slots=True)
class Part:
    """A distribution that a plugin needs, and its versions; the page of supported versions says the same.

    Attributes:
        distribution: Its name.
        minimum: The oldest version with the hook.
        tested: The newest that `make test` runs with.
    """

    distribution: str
    minimum: str
    tested: str


@dataclass(frozen=True, slots=True)
class Integration:
    """One framework there is a plugin for.

    Attributes:
        identifier: The plugin's module, and the extra that installs the framework.
        distribution: The framework's package.
        minimum: The oldest version with the hook.
        tested: The newest version that `make test` runs with.
        beside: What else of the framework the plugin needs, and runs tools too.
        slim: A distribution that has the framework's code without its name.
    """

    identifier: str
    distribution: str
    minimum: str
    tested: str
    beside: tuple[Part, ...] = ()
    slim: str | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """All that the plugin needs."""
        return (Part(self.distribution, self.minimum, self.tested), *self.beside)

    @property
    def cure(self) -> str:
        """The command that installs it."""
        return f"pip install 'toolgate[{self.identifier.replace('_', '-')}]'"


INTEGRATIONS: Final[Mapping[str, Integration]] = {
    one.identifier: one
    for one in (
        Integration("anthropic", "anthropic", "2.0", "2.11.0"),
        Integration("langchain", "langchain", "1.0.3", "1.4.7", (Part("langgraph", "1.0.2", "1.2.22"),)),
        Integration("openai_agents", "openai-agents", "0.12.1", "0.24.0"),
        Integration("pydantic_ai", "pydantic-ai-slim", "2.0", "2.68.0"),
        Integration("adk", "google-adk", "2.12", "2.13.0"),
        Integration("agent_framework", "agent-framework-core", "1.19", "1.23.0"),
        Integration("haystack", "haystack-ai", "3.2", "3.4.0"),
        Integration("mcp", "mcp", "2.0", "2.3.0"),
        Integration("crewai", "crewai", "1.15.10", "1.15.30"),
        Integration("fastmcp", "fastmcp", "4.0", "4.1.2", slim="fastmcp-slim"),
        Integration("agno", "agno", "3.0", "3.1.10"),
        Integration("semantic_kernel", "semantic-kernel", "1.40.0", "1.45.0"),
        Integration("strands", "strands-agents", "1.62.0", "1.62.0"),
        Integration("claude_agent_sdk", "claude-agent-sdk", "0.2.180", "0.2.187"),
        Integration(
            "autogen", "autogen-agentchat", "0.7.5", "0.7.5", (Part("autogen-core", "0.7.5", "0.7.5"),)
        ),
        Integration(
            "llamaindex",
            "llama-index-core",
            "0.14.25",
            "0.14.25",
            (Part("llama-index-workflows", "2.26.1", "2.26.1"),),
        ),
        Integration("dspy", "dspy", "3.4", "3.4.1"),
        Integration("smolagents", "smolagents", "1.24", "1.26.0"),
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
    try:
        found = version(wanted.distribution)
    except PackageNotFoundError:
        raise MissingFrameworkError(f"{wanted.distribution!r} is not installed; {wanted.cure}") from None
    if order(found) < order(wanted.minimum):
        raise MissingFrameworkError(
            f"{wanted.distribution!r} is {found}, and {wanted.minimum} is the oldest that can be guarded; {wanted.cure}"
        )


def is_at_least(identifier: str, minimum: str) -> bool:
    """Whether the framework of a plugin, which is there, is of a version or a later one.

    Args:
        identifier: The plugin's.
        minimum: The version.
    """
    return order(version(INTEGRATIONS[identifier].distribution)) >= order(minimum)
