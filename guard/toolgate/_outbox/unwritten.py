"""Entries that could not be written down when they should have been: in memory, for as short as can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolgate._outbox.entries import Entry, Intent
from toolgate._outbox.outbox import Outbox

__all__ = ["Unwritten"]

_BOUND: Final = 10_000


class Unwritten:
    """A few entries in memory.

    No lock: every change is one operation of a dict.

    Args:
        bound: How many.
    """

    def __init__(self, bound: int = _BOUND) -> None:
        self._bound = bound
        self._entries: dict[str, tuple[Entry, Intent | None]] = {}
        self._void: dict[str, Intent] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def keep(self, entry: Entry, intent: Intent | None) -> bool:
        """Keep an entry; returns False when there are too many."""
        if len(self._entries) >= self._bound:
            return False
        self._entries[entry.key] = (entry, intent)
        return True

    @property
    def owes(self) -> bool:
        """Whether anything is still to be done to the outbox."""
        return bool(self._entries or self._void)

    def forget(self, intent: Intent) -> None:
        """The tool of an intent did not run after all: it is to be struck out."""
        self._void[intent.key] = intent

    def write(self, outbox: Outbox) -> None:
        """Write down whatever is here; what cannot be written stays, and what hinders it is raised."""
        for key, intent in list(self._void.items()):
            outbox.forget(intent)
            self._void.pop(key, None)
        for key, (entry, begun) in list(self._entries.items()):
            if begun is None:
                outbox.add(entry)
            else:
                outbox.finish(entry, begun)
            self._entries.pop(key, None)

    def some(self, most: int) -> Sequence[tuple[str, str]]:
        """The first of them, each with its key and JSON text."""
        return [(key, entry.text()) for key, (entry, _) in list(self._entries.items())[:most]]

    def abandon(self) -> list[object]:
        """Give up all of it; returns the actions."""
        gone = [self._entries.pop(key, None) for key in list(self._entries)]
        return [one[0].body.get("action") for one in gone if one is not None]

    def sent(self, keys: Sequence[str]) -> None:
        """The gateway has them."""
        for key in keys:
            self._entries.pop(key, None)
