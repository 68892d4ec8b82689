"""The calls of one turn of a model, where a framework is asked for all of them and then runs their tools by itself.

All calls are asked about before the first tool runs. A tool is told its arguments alone, so the call it runs for is found
by these; whatever else of the framework changed a call after it was approved, runs nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

from toolgate import ApprovalPending, GuardError
from toolgate_integrations._base import Bridge
from toolgate_integrations._made import Made

__all__ = ["Turn"]

T = TypeVar("T")
#: what a framework is about to run: the names of tools, and what they are given
Left: TypeAlias = Iterable[tuple[str, Mapping[str, Any]]]


class Turn:
    """The calls of one turn, until all of them are recorded.

    Args:
        bridge: Asks about them.
        made: The calls; after `close` those that the framework is to run.
        wrapper: What the framework makes of a tool's own error, with that as its cause.
    """

    def __init__(self, bridge: Bridge, made: Iterable[Made], wrapper: type[Exception]) -> None:
        self.made = list(made)
        self._bridge, self._wrapper = bridge, wrapper
        self._left: Callable[[], Left] = list
        self._changed: bool | None = None
        self._lock = threading.Lock()

    def ask(self) -> None:
        """Ask about all calls.

        Raises:
            Exception: What is no refusal; nothing may run.
        """
        with self._all_or_none():
            if self._bridge.on_hold == "wait" and len(self.made) > 1:
                # All of them can be decided while the first is waited for.
                for each in self.made:
                    with suppress(GuardError):
                        self._bridge.waiting(each.asked)
            for each in self.made:
                each.begin(self._bridge)

    async def aask(self) -> None:
        """As `ask`."""
        with self._all_or_none():
            ends = await asyncio.gather(
                *(each.abegin(self._bridge) for each in self.made), return_exceptions=True
            )
            for error in ends:
                if error is not None:
                    raise error

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.end()
            raise

    def close(self, left: Callable[[], Left]) -> list[Made]:
        """All calls are asked about; from now on tools may begin.

        Args:
            left: What the framework is about to run; looked at when the first tool begins.

        Returns:
            The calls that were refused; they are no part of the turn any more.
        """
        refused = [each for each in self.made if each.refused is not None]
        self.made = [each for each in self.made if each.refused is None]
        for each in self.made:
            each.close()
        self._left = left
        return refused

    def run(
        self, name: str, given: Mapping[str, Any], tool: Callable[[], T], error: Callable[[str], Exception]
    ) -> T:
        """Run a tool for the call that it begins for.

        Args:
            name: The tool's.
            given: What it is given.
            tool: Runs it.
            error: Makes what is raised in its place of what the model is to read.

        Raises:
            Exception: The tool's own, as the framework makes it; or the tool must not run.
        """
        with self._claimed(name, given, error) as made:
            return made.run(tool, self._wrapper)

    async def arun(
        self,
        name: str,
        given: Mapping[str, Any],
        tool: Callable[[], Awaitable[T]],
        error: Callable[[str], Exception],
    ) -> T:
        """As `run`."""
        with self._claimed(name, given, error) as made:
            return await made.arun(tool, self._wrapper)

    @contextmanager
    def _claimed(
        self, name: str, given: Mapping[str, Any], error: Callable[[str], Exception]
    ) -> Iterator[Made]:
        made = self._claim(name, given)
        if made is None:
            raise error(_CHANGED)
        try:
            yield made
        except GuardError as refused:
            raise error(made.told) from refused

    def _claim(self, name: str, given: Mapping[str, Any]) -> Made | None:
        """The call that a tool begins for; None if there is none, and the tool must not run."""
        with self._lock:
            if self._changed is None:
                # Before the first tool runs: from then on what is left is the tools' to change.
                self._changed = self._differs()
            for each in () if self._changed else self.made:
                if not each.claimed and each.fits(name, given):
                    each.claimed = True
                    return each
        return None

    def _differs(self) -> bool:
        """Whether the framework was left anything but calls that were asked about.

        A tool may be given more than the call's arguments, so an argument that was added is not seen there.
        """
        approved = [(each.asked.name, each.approved) for each in self.made]
        for one in self._left():
            if one not in approved:
                return True
            approved.remove(one)
        return False

    def end(self, results: Iterable[tuple[object, str | None]] = ()) -> list[Made]:
        """Record what came of the calls whose tools were not seen to begin.

        Args:
            results: Calls as the framework has them, and what it says went wrong with each, if anything did.

        Returns:
            The calls that came to wait while their tools ran: those of functions that are guarded themselves.
        """
        said = list(results)
        for each in self.made:
            if not each.claimed:
                each.claimed = True
                each.end(next((why for own, why in said if own is each.own), _ENDED))
        return [each for each in self.made if isinstance(each.refused, ApprovalPending)]


_CHANGED: Final = (
    "Not done: another part of the agent changed the call after it was approved. Asking again will not help; "
    "tell the operator."
)
_ENDED: Final = "the run ended before the tool was called"
