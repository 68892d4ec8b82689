"""A client of the profile in front of an MCP server: a refund is held, approved by a person, and done once."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import uvicorn
from mcp import Client
from mcp.server import MCPServer
from support.arap import AccessRequestPep, Denied
from support.authzen import agent_key
from support.gateway import Owner
from support.waiting import eventually


@dataclass
class Refunds:
    """An MCP server over HTTP with a tool for refunds, and the amounts that it refunded."""

    url: str = ""
    done: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        server: MCPServer[Any] = MCPServer("refunds")

        @server.tool()
        def refund(amount: int) -> str:
            """Refund an amount."""
            self.done.append(amount)
            return f"refunded {amount}"

        app = server.streamable_http_app()
        config = uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=0)
        http = uvicorn.Server(config)
        serving = asyncio.create_task(http.serve())

        async def started() -> bool:
            return http.started

        await eventually(started)
        self.url = f"http://127.0.0.1:{http.servers[0].sockets[0].getsockname()[1]}/mcp"
        try:
            yield
        finally:
            http.should_exit = True
            await serving


class Enforced:
    """Calls of the tools of an MCP server that run only if the policy decision point permits them."""

    def __init__(self, pep: AccessRequestPep, server: Client) -> None:
        self.pep = pep
        self.server = server

    async def call(self, user: str, tool: str, **arguments: object) -> str:
        access = {
            "subject": {"type": "user", "id": user},
            "action": {"name": "tools/call", "properties": arguments},
            "resource": {"type": "tool", "id": tool},
        }
        await asyncio.to_thread(self.pep.enforce, access)
        result = await self.server.call_tool(tool, arguments)
        return str(result.content[0].text)  # type: ignore[union-attr]  # the tool returns a text


class Waits:
    """Waits of a client between two polls, shortened."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._never = threading.Event()

    def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        self._never.wait(0.05)


def decide(owner: Owner, decision: str) -> bool:
    """Decide the pending approval request, if there is one."""
    pending = owner.http.get("/api/approvals", params={"status": "pending"}).json()
    for one in pending:
        assert owner.http.post(f"/api/approvals/{one['id']}/{decision}").status_code == 200
    return bool(pending)


@pytest.mark.parametrize("calls", [1, 2])
async def test_refund_is_held_approved_by_a_person_and_done_once(newcomer: Owner, calls: int) -> None:
    agent, refunds = newcomer.agent(), Refunds()
    newcomer.permit(agent, "refund", requires_approval=True)
    waits = Waits()
    pep = AccessRequestPep(newcomer.url, agent_key(newcomer, agent), waits)
    async with refunds.served(), Client(refunds.url) as server:
        enforced = Enforced(pep, server)
        for number in range(1, calls + 1):
            call = asyncio.create_task(enforced.call("ann@example.com", "refund", amount=40))

            async def decided() -> bool:
                return await asyncio.to_thread(partial(decide, newcomer, "approve"))

            # A person approves each call, also of the same refund.
            await eventually(decided)
            assert await call == "refunded 40"
            assert refunds.done == [40] * number
    assert set(waits.asked) <= {5}
    pep.close()


async def test_rejected_refund_is_not_done(newcomer: Owner) -> None:
    agent, refunds = newcomer.agent(), Refunds()
    newcomer.permit(agent, "refund", requires_approval=True)
    waits = Waits()
    pep = AccessRequestPep(newcomer.url, agent_key(newcomer, agent), waits)
    async with refunds.served(), Client(refunds.url) as server:
        call = asyncio.create_task(Enforced(pep, server).call("ann@example.com", "refund", amount=40))

        async def decided() -> bool:
            return await asyncio.to_thread(partial(decide, newcomer, "deny"))

        await eventually(decided)
        with pytest.raises(Denied):
            await call
    assert refunds.done == []
    pep.close()
