"""Which call of which run a tool of the Anthropic SDK is carried out for: tools themselves are told their input alone."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from toolgate import ApprovalPending

__all__ = ["HeldCall", "Turns", "now"]


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that waits for a person.

    Attributes:
        call_id: The model's id of the call, of its `tool_use` block.
        name: The tool.
        input: What the model gave it.
        approval_id: The request it waits for.
        action: What was asked for.
        reason: Why it is held.
    """

    call_id: str
    name: str
    input: dict[str, Any] = field(repr=False)
    approval_id: str
    action: str
    reason: str | None


@dataclass(eq=False)
class Turns:
    """The calls of one run, message by message.

    Attributes:
        run_id: The run's name.
        blocks: The `tool_use` blocks of the message that is being handled.
        answers: What became of calls that were carried out, by id: what the runner asks for again is not run again.
        held: The calls that wait, by id.
    """

    run_id: str = field(default_factory=lambda: uuid4().hex)
    blocks: Callable[[], list[Any]] = list
    answers: dict[str, Callable[[], Any]] = field(default_factory=dict)
    held: dict[str, HeldCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with _lock:
            _all.add(self)

    def hold(self, block: Any, pending: ApprovalPending) -> None:
        """A call waits."""
        self.held[block.id] = HeldCall(
            block.id, block.name, dict(block.input), pending.approval_id, pending.action, pending.reason
        )


def now(given: object) -> tuple[Turns, Any] | None:
    """The run and the block that a tool's input is of; None if it is of no guarded run."""
    with _lock:
        runs = list(_all)
    for turns in runs:
        for block in turns.blocks():
            # The runner hands a tool the very input of the block.
            if block.input is given:
                return turns, block
    return None


# As long as there are runs to ask for them.
_all: weakref.WeakSet[Turns] = weakref.WeakSet()
_lock = threading.Lock()
