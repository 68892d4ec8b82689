"""One call of several that a framework makes together: asked about first, and run by the framework afterwards."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from toolgate import ApprovalPending, GuardError
from toolgate_integrations._base import Begun, Bridge, ToolCall
from toolgate_integrations._telling import refusal_or_raise
from toolgate_integrations._unwrapping import Unwrapping

__all__ = ["Made", "NotRunError"]

T = TypeVar("T")

# What a guarded function inside a tool raises to be called again.
_PAUSES: Final = (ApprovalPending,)


class NotRunError(Exception):
    """What the framework says in place of a tool's own error."""


@dataclass(eq=False)
class Made:
    """One call.

    Attributes:
        asked: As the gateway hears of it.
        own: As the framework has it.
        begun: What was let through; None if it was not.
        refused: Why it did not run.
        told: What the model reads then.
        approved: A copy of its arguments, which no other part of the framework can reach.
        claimed: Whether its tool has begun, or it is recorded that it never did.
    """

    asked: ToolCall
    own: Any
    begun: Begun | None = None
    refused: GuardError | None = None
    told: str = ""
    approved: dict[str, Any] = field(default_factory=dict, repr=False)
    claimed: bool = False

    def begin(self, bridge: Bridge) -> None:
        """Ask about the call; a function that is guarded itself asks once it is run."""
        with self._refusing():
            self.begun = bridge.begin(self.asked, _PAUSES)

    async def abegin(self, bridge: Bridge) -> None:
        """As `begin`."""
        with self._refusing():
            self.begun = await bridge.abegin(self.asked, _PAUSES)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What the tool is to be given: as it was approved, once it is."""
        return self.asked.arguments if self.begun is None else self.begun.arguments

    def close(self) -> None:
        """Keep what was approved."""
        self.approved = copy.deepcopy(dict(self.arguments))

    def fits(self, name: str, given: Mapping[str, Any]) -> bool:
        """Whether a tool that begins may be this call's: it may be given more than the call's arguments."""
        same = all(key in given and given[key] == value for key, value in self.approved.items())
        return same and name == self.asked.name

    def run(self, tool: Callable[[], T], wrapper: type[Exception]) -> T:
        """Run the tool of a call that was let through, and record what comes of it.

        Args:
            tool: Runs it.
            wrapper: What the framework makes of a tool's own error, with that as its cause.

        Raises:
            GuardError: A function that is guarded itself was refused.
        """
        errors = Unwrapping(wrapper)

        def run() -> T:
            with errors.inside:
                return tool()

        with errors.outside(), self._refusing(raises=True):
            return self._let_through().run(run)

    async def arun(self, tool: Callable[[], Awaitable[T]], wrapper: type[Exception]) -> T:
        """As `run`."""
        errors = Unwrapping(wrapper)

        async def run() -> T:
            with errors.inside:
                return await tool()

        with errors.outside(), self._refusing(raises=True):
            return await self._let_through().arun(run)

    def _let_through(self) -> Begun:
        if self.begun is None:
            raise NotRunError("the call was not let through")
        return self.begun

    def end(self, why: str | None) -> None:
        """Record what came of the call, where its tool was not seen to begin.

        Args:
            why: What went wrong; None if nothing did.
        """
        if self.begun is None or self.begun.asks_itself:
            return
        if why is None:
            self.begun.run(lambda: None)
        else:
            self.begun.not_run(NotRunError(why))

    @contextmanager
    def _refusing(self, *, raises: bool = False) -> Iterator[None]:
        try:
            yield
        except GuardError as error:
            self.refused, self.told = error, refusal_or_raise(error, paused=self.asked.call_id is not None)
            if raises:
                raise
