"""The way to the console. Nothing of it is imported before somebody comes: a gateway for agents alone pays nothing."""

import asyncio
import re

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from toolgate_service.gateway import Gateway

PREFIX = "/console"
#: for a browser at ``/``; a cache must not answer an API client with it
REDIRECT_TO_CONSOLE = RedirectResponse(PREFIX, 303, {"Vary": "Accept"})

_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")


def leads_there(scope: Scope) -> bool:
    """Say whether a request is one to the console."""
    if scope["type"] != "http":
        return False
    path: str = scope["path"]
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def is_browser_at_root(scope: Scope) -> bool:
    """Return whether a request is a browser's for ``/``: one that prefers HTML to JSON.

    Without a preference the API answers: clients such as curl and httpx send ``*/*``.
    """
    if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
        return False
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
    html = _weight(accepted, "text/html")
    return html > 0 and html >= _weight(accepted, "application/json")


def _weight(accepted: str, media_type: str) -> float:
    """Return the quality an Accept header gives to a media type that it names; 0 where it does not name it."""
    for entry in accepted.lower().split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        if name == media_type:
            quality = next((one[2:] for one in parameters if one.startswith("q=")), "1")
            return float(quality) if _QUALITY.fullmatch(quality) else 0
    return 0


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
