"""Runs of a framework that has a name for none of them: known by an object that each has, and lasts as long as it does."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from toolgate_integrations._turns import Turn

__all__ = ["Run", "Runs"]


@dataclass(eq=False)
class Run:
    """What is known of one run.

    Attributes:
        run_id: A name for it; no other run has it.
        turn: The calls that are under way.
        asker: What asked about them.
    """

    run_id: str = field(default_factory=lambda: uuid4().hex)
    turn: Turn | None = None
    asker: Any = None


class Runs:
    """The runs under way, by the framework's object of each."""

    def __init__(self) -> None:
        self._runs: dict[int, tuple[weakref.ref[object], Run]] = {}
        self._lock = threading.Lock()

    def of(self, held: object) -> Run:
        """The run that an object is of. Those that ended in the middle of a turn are recorded to their end.

        Args:
            held: The object; it is not kept alive.
        """
        with self._lock:
            gone = [key for key, (kept, _) in self._runs.items() if kept() is None]
            ended = [self._runs.pop(key)[1] for key in gone]
            # With the object itself: an id is another's as soon as its object is gone.
            _, run = self._runs.setdefault(id(held), (weakref.ref(held), Run()))
        for each in ended:
            if each.turn is not None:
                each.turn.end()
        return run

    def begin(self, held: object, turn: Turn, asker: object) -> None:
        """A turn of a run is under way.

        Args:
            held: The run's object.
            turn: The turn.
            asker: What asked about its calls.
        """
        run = self.of(held)
        run.turn, run.asker = turn, asker

    def end(self, held: object) -> tuple[Turn | None, Any]:
        """The turn of a run that was under way, and what asked about it; it is not any longer."""
        run = self.of(held)
        turn, run.turn = run.turn, None
        return turn, run.asker
