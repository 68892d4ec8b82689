"""A FastMCP server, plain or as a proxy of another, and FastMCP's own client in the agent's place."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from fastmcp import Client, FastMCP
from fastmcp.client.elicitation import ElicitResult
from fastmcp.server import create_proxy
from mcp.server.request_state import RequestStateSecurity

from support.frameworks.harness import Harness, Scene
from support.frameworks.mcp import PAGE, STATE_KEYS, Handshake, Kind, Modern
from toolgate_integrations.fastmcp import GuardMiddleware


def bank(scene: Scene, **options: Any) -> FastMCP[Any]:
    """The scene's tools as a server; whoever has its keys can open the state of its paused calls."""
    server: FastMCP[Any] = FastMCP(
        "a bank", middleware=[_guard(scene, options)], request_state_security=_keys("bank")
    )
    for tool in scene.tools.values():
        server.tool(tool)
    return server


def proxied_bank(scene: Scene, **options: Any) -> FastMCP[Any]:
    """The scene's tools on a server that knows of no guard, behind a proxy that does."""
    backend: FastMCP[Any] = FastMCP("backend", request_state_security=_keys("backend"))
    for tool in scene.tools.values():
        backend.tool(tool)
    proxy = create_proxy(backend, name="a proxy", request_state_security=_keys("proxy"))
    proxy.add_middleware(_guard(scene, options))
    return proxy


def _guard(scene: Scene, options: dict[str, Any]) -> GuardMiddleware:
    given: Any = {"name": "bank", "hold_timeout": 0.2, "approval_page": PAGE, **options}
    return GuardMiddleware(scene.guard, **given)


def _keys(audience: str) -> RequestStateSecurity:
    return RequestStateSecurity(keys=STATE_KEYS, audience=audience)


def connected(server: Any, era: Any, user: Any) -> AbstractAsyncContextManager[Any]:
    """FastMCP's client of a server in this process."""
    if user is None:
        return Client(server, mode=era)

    async def ask(_message: str, _response: Any, params: Any, context: Any) -> Any:
        answer = await user(context, params)
        return ElicitResult(action=answer.action, content=answer.content)

    return Client(server, mode=era, elicitation_handler=ask)


PLAIN = Kind(bank, connected)
PROXY = Kind(proxied_bank, connected)
HARNESSES: list[Harness] = [
    Modern("fastmcp", PLAIN),
    Handshake("fastmcp", PLAIN),
    Modern("fastmcp-proxy", PROXY),
    Handshake("fastmcp-proxy", PROXY),
]
