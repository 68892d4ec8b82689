"""Going on with a run of the Anthropic SDK that was paused because calls wait for a person."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from anthropic.lib.tools import ToolError

from toolgate import ConfigurationError, GuardError
from toolgate_integrations._anthropic_runs import AsyncGuardedRun, GuardedRun, made, plain
from toolgate_integrations._anthropic_tools import AsyncGuardedTool, GuardedTool
from toolgate_integrations._anthropic_turns import HeldCall, Turns
from toolgate_integrations._base import ToolCall

__all__ = ["resume", "resume_async"]

logger = logging.getLogger("toolgate")

_NO_STATE = "state is no paused run's; pass the state of a GuardedRun"


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
    for held, tool, block in again.rejected:
        with _logged(tool):
            tool.gate.bridge.reject(again.call(tool, block), again.noes[held.call_id], held.approval_id)
    for tool, block in again.calls:
        with again.telling(block):
            again.tell(block, tool.carry_out(block.input, again.turns, block))
    waiting = again.waiting()
    if waiting is not None:
        return GuardedRun(None, run_id=again.turns.run_id, state=waiting)
    return GuardedRun(runner(again.messages()), run_id=again.turns.run_id)


async def resume_async(
    state: Mapping[str, Any],
    tools: Iterable[Any],
    runner: Callable[[list[Any]], Any],
    *,
    rejected: Mapping[str, str] | None = None,
) -> AsyncGuardedRun:
    """As `resume`, for asynchronous tools and runners."""
    again = _Again(state, tools, runner, rejected, AsyncGuardedTool)
    for held, tool, block in again.rejected:
        with _logged(tool):
            await tool.gate.bridge.areject(
                again.call(tool, block), again.noes[held.call_id], held.approval_id
            )
    for tool, block in again.calls:
        with again.telling(block):
            again.tell(block, await tool.carry_out(block.input, again.turns, block))
    waiting = again.waiting()
    if waiting is not None:
        return AsyncGuardedRun(None, run_id=again.turns.run_id, state=waiting)
    return AsyncGuardedRun(runner(again.messages()), run_id=again.turns.run_id)


class _Again:
    """What a paused run is gone on with."""

    def __init__(
        self,
        state: Mapping[str, Any],
        tools: Iterable[Any],
        runner: object,
        rejected: Mapping[str, str] | None,
        kind: type[Any],
    ) -> None:
        try:
            self.turns = Turns(state["run_id"])
            self._messages = list(state["messages"])
            self._results = {each["tool_use_id"]: each for each in state["results"]}
            self._after = list(state["after"])
            held = [HeldCall(**each) for each in state["held"]]
            # Looked at before anything runs: later, what a tool has answered would be lost.
            self._made = made(self._messages[-1])
        except (TypeError, KeyError, IndexError) as error:
            raise ConfigurationError(_NO_STATE) from error
        ids = [each.call_id for each in held]
        if not held or len(set(ids)) < len(ids) or not set(ids) <= set(self._made):
            raise ConfigurationError(_NO_STATE)
        if not callable(runner):
            raise ConfigurationError(f"runner is {runner!r}; pass a function that makes a runner of messages")
        if not _is_noes(rejected):
            raise ConfigurationError(f"rejected is {rejected!r}; pass a mapping of the ids of calls to why")
        self.noes = dict(rejected or {})
        if unknown := self.noes.keys() - {each.call_id for each in held}:
            raise ConfigurationError(f"the call {min(unknown)!r} was rejected, and does not wait")
        named: dict[str, Any] = {each.name: each for each in tools if isinstance(each, kind)}
        if missing := [each.name for each in held if each.name not in named]:
            raise ConfigurationError(
                f"a call of the tool {missing[0]!r} waits, and no guarded tool is called so; pass what guard_tools(…) "
                "returned, of the kind of the run"
            )
        blocks = [(each, SimpleNamespace(id=each.call_id, name=each.name, input=each.input)) for each in held]
        self.calls = [(named[each.name], block) for each, block in blocks if block.id not in self.noes]
        self.rejected = [(each, named[each.name], block) for each, block in blocks if block.id in self.noes]
        for _, _, block in self.rejected:
            self.tell(block, self.noes[block.id], is_error=True)

    def call(self, tool: Any, block: Any) -> ToolCall:
        """A call, as the gateway heard of it."""
        found: ToolCall = tool.gate.call(tool.inner, block.input, block.id, self.turns.run_id)
        return found

    def tell(self, block: Any, content: Any, *, is_error: bool = False) -> None:
        """What the model is to read of a call."""
        result = {"type": "tool_result", "tool_use_id": block.id, "content": content}
        self._results[block.id] = plain({**result, "is_error": True} if is_error else result)

    @contextmanager
    def telling(self, block: Any) -> Iterator[None]:
        """What goes wrong with a call is told as the SDK's runners tell it; nothing is, while the call waits."""
        try:
            yield
        except ToolError as error:
            if block.id not in self.turns.held:
                self.tell(block, error.content, is_error=True)
        except Exception as error:
            logger.exception("the tool %r failed", block.name)
            self.tell(block, repr(error), is_error=True)

    def waiting(self) -> dict[str, Any] | None:
        """The state of the run, if calls still wait."""
        if not self.turns.held:
            return None
        return {
            "run_id": self.turns.run_id,
            "messages": self._messages,
            "after": self._after,
            "results": list(self._results.values()),
            "held": plain([asdict(each) for each in self.turns.held.values()]),
        }

    def messages(self) -> list[Any]:
        """The conversation, with what became of all calls of its last message, in their order."""
        answers = [self._results[each] for each in self._made if each in self._results]
        after = [each for each in self._after if each["content"]]
        return [*self._messages, {"role": "user", "content": answers}, *after]


def _is_noes(rejected: object) -> bool:
    if rejected is None:
        return True
    return isinstance(rejected, Mapping) and all(
        isinstance(each, str) for one in rejected.items() for each in one
    )


@contextmanager
def _logged(tool: Any) -> Iterator[None]:
    try:
        yield
    except GuardError as error:
        logger.warning("the rejection of a call of %r was not recorded: %s", tool.name, error)
