"""The console's own style sheet, scripts and pictures: read once, named by their content, kept by browsers."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from toolgate_service.console.door import PREFIX
from toolgate_service.errors import not_found

_TYPES = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "inbox.js": "text/javascript; charset=utf-8",
    "logs.css": "text/css; charset=utf-8",
    "logs.js": "text/javascript; charset=utf-8",
    "entrance.js": "text/javascript; charset=utf-8",
    "trying.css": "text/css; charset=utf-8",
    "settings.css": "text/css; charset=utf-8",
    "settings.js": "text/javascript; charset=utf-8",
    "start.css": "text/css; charset=utf-8",
    "start.js": "text/javascript; charset=utf-8",
    "overview.css": "text/css; charset=utf-8",
    "mark.svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class _Static:
    content: bytes
    digest: str


@cache
def _read(name: str) -> _Static:
    content = files(__package__).joinpath("static", name).read_bytes()
    return _Static(content, hashlib.sha256(content).hexdigest()[:12])


def address(name: str) -> str:
    """Return where a file of ours is; another content has another address."""
    return f"{PREFIX}/static/{name}?v={_read(name).digest}"


async def static(request: Request) -> Response:
    """Return one of our files."""
    name = request.path_params["name"]
    if name not in _TYPES:
        raise not_found("File")
    found = _read(name)
    # By its own address it never changes; without one it is asked for anew.
    forever = request.query_params.get("v") == found.digest
    headers = {"Cache-Control": "public, max-age=31536000, immutable" if forever else "no-cache"}
    return Response(found.content, media_type=_TYPES[name], headers=headers)
