"""Which frameworks a run of the tests is about: those that this environment has, or one alone by `--framework`."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.frameworks.harness import Harness

#: those that cannot be installed beside the others: they have an environment of their own (group `apart`)
APART: tuple[str, ...] = ("crewai", "semantic_kernel", "strands")

#: modules of this folder, each with its `HARNESSES`; named as the plugins, and `recipe` for frameworks without one
FRAMEWORKS: tuple[str, ...] = (
    "adk",
    "agent_framework",
    "agno",
    "anthropic",
    "autogen",
    "claude_agent_sdk",
    "claude_code",
    "dspy",
    "fastmcp",
    "haystack",
    "langchain",
    "llamaindex",
    "mcp",
    "openai_agents",
    "pydantic_ai",
    "recipe",
    "smolagents",
)


def is_apart() -> bool:
    """Whether this is the environment of those that stand apart: it has CrewAI, which the other cannot have."""
    return find_spec("crewai") is not None


def add_option(parser: pytest.Parser) -> None:
    """Offer `--framework`."""
    parser.addoption(
        "--framework",
        choices=(*FRAMEWORKS, *APART),
        help="the behaviour of one plugin; nothing of the other frameworks is imported (default: every plugin)",
    )


def harnesses(config: pytest.Config) -> list[Harness]:
    """The harnesses of the framework that was chosen, or of all that are in this environment."""
    chosen = config.getoption("framework")
    names = (chosen,) if chosen is not None else APART if is_apart() else FRAMEWORKS
    return [one for name in names for one in import_module(f"support.frameworks.{name}").HARNESSES]


def is_elsewhere(path: Path, integrations: Path) -> bool:
    """Whether a path of the plugins' tests is of a framework that the other environment has."""
    if not path.is_relative_to(integrations) or path == integrations:
        return False
    name = path.relative_to(integrations).parts[0]
    return name in (FRAMEWORKS if is_apart() else APART)
