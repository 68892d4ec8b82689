"""Integration of the web console into the gateway at the URL path ``/console``.

The console is imported only when the first request for it arrives, so that a gateway that serves only agents uses less
memory.
"""

import asyncio
import re

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from toolgate_service.gateway import Gateway

PREFIX = "/console"
#: Response to a browser that requests ``/``. The header ``Vary`` prevents caches from sending it to API clients.
REDIRECT_TO_CONSOLE = RedirectResponse(PREFIX, 303, {"Vary": "Accept"})

_QUALITY = re.compile(r"[01](\.[0-9]{0,3})?")


class LazyConsole:
    """ASGI application that imports and creates the console when the first request for it arrives."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._console: ASGIApp | None = None
        self._lock = asyncio.Lock()

    def app_for(self, scope: Scope) -> ASGIApp | None:
        """Return the ASGI application that serves a request; None if the request is for the API.

        The console serves its own paths. Browsers that request ``/`` are redirected to the console.
        """
        if is_console_path(scope):
            return self
        return REDIRECT_TO_CONSOLE if is_browser_at_root(scope) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and create the console first if necessary."""
        async with self._lock:
            if self._console is None:
                # Create the console in a thread, because its imports take long and the event loop must continue to
                # serve the API.
                self._console = await asyncio.to_thread(_create, self._gateway)
        await self._console(scope, receive, send)


def _create(gateway: Gateway) -> ASGIApp:
    from toolgate_service.console.app import create_console

    return create_console(gateway)


def is_console_path(scope: Scope) -> bool:
    """Return True for an HTTP request to ``/console`` or to a path below it."""
    if scope["type"] != "http":
        return False
    path: str = scope["path"]
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def is_browser_at_root(scope: Scope) -> bool:
    """Return True for a GET request for ``/`` whose Accept header lists HTML and does not prefer JSON to it.

    Browsers send such a header. Clients that send ``*/*``, such as curl and httpx, count as API clients.
    """
    if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
        return False
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept").decode("latin-1")
    html = _quality(accepted, "text/html")
    return html > 0 and html >= _quality(accepted, "application/json")


def _quality(accepted: str, media_type: str) -> float:
    """Return the quality value (``q=``) of a media type in an Accept header; 0 if the media type is not listed."""
    for entry in accepted.lower().split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        if name == media_type:
            quality = next((one[2:] for one in parameters if one.startswith("q=")), "1")
            return float(quality) if _QUALITY.fullmatch(quality) else 0
    return 0
