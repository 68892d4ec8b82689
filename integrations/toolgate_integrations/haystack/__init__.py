"""Haystack: `Agent(…, hooks=guard_hooks())`, and `resume(agent, messages)` after a pause."""

from __future__ import annotations

import asyncio
import copy
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final, Self, TypeAlias

from toolgate import ApprovalPending, ConfigurationError, Guard
from toolgate._telemetry import warn_renamed
from toolgate_integrations._naming import function_of
from toolgate_integrations._options import OnHold, text_or_none
from toolgate_integrations.base import Bridge, SignatureSchema, ToolActions, describe_pending, require
from toolgate_integrations.base import ToolCall as GuardedCall

require("haystack")

from haystack.components.agents import Agent
from haystack.components.agents.state import State, replace_values
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks import Hook, HookPoint
from haystack.hooks.human_in_the_loop import ToolExecutionDecision
from haystack.tools import ToolsType, flatten_tools_or_toolsets
from haystack.tools.errors import ToolInvocationError
from haystack.tools.tool import Tool

from toolgate_integrations.haystack.turn import Made, Runs, Turn

__all__ = [
    "STOPPED",
    "GuardHook",
    "HeldCall",
    "RecordHook",
    "aresume",
    "guard_hooks",
    "held_calls",
    "resume",
    "resume_async",
]

_KEY: Final = "toolgate"


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that waits for a person.

    Attributes:
        tool_call: The call, as the model made it.
        approval_id: The request it waits for.
        action: What was asked for.
        reason: Why it is held.
        run_id: The run it belongs to.
        agent: The agent that makes it.
    """

    tool_call: ToolCall = field(repr=False)
    approval_id: str
    action: str
    reason: str | None
    run_id: str | None = None
    agent: str | None = None


def held_calls(messages: Iterable[ChatMessage]) -> list[HeldCall]:
    """Return the calls of a conversation that require an approval.

    Args:
        messages: What `Agent.run` returned as `messages`, or its copy from a store.
    """
    return [held for each in messages if (held := _held(each)) is not None]


def _held(message: ChatMessage) -> HeldCall | None:
    said, result = message.meta.get(_KEY), message.tool_call_result
    return HeldCall(result.origin, **said) if isinstance(said, dict) and result is not None else None


def waiting(made: Made, pending: ApprovalPending) -> ChatMessage:
    """Return the message for a call that requires an approval."""
    said = {**describe_pending(pending), "run_id": made.asked.run_id, "agent": made.asked.agent}
    return answered(made.own, made.told, {_KEY: said})


def answered(tool_call: ToolCall, text: str, meta: dict[str, Any] | None = None) -> ChatMessage:
    """Return the message for a call that did not run."""
    return ChatMessage.from_tool(text, origin=tool_call, error=True, meta=meta)


def divided(message: ChatMessage, answers: list[ChatMessage], calls: list[ToolCall]) -> list[ChatMessage]:
    """A message of calls in two: those that are answered, then those that the framework is to run."""
    refused = [each.origin for answer in answers for each in answer.tool_call_results]
    parts = [making(message, refused), *answers] if refused else []
    return [*parts, making(message, calls)] if calls else parts


def without(messages: Sequence[ChatMessage], noes: Mapping[str, str]) -> list[ChatMessage]:
    """A conversation before its calls that wait were made.

    Args:
        messages: The conversation.
        noes: What those of them that are not to run are answered with, by their requests.
    """
    kept: list[ChatMessage] = []
    gone: list[ToolCall] = []
    # From the end: an equal call that was made and answered earlier stays.
    for message in reversed(messages):
        held = _held(message)
        if held is None:
            calls = [each for each in message.tool_calls if not _taken(each, gone)]
            if calls or not message.tool_calls:
                kept.append(making(message, calls) if calls != message.tool_calls else message)
        elif held.approval_id in noes:
            kept.append(answered(held.tool_call, noes[held.approval_id]))
        else:
            gone.append(held.tool_call)
    return kept[::-1]


def _taken(call: ToolCall, gone: list[ToolCall]) -> bool:
    if call in gone:
        gone.remove(call)
        return True
    return False


def making(message: ChatMessage, calls: Iterable[ToolCall]) -> ChatMessage:
    """The same message with other calls."""
    said, meta = message.text, dict(message.meta)
    return ChatMessage.from_assistant(said, meta, message.name, list(calls), reasoning=message.reasoning)


#: the `exit_reason` of a run that was stopped because calls wait for a person
STOPPED: Final = "approval_pending"
# By the state of each, for all hooks: an agent that was read from a file has others than the one that was written.
_RUNS: Final = Runs()


class _Hook:
    """Base of hooks that can be serialized."""

    def to_dict(self) -> dict[str, Any]:
        """Return the serialized hook."""
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the hook that `to_dict` serialized."""
        return default_from_dict(cls, data)


