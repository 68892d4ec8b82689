"""Rendering of console pages from Jinja templates, static files, and pagination of lists."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from toolgate_service.console.dependencies import PageContext
from toolgate_service.console.filters import count, machine, plain, shown, utc, utc_exact
from toolgate_service.console.mount import PREFIX
from toolgate_service.console.queries import (
    COUNT_LIMIT,
    MAX_FREEZES_IN_NOTICE,
    count_pending,
    list_freeze_notices,
)
from toolgate_service.console.security import HEADERS
from toolgate_service.core.clock import utcnow
from toolgate_service.core.errors import not_found
from toolgate_service.core.strict_json import plain_number
from toolgate_service.db.models import TEST
from toolgate_service.db.pagination import Page

_TYPES = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "inbox.js": "text/javascript; charset=utf-8",
    "logs.css": "text/css; charset=utf-8",
    "logs.js": "text/javascript; charset=utf-8",
    "auth.js": "text/javascript; charset=utf-8",
    "policy.js": "text/javascript; charset=utf-8",
    "simulator.css": "text/css; charset=utf-8",
    "settings.css": "text/css; charset=utf-8",
    "settings.js": "text/javascript; charset=utf-8",
    "start.css": "text/css; charset=utf-8",
    "start.js": "text/javascript; charset=utf-8",
    "overview.css": "text/css; charset=utf-8",
    "mark.svg": "image/svg+xml",
}


#: Durations that approvers can choose for a temporary approval, as pairs of seconds and label.
SPANS = (
    (900, "15 minutes"),
    (3_600, "1 hour"),
    (8 * 3_600, "8 hours"),
    (86_400, "1 day"),
    (7 * 86_400, "7 days"),
    (30 * 86_400, "30 days"),
)

_ENVIRONMENT = Environment(
    loader=PackageLoader("toolgate_service.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)


@dataclass(frozen=True, slots=True)
class _Static:
    content: bytes
    digest: str


@cache
def _read(name: str) -> _Static:
    content = files(__package__).joinpath("static", name).read_bytes()
    return _Static(content, hashlib.sha256(content).hexdigest()[:12])


def static_url(name: str) -> str:
    """Return the URL of a static file. It contains a digest of the content, so that browsers can cache it forever."""
    return f"{PREFIX}/static/{name}?v={_read(name).digest}"


async def serve_static(request: Request) -> Response:
    """Return a static file, such as a style sheet or script of the console."""
    name = request.path_params["name"]
    if name not in _TYPES:
        raise not_found("File")
    found = _read(name)
    # Only the content of a URL with the current digest never changes. For other URLs, browsers must ask again on each
    # use.
    immutable = request.query_params.get("v") == found.digest
    headers = {"Cache-Control": "public, max-age=31536000, immutable" if immutable else "no-cache"}
    return Response(found.content, media_type=_TYPES[name], headers=headers)


def _time(moment: datetime, *, kind: str = "past") -> Markup:
    """Return a time in UTC as an HTML ``<time>`` element. A script converts it to the browser's time zone."""
    text = utc_exact(moment) if kind == "exact" else utc(moment)
    text = f"until {text}" if kind == "left" else text
    return Markup('<time datetime="{}" title="{}" data-kind="{}">{}</time>').format(
        machine(moment), utc_exact(moment), kind, text
    )


_ENVIRONMENT.filters.update(shown=shown, plain=plain, time=_time, number=plain_number)
_ENVIRONMENT.globals.update(static=static_url, counted=count, spans=SPANS)


def render(template: str, **values: object) -> str:
    """Render a template with the given values, and return the HTML."""
    return _ENVIRONMENT.get_template(template).render(values)


def render_public_page(template: str, status: int = 200, **values: object) -> HTMLResponse:
    """Render a page for users who are not signed in."""
    return HTMLResponse(render(template, **values), status, HEADERS)


async def render_page(page: PageContext, template: str, status: int = 200, **values: object) -> HTMLResponse:
    """Render a page for a signed-in user, with the console's navigation.

    The page contains the number of pending approval requests, and a notice of the active freezes.
    """
    async with page.gateway.database.reading() as session:
        pending = await count_pending(session, page.caller.organization_id, page.environment)
        freezes = await list_freeze_notices(session, page.caller.organization_id)
    frame: Mapping[str, object] = {
        "page": page,
        "waiting_count": f"{COUNT_LIMIT}+" if pending > COUNT_LIMIT else str(pending),
        "waiting_number": pending,
        "freeze_notices": freezes[:MAX_FREEZES_IN_NOTICE],
        "has_more_freezes": len(freezes) > MAX_FREEZES_IN_NOTICE,
        "test": TEST,
        "now": utcnow(),
    }
    return HTMLResponse(render(template, **frame, **values), status, HEADERS)


def render_partial(template: str, status: int = 200, **values: object) -> HTMLResponse:
    """Render an HTML fragment that a script of the console requested."""
    return HTMLResponse(render(template, **values), status, HEADERS)


def read_pagination(page: PageContext, limit: int) -> Page:
    """Return the pagination of a list: at most `limit` items, starting at the ``offset`` in the URL."""
    return _pagination(page, limit, read_offset(page))


def first_page(page: PageContext, limit: int) -> Page:
    """Return the pagination for the first `limit` items of a list, regardless of the ``offset`` in the URL."""
    return _pagination(page, limit, 0)


def _pagination(page: PageContext, limit: int, offset: int) -> Page:
    return Page(
        limit=limit,
        offset=offset,
        after=None,
        path=page.request.url.path,
        filters=(),
        organization_id=page.caller.organization_id,
        keys=page.gateway.vault.cursor_keys,
    )


def read_offset(page: PageContext) -> int:
    """Return the query parameter ``offset`` as a number; 0 if the parameter is missing or invalid."""
    given = page.request.query_params.get("offset", "0")
    return int(given) if given.isascii() and given.isdigit() and len(given) < len("1000000") else 0
