"""What an open page of the log is told: entries that match its filters, as they are written."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.console.live import event
from toolgate_service.console.logs.asked import Asked
from toolgate_service.console.logs.rows import rows_of
from toolgate_service.console.rendering import render
from toolgate_service.console.visits import Visit
from toolgate_service.logs.lines import Line, Slice, leaf
from toolgate_service.logs.searching import search
from toolgate_service.web.edge import STORAGE_FAULTS

#: entries that a page is told of at once
AT_ONCE = 50
#: parts of a search that make one look
_SLICES = 10
#: How far back each look goes behind what was told. Of what several gateways write at the same time, the earlier may
#: come to be seen the later.
_BEHIND = timedelta(seconds=10)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Tail:
    """What one page is told.

    Args:
        visit: whose page it is.
        asked: the page's filters.
        since: entries of this moment and later are news.
    """

    def __init__(self, visit: Visit, asked: Asked, since: datetime) -> None:
        self._visit = visit
        self._asked = asked
        self._from = since
        self._told: dict[str, datetime] = {}

    async def tell(self, _seen: object) -> bytes | None:
        """Return an event with what was written since the last one; None when nothing of it matches."""
        try:
            async with self._visit.gateway.database.reading() as session:
                found = await self._look(session)
        except STORAGE_FAULTS:
            # The next entry brings these along.
            return None
        fresh = [line for line in found.lines if line.id not in self._told]
        if not fresh:
            return None
        # A look that is full of news has not reached what was told before: something between was passed over.
        missed = found.last is not None and len(fresh) == len(found.lines)
        self._remember(fresh)
        html = render(
            "part_log_rows.html", visit=self._visit, asked=self._asked, rows=rows_of(fresh), missed=missed
        )
        return event("entries", {"count": len(fresh), "rows": html})

    async def _look(self, session: AsyncSession) -> Slice:
        begins = self._asked.filters.begins
        filters = replace(self._asked.filters, begins=max(begins, self._from) if begins else self._from)
        mine = (session, self._visit.caller.organization_id, self._visit.environment, filters)
        if self._asked.wanted is None:
            return await leaf(*mine, None, AT_ONCE)
        lines: list[Line] = []
        after = None
        for _ in range(_SLICES):
            found = await search(*mine, self._asked.wanted, after, AT_ONCE - len(lines))
            lines += found.lines
            after = found.last
            if after is None or len(lines) == AT_ONCE:
                break
        return Slice(lines, after)

    def _remember(self, fresh: Sequence[Line]) -> None:
        self._told |= {line.id: line.created_at for line in fresh}
        self._from = max(self._from, max(self._told.values()) - _BEHIND)
        self._told = {one: moment for one, moment in self._told.items() if moment >= self._from}


def mark(moment: datetime) -> int:
    """Return a moment as the address of a stream has it: from a little before it on everything is news."""
    return (moment - _BEHIND - _EPOCH) // _MICROSECOND


def moment_at(mark: str) -> datetime | None:
    """Return the moment that `mark` wrote; None for what it did not write."""
    if not (mark.isascii() and mark.isdecimal()):
        return None
    try:
        return _EPOCH + int(mark) * _MICROSECOND
    except (OverflowError, ValueError):
        return None