class GuardHook(_Hook):
    """Asks about every call of a step before any tool of it runs; made by `guard_hooks`.

    Args:
        guard: As for `guard_hooks`.
        tool_actions: As for `guard_hooks`.
        agents: As for `guard_hooks`.
        agent: As for `guard_hooks`.
        on_hold: As for `guard_hooks`.
        hold_timeout: As for `guard_hooks`.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    allowed_hook_points: ClassVar[tuple[HookPoint, ...]] = ("before_tool",)

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        agent: str | None = None,
        on_hold: OnHold = "pause",
        hold_timeout: float | None = None,
    ) -> None:
        given: Any = {
            "tool_actions": tool_actions,
            "agents": agents,
            "agent": agent,
            "on_hold": on_hold,
            "hold_timeout": hold_timeout,
        }
        self.bridge = Bridge(guard, can_pause=True, **given)
        self._written = None if guard is not None or callable(tool_actions) else given

    def run(self, state: State) -> None:
        """Ask about the calls the model made; what may not run is answered, and taken out."""
        turn = self._turn(state)
        turn.ask()
        self._settle(state, turn)

    async def run_async(self, state: State) -> None:
        """Asynchronous form of `run`."""
        turn = self._turn(state)
        await turn.aask()
        self._settle(state, turn)

    def asked(self, call: ToolCall, tools: ToolsType | None, **more: Any) -> GuardedCall:
        """A call of one of these tools, as the gateway is to hear of it."""
        named = [each for each in flatten_tools_or_toolsets(tools) if each.name == call.tool_name]
        function = function_of(*(one for each in named for one in (each.function, each.async_function)))
        # The run's state fills these in, unless the model does.
        injected = {one for each in named for one in (each.inputs_from_state or {}).values()}
        schema = SignatureSchema(function, injected)
        return self.bridge.call(
            call.tool_name, call.arguments, call.id, function=function, schema=schema, **more
        )

    def write(self, state: State, messages: list[ChatMessage], refused: Iterable[Made]) -> None:
        """Write the conversation anew, and stop the run if a call of it waits."""
        state.set("messages", messages, handler_override=replace_values)
        if any(self.bridge.pauses_for(each.refused) for each in refused):
            state.set("stop_run", STOPPED)

    def answer(self, made: Made) -> ChatMessage:
        """Return the message for a call that did not run."""
        if self.bridge.pauses_for(made.refused):
            return waiting(made, made.refused)
        return answered(made.own, made.told)

    def to_dict(self) -> dict[str, Any]:
        """Return the serialized hook; it will use the guard of the environment.

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
        agent = text_or_none(context.get("agent"), "hook_context['agent']") or self.bridge.agent
        run_id = text_or_none(context.get("run_id"), "hook_context['run_id']")
        # A name of our own keeps calls apart whose ids come again in each run; it is found again after a pause. Told
        # that a call waits, a model may ask again in another run.
        run_id = run_id or (None if not self.bridge.names_calls else _RUNS.of(state).run_id)
        tools = list(state.data.get("tools") or [])
        calls: list[ToolCall] = messages[-1].tool_calls if messages else []
        made = [Made(self.asked(each, tools, run_id=run_id, agent=agent), each) for each in calls]
        return Turn(self.bridge, made, ToolInvocationError)

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
    """Return the identity of the call that a message is the result of."""
    return id(None if message.tool_call_result is None else message.tool_call_result.origin)


