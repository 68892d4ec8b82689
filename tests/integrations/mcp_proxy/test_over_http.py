"""A server that runs elsewhere, and speaks the protocol's newest version, behind the proxy."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from mcp import Client, MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    TextContent,
)
from support.proxies import ERAS, Bank, text_of
from support.waiting import eventually

FORM = ElicitRequestFormParams(message="Sure?", requested_schema={"type": "object", "properties": {}})


@dataclass
class Elsewhere:
    """A server with a tool that just answers, and one that asks the client's user first.

    Attributes:
        url: Where it is.
        ran: What its tools did.
        headers: What requests to it carried as `Authorization`.
    """

    url: str = ""
    ran: list[str] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)

    def server(self) -> MCPServer[Any]:
        server: MCPServer[Any] = MCPServer("elsewhere")

        @server.tool()
        def look(to: str) -> str:
            """Look."""
            self.ran.append(to)
            return f"seen {to}"

        @server.tool()
        async def change(ctx: Context) -> str:
            """Say that the tools changed."""
            await ctx.notify_tools_changed()
            return "changed"

        @server.tool()
        async def ask(ctx: Context) -> CallToolResult | InputRequiredResult:
            """Ask before it is done."""
            if ctx.input_responses is None:
                # What a guard's own state looks like is nothing but text to the proxy.
                mine = {"toolgate": "bank", "call": "0" * 32, "round": 1}
                return InputRequiredResult(
                    input_requests={"toolgate": ElicitRequest(params=FORM)}, request_state=json.dumps(mine)
                )
            self.ran.append(ctx.input_responses["toolgate"].action)
            return CallToolResult(content=[TextContent(type="text", text="done")])

        return server

    @asynccontextmanager
    async def served(self) -> AsyncIterator["Elsewhere"]:
        """Served; once more on the same port, when it was served before."""
        app = self.server().streamable_http_app()

        async def noted(scope: Any, receive: Any, send: Any) -> None:
            found = [value.decode() for name, value in scope.get("headers", ()) if name == b"authorization"]
            self.headers += found
            await app(scope, receive, send)

        port = int(self.url.rpartition(":")[2].removesuffix("/mcp") or 0)
        # A client's stream of news would keep it from ending.
        config = uvicorn.Config(noted, port=port, log_level="critical", timeout_graceful_shutdown=0)
        http = uvicorn.Server(config)
        serving = asyncio.create_task(http.serve())

        async def started() -> bool:
            return http.started

        await eventually(started)
        self.url = f"http://127.0.0.1:{http.servers[0].sockets[0].getsockname()[1]}/mcp"
        yield self
        http.should_exit = True
        await serving
        for each in list(http.server_state.connections):
            each.transport.abort()  # type: ignore[union-attr]  # one that was made has one


@pytest.mark.parametrize("era", ERAS)
async def test_calls_over_http(bank: Bank, era: str) -> None:
    """Allowed and blocked; each request carries the header, whose value stands in no command line."""
    bank.permit("look")
    async with Elsewhere().served() as there:
        options = ("--url", there.url, "--header-env", "Authorization=BANK_TOKEN")
        proxy = bank.proxy(*options, env={"BANK_TOKEN": "Bearer t0ken"})
        async with Client(proxy.spoken(), mode=era) as client:
            assert text_of(await client.call_tool("look", {"to": "eve"})) == "seen eve"
            assert "is blocked" in text_of(await client.call_tool("ask", {}))
        assert await proxy.ended() == 0, proxy.said
    assert there.ran == ["eve"]
    assert set(there.headers) == {"Bearer t0ken"}
    assert bank.logged() == [("ask", "denied"), ("look", "success")]
    assert "t0ken" not in proxy.said


async def test_a_tool_that_asks(bank: Bank) -> None:
    """Its question passes where it may, and its state is never taken for the guard's own."""
    bank.permit("ask")
    asked: list[str] = []

    async def user(_: object, question: Any) -> ElicitResult:
        asked.append(question.message)
        return ElicitResult(action="accept", content={})

    async with Elsewhere().served() as there:
        options = ("--url", there.url, "--allow-elicitation")
        async with bank.client(*options, elicitation_callback=user) as client:
            assert text_of(await client.call_tool("ask", {})) == "done"
    assert (asked, there.ran) == (["Sure?"], ["accept"])


