"""pytest's `--framework`: the behaviour suite with one framework alone, where the others do not bear its version."""

from importlib import import_module

import pytest

from support.frameworks.harness import Harness

#: those that are not installed beside the others: they have an environment of their own (group `apart`)
APART = ()

#: modules of this folder, each with its `HARNESSES`; named as the plugins, and `recipe` for frameworks without one
FRAMEWORKS = ("langchain", "mcp", "pydantic_ai", "fastmcp", "openai_agents", "recipe")


def add_option(parser: pytest.Parser) -> None:
    """Offer `--framework`."""
    parser.addoption(
        "--framework",
        choices=FRAMEWORKS,
        help="the behaviour of one plugin; nothing of the other frameworks is imported (default: every plugin)",
    )


def harnesses(config: pytest.Config) -> list[Harness]:
    """The harnesses of the framework that was chosen, or of all."""
    chosen = config.getoption("framework")
    names = FRAMEWORKS if chosen is None else (chosen,)
    return [one for name in names for one in import_module(f"support.frameworks.{name}").HARNESSES]
