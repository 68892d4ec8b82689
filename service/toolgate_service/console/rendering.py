"""Pages made of templates: everything is escaped, nothing undefined passes, nothing but our own files is loaded."""

from collections.abc import Mapping
from datetime import datetime

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from toolgate_service.clock import utcnow
from toolgate_service.console import words
from toolgate_service.console.inbox.deciding import SPANS
from toolgate_service.console.inbox.waiting import COUNTED, count_waiting
from toolgate_service.console.safety import HEADERS
from toolgate_service.console.statics import address
from toolgate_service.console.text import plain, shown
from toolgate_service.console.visits import Visit
from toolgate_service.exact_json import plain_number
from toolgate_service.storage.base import TEST

_ENVIRONMENT = Environment(
    loader=PackageLoader("toolgate_service.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)


def _time(moment: datetime, *, kind: str = "past") -> Markup:
    """Return a moment: in UTC as it is sent, in the reader's own zone once our script has seen it."""
    said = words.utc_exact(moment) if kind == "exact" else words.utc(moment)
    said = f"until {said}" if kind == "left" else said
    return Markup('<time datetime="{}" title="{}" data-kind="{}">{}</time>').format(
        words.machine(moment), words.utc_exact(moment), kind, said
    )


_ENVIRONMENT.filters.update(shown=shown, plain=plain, time=_time, number=plain_number)
_ENVIRONMENT.globals.update(static=address, counted=words.count, spans=SPANS)


def render(template: str, **values: object) -> str:
    """Fill in a template."""
    return _ENVIRONMENT.get_template(template).render(values)


def bare_page(template: str, status: int = 200, **values: object) -> HTMLResponse:
    """Return a page for somebody who is not signed in."""
    return HTMLResponse(render(template, **values), status, HEADERS)


async def show(visit: Visit, template: str, status: int = 200, **values: object) -> HTMLResponse:
    """Return a page, with everything that stands around it."""
    async with visit.gateway.database.reading() as session:
        found = await count_waiting(session, visit.caller.organization_id, visit.environment)
    around: Mapping[str, object] = {
        "visit": visit,
        "waiting_count": f"{COUNTED}+" if found > COUNTED else str(found),
        "waiting_number": found,
        "test": TEST,
        "now": utcnow(),
    }
    return HTMLResponse(render(template, **around, **values), status, HEADERS)


def part(template: str, status: int = 200, **values: object) -> HTMLResponse:
    """Return a piece of a page, for our own script."""
    return HTMLResponse(render(template, **values), status, HEADERS)
