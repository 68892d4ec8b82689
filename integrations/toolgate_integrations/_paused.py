"""A run that waits for people, as it is kept until it is gone on with: as JSON, for any process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from toolgate import ConfigurationError

__all__ = ["HeldCall", "Paused"]

_NO_STATE: Final = "state is no paused run's; pass what the guarded run has as its state"


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that waits for a person.

    Attributes:
        call_id: The model's id of the call.
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


@dataclass
class Paused:
    """What a paused run is gone on with from.

    Attributes:
        run_id: The run's name.
        messages: The conversation, to the message that made the calls.
        after: What was added to it meanwhile.
        results: What became of the calls that do not wait, as the framework says it.
        held: Those that wait.
    """

    run_id: str
    messages: list[Any]
    after: list[Any]
    results: list[Any]
    held: list[HeldCall]

    def written(self) -> dict[str, Any]:
        """The run's state."""
        return asdict(self)

    @classmethod
    def read(cls, state: Mapping[str, Any], made: Callable[[Any], Collection[str]]) -> Paused:
        """A run from its state.

        Args:
            state: What was written.
            made: The ids of the calls that a message makes.

        Raises:
            ConfigurationError: It is none, or no calls of its last message wait: what they come to would be lost.
        """
        try:
            lists = {name: list(state[name]) for name in ("messages", "after", "results")}
            found = cls(run_id=state["run_id"], held=[HeldCall(**each) for each in state["held"]], **lists)
            ids = {each.call_id for each in found.held}
            fits = 0 < len(ids) == len(found.held) and ids <= set(made(found.messages[-1]))
        except (TypeError, KeyError, IndexError) as error:
            raise ConfigurationError(_NO_STATE) from error
        if not fits:
            raise ConfigurationError(_NO_STATE)
        return found
