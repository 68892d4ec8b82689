"""The extension behind the SDK's own HTTP transport."""

import asyncio
from typing import Any

import pytest
import uvicorn
from mcp import Client
from mcp_types import ElicitResult
from support.frameworks.harness import Scene
from support.frameworks.mcp import approval_of, bank, text_of
from support.waiting import eventually


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_a_held_call_over_http(scene: Scene, era: str) -> None:
    """Held, pointed to its page, approved and carried out once, over a socket."""

    async def user(_: object, question: Any) -> ElicitResult:
        await asyncio.to_thread(scene.approve, approval_of(question))
        return ElicitResult(action="accept")

    http = uvicorn.Server(uvicorn.Config(bank(scene).streamable_http_app(), port=0, log_level="warning"))
    serving = asyncio.create_task(http.serve())

    async def started() -> bool:
        return http.started

    await eventually(started)
    port = http.servers[0].sockets[0].getsockname()[1]
    async with Client(f"http://127.0.0.1:{port}/mcp", mode=era, elicitation_callback=user) as client:
        result: Any = await client.call_tool("pay", {"to": "eve", "amount": 40})
        blocked: Any = await client.call_tool("drop", {"table": "users"})
    http.should_exit = True
    await serving
    assert text_of(result) == "paid 40 to eve"
    assert "is blocked" in text_of(blocked)
    assert scene.logged() == [("drop", "denied"), ("pay", "pending"), ("pay", "success")]
