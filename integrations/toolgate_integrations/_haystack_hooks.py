"""The hooks of a guarded Haystack agent: one that asks before the tools of a step run, one that records after.

A step is what the base calls a turn. Its tools are exchanged for copies that run for its calls only.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final, Literal, Self

from haystack.components.agents.state import State, replace_values
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks import HookPoint
from haystack.tools import ToolsType, flatten_tools_or_toolsets
from haystack.tools.errors import ToolInvocationError
from haystack.tools.tool import Tool

from toolgate import ConfigurationError, Guard
from toolgate_integrations import _base as base
from toolgate_integrations._arguments import SignatureSchema
from toolgate_integrations._gate import Gate
from toolgate_integrations._haystack_messages import answered, divided, waiting
from toolgate_integrations._made import Made
from toolgate_integrations._runs import Runs
from toolgate_integrations._turns import Turn

__all__ = ["STOPPED", "GuardHook", "OnHold", "RecordHook"]

OnHold = Literal["stop", "wait", "tell"]

#: the `exit_reason` of a run that was stopped because calls wait for a person
STOPPED: Final = "approval_pending"
# By the state of each, for all hooks: an agent that was read from a file has others than the one that was written.
_RUNS: Final = Runs()


class _Hook:
    """What can be written into a file, and read from it."""

    def to_dict(self) -> dict[str, Any]:
        """What the hook is made of again."""
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """As `to_dict` has written it."""
        return default_from_dict(cls, data)


class GuardHook(_Hook):
    """Asks about every call of a step before any tool of it runs; made by `guard_hooks`.

    Args:
        guard: As for `guard_hooks`.
        tool_actions: As for `guard_hooks`.
        agents: As for `guard_hooks`.
        agent: As for `guard_hooks`.
        on_hold: As for `guard_hooks`.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    allowed_hook_points: ClassVar[tuple[HookPoint, ...]] = ("before_tool",)

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: base.ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        agent: str | None = None,
        on_hold: OnHold = "stop",
    ) -> None:
        given: Any = {"tool_actions": tool_actions, "agents": agents, "agent": agent, "on_hold": on_hold}
        self.gate = Gate(guard, pauses="stop", **given)
        self._written = None if guard is not None or callable(tool_actions) else given

    def run(self, state: State) -> None:
        """Ask about the calls the model made; what may not run is answered, and taken out."""
        turn = self._turn(state)
        turn.ask()
        self._settle(state, turn)

    async def run_async(self, state: State) -> None:
        """As `run`."""
        turn = self._turn(state)
        await turn.aask()
        self._settle(state, turn)

    def asked(self, call: ToolCall, tools: ToolsType | None, **more: Any) -> base.ToolCall:
        """A call of one of these tools, as the gateway is to hear of it."""
        named = [each for each in flatten_tools_or_toolsets(tools) if each.name == call.tool_name]
        function = base.function_of(*(one for each in named for one in (each.function, each.async_function)))
        # The run's state fills these in, unless the model does.
        injected = {one for each in named for one in (each.inputs_from_state or {}).values()}
        schema = SignatureSchema(function, injected)
        return self.gate.call(
            call.tool_name, call.arguments, call.id, function=function, schema=schema, **more
        )

    def write(self, state: State, messages: list[ChatMessage], refused: Iterable[Made]) -> None:
        """Write the conversation anew, and stop the run if a call of it waits."""
        state.set("messages", messages, handler_override=replace_values)
        if any(self.gate.pauses_for(each.refused) for each in refused):
            state.set("stop_run", STOPPED)

    def answer(self, made: Made) -> ChatMessage:
        """What stands in the conversation for a call that did not run."""
        if self.gate.pauses_for(made.refused):
            return waiting(made, made.refused)
        return answered(made.own, made.told)

    def to_dict(self) -> dict[str, Any]:
        """What the hook is made of again, by the environment's guard.

        Raises:
            ConfigurationError: It has a guard of its own, or a function as `tool_actions`.
        """
        if self._written is None:
            raise ConfigurationError(
                "this hook cannot be written down; leave out guard=, and give tool_actions as a mapping"
            )
        return default_to_dict(self, **self._written)

    def _turn(self, state: State) -> Turn:
        """The calls that the model has just made."""
        messages = state.data.get("messages") or []
        context = state.data.get("hook_context") or {}
        agent = base.text_or_none(context.get("agent"), "hook_context['agent']") or self.gate.agent
        run_id = base.text_or_none(context.get("run_id"), "hook_context['run_id']")
        # A name of our own keeps calls apart whose ids come again in each run; it is found again after a pause. Told
        # that a call waits, a model may ask again in another run.
        run_id = run_id or (None if self.gate.tells else _RUNS.of(state).run_id)
        tools = list(state.data.get("tools") or [])
        calls: list[ToolCall] = messages[-1].tool_calls if messages else []
        made = [Made(self.asked(each, tools, run_id=run_id, agent=agent), each) for each in calls]
        return Turn(self.gate.bridge, made, ToolInvocationError)

    def _settle(self, state: State, turn: Turn) -> None:
        """Leave the framework the calls that may run, as they were approved, and tools that run nothing else."""
        refused = turn.close(partial(_left, weakref.ref(state)))
        edited = [each for each in turn.made if each.arguments != each.own.arguments]
        for each in edited:
            each.own = replace(each.own, arguments=each.arguments)
        if refused or edited:
            *before, last = state.data["messages"]
            parts = divided(last, [self.answer(each) for each in refused], [each.own for each in turn.made])
            self.write(state, [*before, *parts], refused)
        _RUNS.begin(state, turn, self)
        tools = state.data.get("tools")
        if isinstance(tools, list):
            # In place: it is this list that the framework takes the tools of the step from.
            tools[:] = [_watched(each, turn) for each in tools]


class RecordHook(_Hook):
    """Records what came of the calls of a step, where the tools themselves could not say; made by `guard_hooks`."""

    allowed_hook_points: ClassVar[tuple[HookPoint, ...]] = ("after_tool",)

    def run(self, state: State) -> None:
        """Record, and stop the run for functions that are guarded themselves and wait."""
        turn, hook = _RUNS.end(state)
        if turn is None:
            return
        messages: list[ChatMessage] = state.data["messages"]
        results = [one for each in messages for one in each.tool_call_results]
        held = turn.end((one.origin, str(one.result) if one.error else None) for one in results)
        if held:
            # By identity: equal calls of earlier turns have answers of their own.
            answers = {id(each.own): hook.answer(each) for each in held}
            hook.write(state, [answers.get(_origin(each), each) for each in messages], held)


def _origin(message: ChatMessage) -> int:
    """Which call a message answers."""
    return id(None if message.tool_call_result is None else message.tool_call_result.origin)


def _left(state: weakref.ref[State]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the framework is about to run: the calls of the last message."""
    # Weakly: it is by the state being gone that a run is known to have ended.
    held = state()
    messages = [] if held is None else held.data.get("messages") or []
    return ((each.tool_name, each.arguments) for one in messages[-1:] for each in one.tool_calls)


def _watched(tool: Tool, turn: Turn) -> Tool:
    """A copy of a tool that runs for the calls of a turn only, and records what comes of them."""
    refusal = partial(ToolInvocationError, tool_name=tool.name)

    def invoke(**given: Any) -> Any:
        return turn.run(tool.name, given, partial(tool.invoke, **given), refusal)

    async def invoke_async(**given: Any) -> Any:
        return await turn.arun(tool.name, given, partial(tool.invoke_async, **given), refusal)

    copied = copy.copy(tool)
    vars(copied).update({"invoke": invoke, "invoke_async": invoke_async})
    return copied
