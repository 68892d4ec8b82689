"""What is new in a log, look by look: nothing is left out and nothing comes twice."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from toolgate_cli.logs.entries import PATH, Entry, read_entry
from toolgate_cli.logs.filters import contains
from toolgate_cli.management import Management, Query

#: An entry may appear behind a newer one: it has its moment before it is on disk, and gateways write side by side.
#: Each look goes back so far behind the newest; no transaction of a gateway takes longer.
OVERLAP = timedelta(seconds=35)

#: as far back as the first look goes for entries to begin with
_FARTHEST = 1_000

_Found = list[tuple[Entry, dict[str, Any]]]


class Following:
    """What was seen of a log so far.

    Args:
        management: the gateway.
        query: which entries are meant.
        text: only entries with this text in them.
        since: everything from then on is new; without it, what is there already is only begun with.
    """

    def __init__(
        self, management: Management, query: Query, text: str | None, since: datetime | None
    ) -> None:
        self._management = management
        self._query = query
        self._text = text
        self._since = since
        self._began = since is not None
        self._newest: datetime | None = None
        self._seen: dict[str, datetime] = {}

    def look(self, lines: int) -> list[dict[str, Any]]:
        """Return what is new, oldest first. What fails is begun anew by the next look: nothing was seen by it.

        Args:
            lines: how many entries the first look begins with.

        Raises:
            ManagementError: the gateway refused, did not answer, or answered with something else than entries.
        """
        found = self._since_last() if self._began else self._beginning(lines)
        new = [raw for entry, raw in found if entry.id not in self._seen and contains(raw, self._text)]
        if not self._began:
            new = new[:lines]
        self._remember(found)
        self._began = True
        return new[::-1]

    def _since_last(self) -> _Found:
        floor = self._since
        if self._newest is not None:
            floor = max(filter(None, (floor, _earlier(self._newest))))
        found: _Found = []
        for entry, raw in self._newest_first():
            if floor is not None and entry.created_at < floor:
                break
            found.append((entry, raw))
        return found

    def _beginning(self, lines: int) -> _Found:
        found: _Found = []
        matching = 0
        for entry, raw in self._newest_first():
            # Also what is not shown has been seen, as far back as the next look will go.
            enough = matching >= lines or len(found) >= _FARTHEST
            if found and enough and entry.created_at < _earlier(found[0][0].created_at):
                break
            found.append((entry, raw))
            matching += contains(raw, self._text)
        return found

    def _newest_first(self) -> Iterator[tuple[Entry, dict[str, Any]]]:
        for page in self._management.pages(PATH, self._query):
            for raw in page:
                yield read_entry(raw), raw

    def _remember(self, found: _Found) -> None:
        self._seen |= {entry.id: entry.created_at for entry, _ in found}
        if self._seen:
            self._newest = max(self._seen.values())
            floor = _earlier(self._newest)
            self._seen = {each: moment for each, moment in self._seen.items() if moment >= floor}


def _earlier(newest: datetime) -> datetime:
    return newest - OVERLAP