def _left(state: weakref.ref[State]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the calls that the framework is about to run: those of the last message."""
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


Decisions: TypeAlias = Sequence[ToolExecutionDecision]


def resume(
    agent: Agent, messages: Sequence[ChatMessage], decisions: Decisions = (), **given: Any
) -> dict[str, Any]:
    """Go on with a run that was stopped because calls wait: each is asked about again, and runs if it may.

    Args:
        agent: The agent, or one made like it.
        messages: The stopped run's `messages`.
        decisions: Calls that are not to run, whatever the gateway says: those with `execute=False`.
        **given: What else `Agent.run` takes, state above all. In `hook_context` the run and the agent are those of the
            stopped run.

    Returns:
        What `Agent.run` returns.

    Raises:
        ConfigurationError: The agent is not guarded, no call waits, or a decision is not one about these calls.
    """
    again = _Again(agent, messages, decisions, given)
    for no in again.rejected:
        again.bridge.reject(*no)
    return dict(again.agent.run(**again.given))


async def aresume(
    agent: Agent, messages: Sequence[ChatMessage], decisions: Decisions = (), **given: Any
) -> dict[str, Any]:
    """Asynchronous form of `resume`."""
    again = _Again(agent, messages, decisions, given)
    for no in again.rejected:
        await again.bridge.areject(*no)
    return dict(await again.agent.run_async(**again.given))


async def resume_async(*args: Any, **options: Any) -> dict[str, Any]:
    """Deprecated name of `aresume`."""
    warn_renamed("resume_async", "aresume")
    return await aresume(*args, **options)


class _Again:
    """Resumption of a stopped run.

    The framework carries out no calls but those its model has just made. So the model's first word is the calls that
    wait, and they go the way of all others, hooks and all.
    """

    def __init__(
        self, agent: Agent, messages: Sequence[ChatMessage], decisions: Decisions, given: Mapping[str, Any]
    ) -> None:
        hook, held = _hook_of(agent), held_calls(messages)
        if not held:
            raise ConfigurationError("no call of these messages waits; pass all messages of a stopped run")
        noes = _noes(held, decisions)
        again = [each.tool_call for each in held if each.approval_id not in noes]
        self.bridge = hook.bridge
        self.rejected: list[Any] = []
        for each in held:
            if each.approval_id in noes:
                call = hook.asked(each.tool_call, agent.tools, run_id=each.run_id, agent=each.agent)
                self.rejected.append((call, noes[each.approval_id], each.approval_id))
        # The prompts are among the messages already.
        changed: dict[str, Any] = {"system_prompt": None, "user_prompt": None, "required_variables": None}
        if again:
            changed["chat_generator"] = _Replaying(agent.chat_generator, messages, again)
        self.agent = agent.clone(**changed)
        context = {**(given.get("hook_context") or {}), "run_id": held[-1].run_id, "agent": held[-1].agent}
        self.given = {**given, "messages": without(messages, noes), "hook_context": context}


class _Replaying:
    """A chat generator that makes some calls once more, and is another one from then on."""

    def __init__(self, inner: Any, messages: Iterable[ChatMessage], calls: Sequence[ToolCall]) -> None:
        said = [each for each in messages if any(one in calls for one in each.tool_calls)][-1]
        self._inner, self._replies = inner, [making(said, calls)]
        # Tokens that were counted before the pause are not used again.
        self._replies[0].meta.pop("usage", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, messages: list[ChatMessage], tools: Any = None, **given: Any) -> dict[str, Any]:
        """Return the calls, and afterwards the replies of the original generator."""
        if self._replies:
            return {"replies": [self._replies.pop()]}
        return dict(self._inner.run(messages=messages, tools=tools, **given))

    async def run_async(self, messages: list[ChatMessage], tools: Any = None, **given: Any) -> dict[str, Any]:
        """Asynchronous form of `run`."""
        if self._replies or not hasattr(self._inner, "run_async"):
            return await asyncio.to_thread(self.run, messages, tools, **given)
        return dict(await self._inner.run_async(messages=messages, tools=tools, **given))


def _hook_of(agent: Agent) -> GuardHook:
    for each in (getattr(agent, "hooks", None) or {}).get("before_tool", ()):
        if isinstance(each, GuardHook):
            return each
    raise ConfigurationError(f"agent is {agent!r}; pass a haystack Agent made with hooks=guard_hooks(…)")


def _noes(held: Sequence[HeldCall], decisions: Decisions) -> dict[str, str]:
    """Return the messages for rejected calls by approval request.

    Raises:
        ConfigurationError: A decision is not one about these calls.
    """
    noes = {}
    for each in decisions:
        if not isinstance(each, ToolExecutionDecision):
            raise ConfigurationError(f"{each!r} is no decision; pass ToolExecutionDecision(…)")
        name = each.tool_name
        named = [one for one in held if one.tool_call.tool_name == name]
        about = [one for one in named if not each.tool_call_id or each.tool_call_id == one.tool_call.id]
        if len(about) != 1:
            raise ConfigurationError(
                f"the decision about {name!r}, call {each.tool_call_id!r}, is about {len(about)} of the calls that wait; "
                "name one by its tool_call_id"
            )
        if not each.execute:
            noes[about[0].approval_id] = each.feedback or f"Not done: the call of {name!r} was rejected."
        elif each.final_tool_params not in (None, about[0].tool_call.arguments):
            raise ConfigurationError(
                f"the decision about {name!r} changes its arguments; change them where it is approved, at the gateway"
            )
    return noes


def guard_hooks(
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    agent: str | None = None,
    on_hold: OnHold = "pause",
    hold_timeout: float | None = None,
    beside: Mapping[HookPoint, Sequence[Hook]] | None = None,
) -> dict[HookPoint, list[Hook]]:
    """The hooks of an agent whose every tool call is asked for.

    Args:
        guard: The guard; None for the guard that is configured by the environment.
        tool_actions: Actions by tool name, a mapping or a function of the name. The default action is `tools.<name>`.
        agents: Agent ids by the names of agents; other agents act as the guard's own agent.
        agent: The name of the agent that has these hooks, where `hook_context` names none.
        on_hold: Reaction to a call that requires an approval. `pause`: the run stops; continue it with `resume`.
            `wait`: wait for the approver within the run. `raise`: end the run with `ApprovalPending`. `notify_model`:
            the model reads that the call is pending.
        hold_timeout: Seconds that `wait` waits, after which the model reads that the call is pending; None for no limit.
        beside: The agent's other hooks.

    Returns:
        All hooks, the guard's nearest to the tools.

    Raises:
        ConfigurationError: An argument is wrong.
    """
    if beside is not None and not isinstance(beside, Mapping):
        raise ConfigurationError(f"beside is {beside!r}; pass a mapping of hook points to lists of hooks")
    asks = GuardHook(
        guard,
        tool_actions=tool_actions,
        agents=agents,
        agent=agent,
        on_hold=on_hold,
        hold_timeout=hold_timeout,
    )
    hooks = {point: list(each) for point, each in (beside or {}).items()}
    hooks["before_tool"] = [*hooks.get("before_tool", ()), asks]
    hooks["after_tool"] = [RecordHook(), *hooks.get("after_tool", ())]
    return hooks
