"""Going on with a run of the Anthropic SDK that was paused because calls wait for a person."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from anthropic.lib.tools import ToolError

from toolgate import ConfigurationError
from toolgate_integrations import _anthropic_runs as runs
from toolgate_integrations._anthropic_runs import AsyncGuardedRun, GuardedRun
from toolgate_integrations._anthropic_tools import AsyncGuardedTool, GuardedTool
from toolgate_integrations._called import Called
from toolgate_integrations._paused import Paused
from toolgate_integrations._resuming import Resuming

__all__ = ["resume", "resume_async"]

logger = logging.getLogger("toolgate")


def resume(
    state: Mapping[str, Any],
    tools: Iterable[Any],
    runner: Callable[[list[Any]], Any],
    *,
    rejected: Mapping[str, str] | None = None,
) -> GuardedRun:
    """Ask about the calls that wait once more, and carry out those that may run.

    Args:
        state: The paused run's.
        tools: The guarded tools.
        runner: Makes a runner that goes on from the messages it is given.
        rejected: Calls that are not to run, whatever the gateway says: why, by the id of the call.

    Returns:
        The run, to be iterated or run by `until_done`; paused still, with a new state, if calls still wait.

    Raises:
        ConfigurationError: The state is none, the runner no function, a tool is missing, or a rejected call does not wait.
    """
    again = _Again(state, tools, runner, rejected, GuardedTool)
    again.carry_out()
    return GuardedRun(again.runner(), run_id=again.calls.run_id, state=again.state())


async def resume_async(
    state: Mapping[str, Any],
    tools: Iterable[Any],
    runner: Callable[[list[Any]], Any],
    *,
    rejected: Mapping[str, str] | None = None,
) -> AsyncGuardedRun:
    """As `resume`, for asynchronous tools and runners."""
    again = _Again(state, tools, runner, rejected, AsyncGuardedTool)
    await again.acarry_out()
    return AsyncGuardedRun(again.runner(), run_id=again.calls.run_id, state=again.state())


class _Again(Resuming):
    """What a paused run is gone on with."""

    def __init__(
        self,
        state: Mapping[str, Any],
        tools: Iterable[Any],
        runner: object,
        rejected: Mapping[str, str] | None,
        kind: type[Any],
    ) -> None:
        paused = Paused.read(state, runs.made)
        if not callable(runner):
            raise ConfigurationError(f"runner is {runner!r}; pass a function that makes a runner of messages")
        self._runner = runner
        self._results = runs.by_call(paused.results)
        guarded = [each for each in tools if isinstance(each, kind)]
        super().__init__(paused, runs.calls_of(paused.run_id), guarded, rejected)

    def tell(self, called: Called, answer: Any, *, is_error: bool = False) -> None:
        """What the model is to read of a call, as the SDK's runners tell it."""
        result = {"type": "tool_result", "tool_use_id": called.call_id, "content": answer}
        self._results[called.call_id] = runs.plain({**result, "is_error": True} if is_error else result)

    def tell_error(self, called: Called, error: Exception) -> None:
        """As `tell`, of a call that raised."""
        if isinstance(error, ToolError):
            self.tell(called, error.content, is_error=True)
        else:
            logger.error("the tool %r failed", called.name, exc_info=error)
            self.tell(called, repr(error), is_error=True)

    def state(self) -> Any:
        """The state of the run, if calls still wait."""
        paused = self.calls.state(self.paused.messages, self.paused.after, self._results)
        return runs.plain(paused) if self.calls.held else None

    def runner(self) -> Any:
        """What goes on, if nothing waits: with what became of all calls of the last message, in their order."""
        if self.calls.held:
            return None
        messages, after = self.paused.messages, [each for each in self.paused.after if each["content"]]
        answers = [self._results[each] for each in runs.made(messages[-1]) if each in self._results]
        return self._runner([*messages, {"role": "user", "content": answers}, *after])
