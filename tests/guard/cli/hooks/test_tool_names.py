"""Which server has a tool, by its name in Claude Code."""

import pytest

from toolgate import ConfigurationError
from toolgate_integrations.coding_agents.agents import remote_tool


@pytest.mark.parametrize(
    ("name", "server", "found"),
    [
        ("Bash", None, None),
        ("mcp__bank__pay", "bank", ("bank", "pay")),
        ("mcp__bank__pay", None, ("bank", "pay")),
        ("mcp__my_bank__pay__all", "my bank", ("my bank", "pay__all")),
        ("mcp__a__b__c", "a__b", ("a__b", "c")),
        ("mcp__a__b__c", "a", ("a", "b__c")),
    ],
)
def test_names_are_taken_apart(name: str, server: str | None, found: tuple[str, str] | None) -> None:
    """The configured name of the server says where it ends."""
    assert remote_tool(name, server) == found


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("mcp__a__b__c", None),
        ("mcp__bank", None),
        ("mcp____pay", None),
        ("mcp__bank__", "bank"),
        ("mcp__a__b", "c"),
    ],
)
def test_what_may_be_two_names_is_refused(name: str, server: str | None) -> None:
    """No tool passes as one of another server."""
    with pytest.raises(ConfigurationError):
        remote_tool(name, server)
