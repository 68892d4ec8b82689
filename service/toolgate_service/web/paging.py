"""Pages of lists: `limit`, `offset`, and a cursor that is as fast on the last page as on the first (decisions §2).

A cursor names the last thing of the page before it, so that what is written meanwhile moves nothing. It is signed
together with what it was given for: nobody can make one up, and none answers another question.
"""

import base64
import binascii
import hashlib
import hmac
import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Depends, Query, Request
from sqlalchemy import literal, tuple_
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.accounts.caller import AnyCaller
from toolgate_service.errors import FieldErrors
from toolgate_service.gateway import GatewayDep
from toolgate_service.storage.types import Id, Timestamp
from toolgate_service.vault import Keys
from toolgate_service.web.fields import Offset, PageSize


class Listed(Protocol):
    """A row of a table whose lists are paged."""

    id: str
    created_at: datetime


Row = TypeVar("Row", bound=Listed)

#: things are counted so far, and beyond it "there are more"
COUNTED = 10_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: microseconds since the epoch and an identifier
_POSITION = struct.Struct(">q16s")
#: makes a cursor a multiple of three bytes: base64 then has exactly one spelling
_SIGNATURE = 15
_NOT_FILTERS = ("limit", "offset", "cursor")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a list that is ordered by (`created_at`, `id`), newest first."""

    created_at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list a request asks for.

    Attributes:
        limit: how many things; None for all of them.
        offset: how many are skipped.
        after: behind which place it begins.
        path: the request's path.
        filters: the request's other parameters.
        organization_id: whose list it is.
        keys: sign cursors.
    """

    limit: int | None
    offset: int
    after: Position | None
    path: str
    filters: tuple[tuple[str, str], ...]
    organization_id: str
    keys: Keys

    def headers(self, found: "Found[Any]") -> dict[str, str]:
        """Return the headers of a page: how many things there are, and where the next page is."""
        headers = {"X-Total-Count": str(found.total) if found.total <= COUNTED else f"{COUNTED}+"}
        if found.last is not None:
            query = urlencode(
                [*self.filters, ("limit", str(self.limit)), ("cursor", self.cursor(found.last))]
            )
            headers["Link"] = f'<{quote(self.path)}?{query}>; rel="next"'
        return headers

    def cursor(self, last: Position) -> str:
        """Return the cursor of what is behind a place in this list."""
        return _write(self.keys[0], _scope(self.organization_id, self.path, self.filters), last)


@dataclass(frozen=True, slots=True)
class Found(Generic[Row]):
    """A page of a list.

    Attributes:
        rows: the page.
        total: how many things the whole list has, counted to one beyond `COUNTED`.
        last: where the page ends; None when nothing follows.
    """

    rows: Sequence[Row]
    total: int
    last: Position | None


async def find_page(
    session: AsyncSession, query: SelectOfScalar[Row], of: type[Row], page: Page
) -> Found[Row]:
    """Return a page of a list and how long the list is.

    Args:
        session: one snapshot.
        query: the whole list, in no order.
        of: the table that is listed, with `created_at` and `id`.
        page: which part of it.
    """
    bounded = query.with_only_columns(literal(1), maintain_column_froms=True).limit(COUNTED + 1)
    counted = select(func.count()).select_from(bounded.subquery())
    total = (await session.exec(counted)).one()
    # One more than asked for says whether there is a next page.
    part = newest_first(query, of, page.after).offset(page.offset)
    found = (await session.exec(part if page.limit is None else part.limit(page.limit + 1))).all()
    rows = found[: page.limit]
    more = page.limit is not None and len(found) > page.limit
    last = Position(rows[-1].created_at, rows[-1].id) if more else None
    return Found(rows, total, last)


def newest_first(query: SelectOfScalar[Row], of: type[Row], after: Position | None) -> SelectOfScalar[Row]:
    """Return a list's query in order, from behind a place in it if one is named."""
    query = query.order_by(col(of.created_at).desc(), col(of.id).desc())
    if after is None:
        return query
    # Compared as one value: an index finds the place without a look at what stands before it.
    place = tuple_(literal(after.created_at, Timestamp()), literal(after.id, Id()))
    return query.where(tuple_(col(of.created_at), col(of.id)) < place)


# Async although nothing is awaited: FastAPI sends other dependencies through a thread each.
async def _page(
    request: Request,
    caller: AnyCaller,
    gateway: GatewayDep,
    limit: PageSize = 50,
    offset: Offset = 0,
    cursor: Annotated[str | None, Query()] = None,
) -> Page:
    return _asked(request, caller.organization_id, gateway.vault.cursor_keys, limit, offset, cursor)


async def _whole_or_page(
    request: Request,
    caller: AnyCaller,
    gateway: GatewayDep,
    limit: PageSize | None = None,
    offset: Offset = 0,
    cursor: Annotated[str | None, Query()] = None,
) -> Page:
    return _asked(request, caller.organization_id, gateway.vault.cursor_keys, limit, offset, cursor)


#: a page of at most a hundred things, fifty unless the request says otherwise
PageDep: TypeAlias = Annotated[Page, Depends(_page)]
#: the whole list unless the request sends a `limit`
WholeOrPageDep: TypeAlias = Annotated[Page, Depends(_whole_or_page)]


def _asked(
    request: Request, organization_id: str, keys: Keys, limit: int | None, offset: int, cursor: str | None
) -> Page:
    filters = [item for item in request.query_params.multi_items() if item[0] not in _NOT_FILTERS]
    return page_behind(cursor, request.url.path, filters, organization_id, keys, limit=limit, offset=offset)


def page_behind(
    cursor: str | None,
    path: str,
    filters: Iterable[tuple[str, str]],
    organization_id: str,
    keys: Keys,
    *,
    limit: int | None,
    offset: int = 0,
) -> Page:
    """Return the part of a list that a cursor leads to.

    Args:
        cursor: as a page before it said; None for the beginning.
        path: of the list.
        filters: the list's.
        organization_id: whose list it is.
        keys: sign cursors.
        limit: how many things; None for all of them.
        offset: how many are skipped.

    Raises:
        FieldErrors: 400, the cursor is none of this list with these filters.
    """
    chosen = tuple(sorted(filters))
    after = None if cursor is None else _read(keys, _scope(organization_id, path, chosen), cursor)
    return Page(limit, offset, after, path, chosen, organization_id, keys)


def _scope(organization_id: str, path: str, filters: Sequence[tuple[str, str]]) -> bytes:
    return "\n".join((organization_id, path, urlencode(filters))).encode()


def _write(key: bytes, scope: bytes, position: Position) -> str:
    microseconds = (position.created_at - _EPOCH) // _MICROSECOND
    place = _POSITION.pack(microseconds, uuid.UUID(position.id).bytes)
    return base64.urlsafe_b64encode(place + _sign(key, scope, place)).decode()


def _read(keys: Keys, scope: bytes, cursor: str) -> Position:
    try:
        raw = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
    except binascii.Error:
        raw = b""
    place, signature = raw[: _POSITION.size], raw[_POSITION.size :]
    if not any(hmac.compare_digest(signature, _sign(key, scope, place)) for key in keys):
        raise FieldErrors(
            {"cursor": ["is none of this list with these filters; take it from the Link header as it is"]}
        )
    microseconds, number = _POSITION.unpack(place)
    return Position(_EPOCH + microseconds * _MICROSECOND, str(uuid.UUID(bytes=number)))


def _sign(key: bytes, scope: bytes, place: bytes) -> bytes:
    return hmac.digest(key, place + scope, hashlib.sha256)[:_SIGNATURE]
