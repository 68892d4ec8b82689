"""FastAPI dependencies that read the query parameters `limit`, `offset` and `cursor` of list routes."""

from typing import Annotated, TypeAlias

from fastapi import Depends, Query, Request

from toolgate_service.core.crypto import Keys
from toolgate_service.db.pagination import Page, page_behind
from toolgate_service.http.auth import AnyCaller
from toolgate_service.http.dependencies import GatewayDep, Offset, PageSize

_NOT_FILTERS = ("limit", "offset", "cursor")


# `async` although the function awaits nothing: FastAPI would run a synchronous dependency in a thread, which is slower.
async def _page(
    request: Request,
    caller: AnyCaller,
    gateway: GatewayDep,
    limit: PageSize = 50,
    offset: Offset = 0,
    cursor: Annotated[str | None, Query()] = None,
) -> Page:
    return _requested_page(request, caller.organization_id, gateway.vault.cursor_keys, limit, offset, cursor)


async def _whole_or_page(
    request: Request,
    caller: AnyCaller,
    gateway: GatewayDep,
    limit: PageSize | None = None,
    offset: Offset = 0,
    cursor: Annotated[str | None, Query()] = None,
) -> Page:
    return _requested_page(request, caller.organization_id, gateway.vault.cursor_keys, limit, offset, cursor)


#: the requested page; its size is `limit`, which is 50 by default and at most 100
PageDep: TypeAlias = Annotated[Page, Depends(_page)]
#: the requested page if the request has a `limit`, otherwise the whole list
WholeOrPageDep: TypeAlias = Annotated[Page, Depends(_whole_or_page)]


def _requested_page(
    request: Request, organization_id: str, keys: Keys, limit: int | None, offset: int, cursor: str | None
) -> Page:
    filters = [item for item in request.query_params.multi_items() if item[0] not in _NOT_FILTERS]
    return page_behind(cursor, request.url.path, filters, organization_id, keys, limit=limit, offset=offset)
