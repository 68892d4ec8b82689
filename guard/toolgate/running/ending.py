"""The end of a tool that goes on after its call has returned: told once, also when it is dropped in the middle."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from toolgate._capture.jsontext import Json
from toolgate.calls import Flow
from toolgate.drivers import adrive, drive, keep, since
from toolgate.observing import tool_goes_on
from toolgate.performers import AsyncPerformer, Performer
from toolgate.steps import Outcome, Raised, Returned

__all__ = ["AsyncEnding", "Ending"]


class _End:
    """What is left to be told, kept beside the tool: it must not be collected together with it.

    Attributes:
        items: How many items the tool gave; None if it gives none.
        has_run: Whether dropping it leaves nothing undone.
        told: Whether it has been told.
    """

    def __init__(self, flow: Flow, hands: Performer | AsyncPerformer, began: float | None) -> None:
        self._flow = flow
        self._hands = hands
        self._began = time.perf_counter() if began is None else began
        self.items: int | None = None
        self.has_run = False
        self.told = False
        # The arguments may hold the tool itself, and would keep it for ever.
        hands.let_go()
        tool_goes_on(flow)
        _open.add(self)

    def keep(self, error: BaseException | None = None, *, closed: bool = False) -> None:
        """Have it recorded later."""
        keep(self._flow, self._hands, self.outcome(error, closed=closed))

    def outcome(self, error: BaseException | None, *, closed: bool = False) -> Outcome:
        """How it ended; told from now on."""
        self.told = True
        _open.discard(self)
        facts: dict[str, Json] = {}
        if self.items is not None:
            facts["items"] = self.items
        if closed:
            facts["closed"] = True
        duration = since(self._began)
        return Returned(duration, facts) if error is None else Raised(error, duration, facts)


class _Watch:
    """Tells when the tool that holds it is gone for good.

    What the garbage collector finds is finalized, and may go on living: an event loop closes the generators it is
    given in this way. So the first time proves nothing; what is put in its place then goes only with the tool.
    """

    def __init__(self, end: _End, *, last: bool = False) -> None:
        self._end = end
        self._last = last
        self._next: _Watch | None = None

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._end.told or finalizing():
            return
        if self._last:
            self._end.keep(None if self._end.has_run else GeneratorExit("dropped before its end"))
        else:
            self._next = _Watch(self._end, last=True)


class _Held:
    """What the tool holds: the watch, and its end."""

    def __init__(self, end: _End) -> None:
        self._end = end
        self._watch = _Watch(end)

    def item(self) -> None:
        """It gave one more item."""
        self._end.items = (self._end.items or 0) + 1

    def counts(self) -> None:
        """It gives items, and has given none yet."""
        self._end.items = 0

    def has_run(self) -> None:
        """Nothing is left undone if it is dropped from now on."""
        self._end.has_run = True

    def keep(self, error: BaseException | None = None, *, closed: bool = False) -> None:
        """Have the end recorded later: this may be the collection of garbage, in the midst of anything.

        Args:
            error: What it raised.
            closed: Whoever used it wanted no more of it.
        """
        self._end.keep(error, closed=closed)


class Ending(_Held):
    """The end of a synchronous tool.

    Args:
        flow: The road of its call, at the tool's turn.
        performer: What performs it.
        began: When the tool began, on the performance counter; default now.
    """

    def __init__(self, flow: Flow, performer: Performer, began: float | None = None) -> None:
        super().__init__(_End(flow, performer, began))
        self._flow = flow
        self._performer = performer

    def tell(self, error: BaseException | None = None) -> None:
        """It came to its end, or raised `error`."""
        drive(self._flow, self._performer, self._end.outcome(error))


class AsyncEnding(_Held):
    """As `Ending`, of an asynchronous tool."""

    def __init__(self, flow: Flow, performer: AsyncPerformer, began: float | None = None) -> None:
        super().__init__(_End(flow, performer, began))
        self._flow = flow
        self._performer = performer

    async def tell(self, error: BaseException | None = None) -> None:
        """As `Ending.tell`."""
        await adrive(self._flow, self._performer, self._end.outcome(error))


_open: Final = set[_End]()
