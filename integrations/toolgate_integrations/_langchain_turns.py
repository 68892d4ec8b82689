"""One attempt of one task of a graph, in which several tool calls may share everything (a plain `ToolNode`).

LangGraph pauses a task as a whole, and carries all of it out again afterwards. So in one attempt either tools run, or
it pauses: never both. Nothing then runs a second time, and no answer reaches a call it was not given to.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from langchain_core.messages import AIMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt

from toolgate import ApprovalPending
from toolgate_integrations._langchain_answers import why_not

__all__ = ["Turn", "calls_beside", "turn_of"]

# LangGraph has no public way to see an answer without taking it, and a no must be seen before the gateway is asked.
_SCRATCHPAD: Final = "__pregel_scratchpad"
_CHECKPOINTER: Final = "__pregel_checkpointer"
_SENT: Final = "__pregel_push"


class Turn:
    """What the calls of one attempt of one task have in common.

    Attributes:
        settling: Held by the thread that finds out whether the attempt is to pause.
        asettling: Held by the coroutine that does.
        settled: Whether that has been found out, and nothing waits for a person.
        is_resumable: Whether a checkpointer keeps the run, so that it can be resumed after a pause.
    """

    def __init__(self, answers: Sequence[object], *, is_resumable: bool) -> None:
        self.is_resumable = is_resumable
        self.settling = threading.Lock()
        self.asettling = asyncio.Lock()
        self.settled = False
        self._answers = answers
        self._taken = False
        self._lock = threading.Lock()
        self._ran: set[str | None] = set()
        self._pause: GraphBubbleUp | None = None

    def why_not(self, call_id: str | None) -> str | None:
        """What somebody said who rejected the call; None if nobody did."""
        return why_not(self._answers, call_id)

    @property
    def answered(self) -> bool:
        """Whether there are answers that nobody has taken."""
        return bool(self._answers) and not self._taken

    def take_answers(self) -> None:
        """Take what was said to the guard's own pauses: a tool that asks something itself is not to be given it."""
        with self._lock, suppress(GraphBubbleUp):
            if not self._taken:
                self._taken = True
                for _ in self._answers:
                    interrupt(None)

    def go_on(self) -> None:
        """Return, unless the attempt pauses.

        Raises:
            GraphBubbleUp: It does.
        """
        if self._pause is not None:
            raise type(self._pause)(*self._pause.args)

    @contextmanager
    def running(self, call_id: str | None) -> Iterator[None]:
        """While a tool runs. One that stops to wait for a person has not run.

        Raises:
            GraphBubbleUp: The attempt pauses; the tool may not run in it.
        """
        with self._lock:
            self.go_on()
            self._ran.add(call_id)
        try:
            yield
        except ApprovalPending:
            with self._lock:
                self._ran.discard(call_id)
            raise

    def pause(self, shown: Mapping[str, Any]) -> None:
        """Pause the task, if nothing has run in it; otherwise return.

        Args:
            shown: What whoever goes on with the run is shown.

        Raises:
            GraphBubbleUp: The pause.
        """
        with self._lock:
            self.go_on()
            if self._ran:
                return
            try:
                while True:
                    # What comes back was said before the gateway was asked, and is no reason to ask it again.
                    interrupt(dict(shown))
            except GraphBubbleUp as pause:
                self._pause = pause
                raise


def turn_of(config: Mapping[str, Any]) -> Turn | None:
    """The attempt that a hook is called in; None where there is no graph, and nothing can be paused.

    Args:
        config: The hook's.
    """
    configurable = config.get("configurable") or {}
    scratchpad: Any = configurable.get(_SCRATCHPAD)
    try:
        said, bare, key = (
            list(scratchpad.resume),
            scratchpad.get_null_resume(False),
            scratchpad.get_null_resume,
        )
    except AttributeError:
        return None
    with _lock:
        turn = _turns.get(key)
        if turn is None:
            if bare is not None and why_not([bare], None) is not None:
                # Taken, or it would reach the next call that is held.
                scratchpad.get_null_resume(True)
            turn = _turns[key] = Turn(
                [*said, *([] if bare is None else [bare])], is_resumable=bool(configurable.get(_CHECKPOINTER))
            )
    return turn


def calls_beside(called: Mapping[str, Any], state: object, config: Mapping[str, Any]) -> list[Any]:
    """The tool calls that share a task with the given one, which is among them, in the model's order."""
    path = (config.get("metadata") or {}).get("langgraph_path") or ("",)
    if path[0] == _SENT:
        return [called]
    for messages in _lists(state):
        for message in reversed(messages):
            if isinstance(message, AIMessage) and any(
                one["id"] == called["id"] for one in message.tool_calls
            ):
                return list(message.tool_calls)
    return [called]


def _lists(state: object) -> list[list[Any]]:
    if isinstance(state, list):
        return [state]
    fields = state if isinstance(state, Mapping) else getattr(state, "__dict__", {})
    return [value for value in fields.values() if isinstance(value, list)]


_turns: WeakKeyDictionary[Any, Turn] = WeakKeyDictionary()
_lock: Final = threading.Lock()
