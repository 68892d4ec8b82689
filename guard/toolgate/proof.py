"""Proof that a decision was taken for one call, for the guarded function that carries it out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from toolgate._capture.jsontext import Json, dumps

if TYPE_CHECKING:
    from toolgate.runtime import Runtime

__all__ = ["prove", "take_proof"]


class _Proof:
    """A decision that lets one equal call run, once.

    Args:
        runtime: The guard that asked.
        action: The action.
        agent_id: The agent.
        context: What the gateway allowed.
    """

    def __init__(self, runtime: Runtime, action: str, agent_id: str, context: dict[str, Json]) -> None:
        self._runtime = runtime
        self._call = action, agent_id, dumps(context, canonical=True)
        self._valid = True
        self._lock = threading.Lock()

    def take(self, runtime: Runtime, action: str, agent_id: str, context: dict[str, Json]) -> bool:
        """Return whether the decision was taken for this call; it is used up then."""
        if runtime is not self._runtime or self._call != (action, agent_id, dumps(context, canonical=True)):
            return False
        with self._lock:
            valid, self._valid = self._valid, False
        return valid

    def end(self) -> None:
        """Let no further call run by it."""
        with self._lock:
            self._valid = False


@contextmanager
def prove(runtime: Runtime, action: str, agent_id: str, context: dict[str, Json]) -> Iterator[None]:
    """Let the first equal guarded call inside, in this thread or task, run by the decision that was taken."""
    proof = _Proof(runtime, action, agent_id, context)
    token = _proof.set(proof)
    try:
        yield
    finally:
        # Tasks begun inside still see it afterwards.
        proof.end()
        _proof.reset(token)


def take_proof(runtime: Runtime, action: str, agent_id: str, context: dict[str, Json]) -> bool:
    """Return whether a decision was taken for exactly this call; the next equal call is asked about again."""
    proof = _proof.get()
    return proof is not None and proof.take(runtime, action, agent_id, context)


_proof: ContextVar[_Proof | None] = ContextVar("toolgate_proof", default=None)
