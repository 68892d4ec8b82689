"""What a coding agent tells its hook, and what the hook answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from toolgate_integrations._naming import ToolCall

__all__ = ["After", "Agent", "Answer", "Before", "Ended", "Event"]


@dataclass(frozen=True, slots=True)
class Before:
    """A tool is about to run.

    Attributes:
        call: The call, with its arguments as the model gave them.
        beside: What is shown and bound beside the arguments, and cannot be changed by an approver.
        process: The agent's process, if it was told.
    """

    call: ToolCall
    beside: Mapping[str, str] = field(default_factory=dict)
    process: int | None = None


@dataclass(frozen=True, slots=True)
class After:
    """A tool has run.

    Attributes:
        call: The call, with the arguments it really had.
        beside: As in `Before`, as far as it can be told now.
        error: What went wrong, if anything did.
        duration_ms: How long it ran, in milliseconds, if that was told.
    """

    call: ToolCall
    beside: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A session is over: what ran in it is heard of no more.

    Attributes:
        session: Which.
    """

    session: str


Event: TypeAlias = Before | After | Ended


@dataclass(frozen=True, slots=True)
class Answer:
    """How the hook's process ends.

    Attributes:
        code: Its exit code.
        stdout: All that it writes to standard output.
        stderr: What a person, or the model, reads.
    """

    code: int
    stdout: bytes = b""
    stderr: str = ""


class Agent(Protocol):
    """One coding agent's way of asking."""

    def read(self, told: Mapping[str, Any]) -> Event:
        """What it told.

        Raises:
            ConfigurationError: It is nothing that can be answered.
        """

    def allowed(self, changed: Mapping[str, Any] | None) -> Answer:
        """Let the tool run, with other arguments if an approver changed them."""

    def refused(self, why: str) -> Answer:
        """Have the tool not run, and the model read why."""
