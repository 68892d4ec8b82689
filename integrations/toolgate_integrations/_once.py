"""What became of the calls of a run: each is carried out once, however often the framework asks for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["Once"]

T = TypeVar("T")


@dataclass
class _End:
    """What is told of one call.

    Attributes:
        error: What its tool raised, or that it was interrupted; None if it has answered.
        answer: What it has answered.
    """

    error: Exception | None
    answer: Any = None


class Once:
    """Carries out calls, and tells again what became of those it has carried out.

    Args:
        interrupted: Makes what is raised for a call that was left by no mere exception, such as Ctrl-C or a
            cancellation: it may have been carried out in part.
    """

    def __init__(self, interrupted: Callable[[], Exception]) -> None:
        self._interrupted = interrupted
        self._ends: dict[str, _End] = {}

    def run(self, call_id: str, carry_out: Callable[[], T]) -> T:
        """Carry out a call, unless that was done before.

        Args:
            call_id: The call's name within the run.
            carry_out: Asks and runs the tool.

        Returns:
            What the tool answered then.

        Raises:
            Exception: What it raised then.
        """
        if call_id not in self._ends:
            with self._ending(call_id) as end:
                end.answer = carry_out()
        answer: T = self._told(call_id)
        return answer

    async def arun(self, call_id: str, carry_out: Callable[[], Awaitable[T]]) -> T:
        """As `run`."""
        if call_id not in self._ends:
            with self._ending(call_id) as end:
                end.answer = await carry_out()
        answer: T = self._told(call_id)
        return answer

    @contextmanager
    def _ending(self, call_id: str) -> Iterator[_End]:
        # From the beginning: whoever asks meanwhile, or after an interruption, must not have it carried out again.
        end = self._ends[call_id] = _End(self._interrupted())
        try:
            yield end
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told again
            end.error = error
        else:
            end.error = None

    def _told(self, call_id: str) -> Any:
        end = self._ends[call_id]
        if end.error is not None:
            raise end.error
        return end.answer
