"""The guards of MCP servers take the server's own name, or say that it cannot begin an action."""

from typing import Any

import pytest

from toolgate.testing import FakeGateway

pytest.importorskip("fastmcp")

from fastmcp import Client as FastMCPClient
from fastmcp import FastMCP
from mcp import Client, MCPError
from mcp.server import MCPServer
from mcp.server.extension import Extension

from toolgate_integrations.fastmcp import GuardMiddleware
from toolgate_integrations.mcp import GuardExtension


class Beside(Extension):
    identifier = "dev.example/beside"

    async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
        return await call_next(ctx)


def look(what: str) -> str:
    """Look at something."""
    return f"seen {what}"


async def ask_official(guard: Any, own: str | None, *, behind: bool = False, **given: Any) -> Any:
    extensions = [GuardExtension(guard, **given), Beside()]
    server = MCPServer(own, extensions=extensions[::-1] if behind else extensions)
    server.tool()(look)
    async with Client(server) as client:
        try:
            return await client.call_tool("look", {"what": "sky"})
        except MCPError as error:
            refused = error
    # Out of the client's own task group, which would wrap it.
    raise refused


async def ask_fastmcp(guard: Any, own: str | None, **given: Any) -> Any:
    server = FastMCP(own, middleware=[GuardMiddleware(guard, **given)])
    server.tool(look)
    async with FastMCPClient(server) as client:
        return await client.call_tool("look", {"what": "sky"})


either = pytest.mark.parametrize("ask", [ask_official, ask_fastmcp])


@either
async def test_name_of_the_server_begins_its_actions(ask: Any) -> None:
    gateway = FakeGateway(allow=["bank.look"])
    with gateway.guard() as guard:
        result = await ask(guard, "bank")
    assert result.content[0].text == "seen sky"
    assert [each.action for each in gateway.checks] == ["bank.look"]


async def test_server_is_found_behind_other_extensions() -> None:
    gateway = FakeGateway(allow=["bank.look"])
    with gateway.guard() as guard:
        result = await ask_official(guard, "bank", behind=True)
    assert result.content[0].text == "seen sky"


@either
async def test_given_name_wins(ask: Any) -> None:
    gateway = FakeGateway(allow=["vault.look"])
    with gateway.guard() as guard:
        result = await ask(guard, "bank", name="vault")
    assert result.content[0].text == "seen sky"


@either
@pytest.mark.parametrize("name", [None, "My Bank", "a.b", "tools", "bänk"])
async def test_name_that_cannot_begin_an_action_is_an_error(ask: Any, name: str | None) -> None:
    gateway = FakeGateway()
    with gateway.guard() as guard, pytest.raises(MCPError, match="pass name='…' to its guard"):
        await ask(guard, name)
    assert gateway.checks == []
