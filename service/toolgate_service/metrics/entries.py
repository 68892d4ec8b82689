"""Counting log entries, from around the store that commits them."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from time import perf_counter

from toolgate_service.hotpath.stores import LogStore
from toolgate_service.logs.entries import NewEntry, Outcome, Replayed, Stored
from toolgate_service.metrics.figures import Figures


class CountedStore:
    """A store whose commits are counted.

    Args:
        inner: the store.
        figures: where.
    """

    def __init__(self, inner: LogStore, figures: Figures) -> None:
        self._inner = inner
        self._figures = figures

    async def open(self) -> None:
        """As the store's."""
        await self._inner.open()

    def turn(self) -> AbstractAsyncContextManager[object]:
        """As the store's."""
        return self._inner.turn()

    async def commit(self, entries: Sequence[NewEntry], *, wait: bool = False) -> Sequence[Outcome | None]:
        """As the store's."""
        began = perf_counter()
        try:
            outcomes = await self._inner.commit(entries, wait=wait)
        except BaseException:
            self._figures.entries["failed"] += len(entries)
            raise
        self._figures.commits.add(perf_counter() - began)
        # Entries that were set aside are counted when they are committed.
        done = [outcome for outcome in outcomes if outcome is not None]
        if done:
            self._figures.batches.add(len(done))
            self._figures.entries.update(map(_word, done))
        return outcomes

    async def close(self) -> None:
        """As the store's."""
        await self._inner.close()


def _word(outcome: Outcome) -> str:
    if isinstance(outcome, Stored):
        return "stored"
    return "replayed" if isinstance(outcome, Replayed) else "refused"
