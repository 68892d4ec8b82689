"""Pagination of lists by `limit` and `offset`, or by a cursor.

A cursor contains the position of the last item of the previous page. Every page therefore takes the same time, and new
items do not shift the following pages. A cursor is signed together with the path and the filters of its list, so it is
invalid for any other list or filter.
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
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

from sqlalchemy import literal, tuple_
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession
from sqlmodel.sql.expression import SelectOfScalar

from toolgate_service.core.crypto import Keys
from toolgate_service.core.errors import FieldErrors
from toolgate_service.db.models import Id, Timestamp


class Listed(Protocol):
    """Table row that can be an item of a paginated list."""

    id: str
    created_at: datetime


Row = TypeVar("Row", bound=Listed)

#: maximum number of items that are counted for the header `X-Total-Count`; if there are more, its value is "10000+"
COUNTED = 10_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: binary form of a position: microseconds since 1970-01-01 UTC, and the 16 bytes of an identifier
_POSITION = struct.Struct(">q16s")
# length of the signature in bytes; with 15 bytes, the length of the cursor is a multiple of three, so its base64 text
# has no padding and only one valid spelling
_SIGNATURE = 15


@dataclass(frozen=True, slots=True)
class Position:
    """Position in a list that is ordered by (`created_at`, `id`), newest first."""

    created_at: datetime
    id: str


class PagePart(Protocol):
    """Result of a query for one page, reduced to the values that the response headers need."""

    @property
    def total(self) -> int | None:
        """Number of items in the whole list, or `COUNTED + 1` if there are more; None if it is unknown."""

    @property
    def last(self) -> Position | None:
        """Position after which the next page starts; None if no page follows."""


@dataclass(frozen=True, slots=True)
class Page:
    """Parameters of a request for one page of a list.

    Attributes:
        limit: Maximum number of items; None for all items.
        offset: Number of items to skip.
        after: Position of the item before the page; None for the start of the list.
        path: URL path of the list.
        filters: Query parameters except those of the pagination.
        keys: Keys that sign and verify cursors.
    """

    limit: int | None
    offset: int
    after: Position | None
    path: str
    filters: tuple[tuple[str, str], ...]
    organization_id: str
    keys: Keys

    def headers(self, found: "PagePart") -> dict[str, str]:
        """Return the response headers `X-Total-Count`, if the total is known, and `Link`, if there is a next page."""
        headers = {}
        if found.total is not None:
            headers["X-Total-Count"] = str(found.total) if found.total <= COUNTED else f"{COUNTED}+"
        if found.last is not None:
            query = urlencode(
                [*self.filters, ("limit", str(self.limit)), ("cursor", self.cursor(found.last))]
            )
            headers["Link"] = f'<{quote(self.path)}?{query}>; rel="next"'
        return headers

    def cursor(self, last: Position) -> str:
        """Return the cursor of the page that follows the item at the position `last`."""
        return _write(self.keys[0], _scope(self.organization_id, self.path, self.filters), last)


@dataclass(frozen=True, slots=True)
class Found(Generic[Row]):
    """Rows of one page of a list.

    Attributes:
        total: Number of items in the whole list, or `COUNTED + 1` if there are more than `COUNTED`.
        last: Position of the last row of the page; None if no page follows.
    """

    rows: Sequence[Row]
    total: int
    last: Position | None


async def find_page(
    session: AsyncSession, query: SelectOfScalar[Row], of: type[Row], page: Page
) -> Found[Row]:
    """Return the rows of a page, and the total number of items in the list.

    `query` selects all items of the list from the table `of`, without an order. The rows and the total are consistent
    if the session reads one snapshot.
    """
    bounded = query.with_only_columns(literal(1), maintain_column_froms=True).limit(COUNTED + 1)
    counted = select(func.count()).select_from(bounded.subquery())
    total = (await session.exec(counted)).one()
    # Query one row more than the limit. If this row exists, there is a next page.
    part = newest_first(query, of, page.after).offset(page.offset)
    found = (await session.exec(part if page.limit is None else part.limit(page.limit + 1))).all()
    rows = found[: page.limit]
    more = page.limit is not None and len(found) > page.limit
    last = Position(rows[-1].created_at, rows[-1].id) if more else None
    return Found(rows, total, last)


def newest_first(query: SelectOfScalar[Row], of: type[Row], after: Position | None) -> SelectOfScalar[Row]:
    """Return the query, sorted newest first. With `after`, it selects only items that are older than this position."""
    query = query.order_by(col(of.created_at).desc(), col(of.id).desc())
    if after is None:
        return query
    # Compare the columns as a row value, so that the index finds the position without reading the items before it.
    place = tuple_(literal(after.created_at, Timestamp()), literal(after.id, Id()))
    return query.where(tuple_(col(of.created_at), col(of.id)) < place)


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
    """Return the parameters of the page that follows the position in a cursor; of the first page if the cursor is None.

    If `limit` is None, the page contains all remaining items.

    Raises:
        FieldErrors: 400, the cursor does not belong to this list with these filters.
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
            {
                "cursor": [
                    "is not a cursor of this list with these filters; copy the cursor unchanged from the Link header"
                ]
            }
        )
    microseconds, number = _POSITION.unpack(place)
    return Position(_EPOCH + microseconds * _MICROSECOND, str(uuid.UUID(bytes=number)))


def _sign(key: bytes, scope: bytes, place: bytes) -> bytes:
    return hmac.digest(key, place + scope, hashlib.sha256)[:_SIGNATURE]