async def test_a_tool_that_may_not_ask(bank: Bank) -> None:
    """The client is not asked; the call fails and says why."""
    bank.permit("ask")

    async def user(_: object, question: Any) -> ElicitResult:
        raise AssertionError("it does not pass")

    async with (
        Elsewhere().served() as there,
        bank.client("--url", there.url, elicitation_callback=user) as client,
    ):
        try:
            told = text_of(await client.call_tool("ask", {}))
        except MCPError as error:
            told = str(error)
    assert "elicitation" in told.lower()
    assert there.ran == []
    assert bank.logged() == [("ask", "failed")]


async def test_a_servers_state_sent_twice(bank: Bank) -> None:
    """What the user said yes to once is done once."""
    bank.permit("ask")

    async def user(_: object, question: Any) -> ElicitResult:
        raise AssertionError("answered by the test itself")

    options: Any = {"allow_input_required": True}
    async with (
        Elsewhere().served() as there,
        bank.client("--url", there.url, "--allow-elicitation", elicitation_callback=user) as client,
    ):
        asks = await client.session.call_tool("ask", {}, **options)
        back = {
            "request_state": asks.request_state,
            "input_responses": {"toolgate": ElicitResult(action="accept")},
        }
        done = await client.session.call_tool("ask", {}, **options, **back)
        twice = await client.session.call_tool("ask", {}, **options, **back)
    assert text_of(done) == "done"
    assert text_of(twice) == "Not done. This call has already run."
    assert there.ran == ["accept"]


async def test_news_of_a_server_over_http(bank: Bank) -> None:
    """Where both speak the newest version, on the stream that the client opened for them."""
    bank.permit("change")
    async with (
        Elsewhere().served() as there,
        bank.client("--url", there.url) as client,
        client.listen(tools_list_changed=True) as changes,
    ):
        heard = asyncio.create_task(anext(aiter(changes)))

        async def told() -> bool:
            # The proxy may not listen yet when it is first called.
            await client.call_tool("change", {})
            return heard.done()

        await eventually(told)
        assert type(await heard).__name__ == "ToolsListChanged"


async def test_a_server_that_is_not_there(bank: Bank) -> None:
    """One line, and no address that carries a secret."""
    proxy = bank.proxy("--url", "http://127.0.0.1:9/mcp?key=s3cret")
    with pytest.RaisesGroup(MCPError, flatten_subgroups=True, allow_unwrapped=True):
        async with Client(proxy.spoken(), mode="legacy"):
            raise AssertionError("there is no server")
    assert await proxy.ended() == 1
    assert len(proxy.said.splitlines()) == 1
    assert "cannot be reached" in proxy.said
    assert "s3cret" not in proxy.said


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_comes_back(bank: Bank, era: str) -> None:
    """While it is away calls fail; it is reached again, also where it has forgotten its session."""
    bank.permit("look")
    there = Elsewhere()
    async with AsyncExitStack() as stack:
        async with there.served():
            client = await stack.enter_async_context(bank.client("--url", there.url, mode=era))
            assert text_of(await client.call_tool("look", {"to": "a"})) == "seen a"
        assert await refused(client)
        async with there.served():
            assert text_of(await client.call_tool("look", {"to": "b"})) == "seen b"
        async with there.served():
            if era == "legacy":
                assert await refused(client)
            assert text_of(await client.call_tool("look", {"to": "c"})) == "seen c"
    assert there.ran == ["a", "b", "c"]


async def refused(client: Client) -> bool:
    """Whether a call fails, in whatever way."""
    try:
        return bool((await client.call_tool("look", {"to": "nowhere"})).is_error)
    except MCPError:
        return True
