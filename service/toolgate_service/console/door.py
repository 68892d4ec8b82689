"""The way to the console. Nothing of it is imported before somebody comes: a gateway for agents alone pays nothing."""

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from toolgate_service.gateway import Gateway

PREFIX = "/console"


def leads_there(scope: Scope) -> bool:
    """Say whether a request is one to the console."""
    if scope["type"] != "http":
        return False
    path: str = scope["path"]
    return path == PREFIX or path.startswith(f"{PREFIX}/")


class Door:
    """Opens the console when the first request comes.

    Args:
        gateway: whose console it is.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._console: ASGIApp | None = None
        self._opening = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        async with self._opening:
            if self._console is None:
                # On a thread: the checks of agents do not wait for the imports.
                self._console = await asyncio.to_thread(_open, self._gateway)
        await self._console(scope, receive, send)


def _open(gateway: Gateway) -> ASGIApp:
    from toolgate_service.console.application import console

    return console(gateway)
