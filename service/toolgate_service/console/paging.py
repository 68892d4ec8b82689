"""Pages of lists, asked for by their offset."""

from toolgate_service.console.visits import Visit
from toolgate_service.web.paging import Page


def page_of(visit: Visit, limit: int) -> Page:
    """Return which part of a list a visit asks for."""
    return _page(visit, limit, offset_of(visit))


def first_page(visit: Visit, limit: int) -> Page:
    """Return the beginning of a list that stands beside what a visit asks for."""
    return _page(visit, limit, 0)


def _page(visit: Visit, limit: int, offset: int) -> Page:
    return Page(
        limit=limit,
        offset=offset,
        after=None,
        path=visit.request.url.path,
        filters=(),
        organization_id=visit.caller.organization_id,
        keys=visit.gateway.vault.cursor_keys,
    )


def offset_of(visit: Visit) -> int:
    """Return how many things a visit leaves out; what is no number leaves out none."""
    given = visit.request.query_params.get("offset", "0")
    return int(given) if given.isascii() and given.isdigit() and len(given) < len("1000000") else 0
