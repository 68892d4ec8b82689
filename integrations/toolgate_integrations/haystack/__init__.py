"""Plugin for Haystack: `Agent(…, hooks=guard_hooks())`, and `resume(agent, messages)` after a pause."""

from __future__ import annotations

import asyncio
import copy
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final, Self, TypeAlias

from toolgate import ApprovalPending, ConfigurationError, Guard
from toolgate._drivers import adrive, drive
from toolgate._effects import Invoke, Steps
from toolgate._telemetry import warn_renamed
from toolgate_integrations._calls import PausedCall
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
    """A tool call that requires an approval.

    Attributes:
        tool_call: The call, as the model made it.
        approval_id: Id of the approval request.
        action: The action that the gateway checked.
        reason: The gateway's reason why the call requires an approval.
        run_id: Id of the run that makes the call.
        agent: Name of the agent that makes the call.
    """

    tool_call: ToolCall = field(repr=False)
    approval_id: str
    action: str
    reason: str | None
    run_id: str | None = None
    agent: str | None = None


def held_calls(messages: Iterable[ChatMessage]) -> list[HeldCall]:
    """Return the tool calls that require an approval, from the `messages` in a result of `Agent.run`."""
    return [held for each in messages if (held := _held(each)) is not None]


def _held(message: ChatMessage) -> HeldCall | None:
    said, result = message.meta.get(_KEY), message.tool_call_result
    return HeldCall(result.origin, **said) if isinstance(said, dict) and result is not None else None


def pending_message(made: Made, pending: ApprovalPending) -> ChatMessage:
    """Return the message that the model reads for a call that requires an approval; its `meta` describes the approval."""
    said = {**describe_pending(pending), "run_id": made.asked.run_id, "agent": made.asked.agent}
    return refusal_message(made.own, made.told, {_KEY: said})


def refusal_message(tool_call: ToolCall, text: str, meta: dict[str, Any] | None = None) -> ChatMessage:
    """Return the message with which the model reads `text` for a call that did not run."""
    return ChatMessage.from_tool(text, origin=tool_call, error=True, meta=meta)


def split_message(
    message: ChatMessage, answers: list[ChatMessage], calls: list[ToolCall]
) -> list[ChatMessage]:
    """Split a message, so that the framework runs only `calls`; `answers` are the results of the other calls.

    The result is a message with the other calls, followed by `answers`, and a message with `calls`.
    """
    refused = [each.origin for answer in answers for each in answer.tool_call_results]
    parts = [replace_calls(message, refused), *answers] if refused else []
    return [*parts, replace_calls(message, calls)] if calls else parts


def remove_pending_calls(messages: Sequence[ChatMessage], noes: Mapping[str, str]) -> list[ChatMessage]:
    """Remove the pending calls from a conversation, because `resume` makes them again; keep the rejected calls.

    `noes` maps approval ids of rejected calls to the texts that become their results.
    """
    kept: list[ChatMessage] = []
    gone: list[ToolCall] = []
    # The messages are iterated from the end, so that the pending call is removed and not an equal, earlier call.
    for message in reversed(messages):
        held = _held(message)
        if held is None:
            calls = [each for each in message.tool_calls if not _taken(each, gone)]
            if calls or not message.tool_calls:
                kept.append(replace_calls(message, calls) if calls != message.tool_calls else message)
        elif held.approval_id in noes:
            kept.append(refusal_message(held.tool_call, noes[held.approval_id]))
        else:
            gone.append(held.tool_call)
    return kept[::-1]


def _taken(call: ToolCall, gone: list[ToolCall]) -> bool:
    if call in gone:
        gone.remove(call)
        return True
    return False


def replace_calls(message: ChatMessage, calls: Iterable[ToolCall]) -> ChatMessage:
    """Return a copy of a message in which `calls` replace its tool calls."""
    said, meta = message.text, dict(message.meta)
    return ChatMessage.from_assistant(said, meta, message.name, list(calls), reasoning=message.reasoning)


#: Value of `exit_reason` for a run that was stopped because calls require an approval.
STOPPED: Final = "approval_pending"
# The runs are shared by all hooks. A deserialized agent has a separate hook object at each hook point, so its hooks
# cannot share attributes.
_RUNS: Final = Runs()


class _Hook:
    """Base class of the guard's hooks with the methods by which Haystack serializes them."""

    def to_dict(self) -> dict[str, Any]:
        """Serialize the hook to a dictionary."""
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Create a hook from the dictionary that `to_dict` returned."""
        return default_from_dict(cls, data)


class GuardHook(_Hook):
    """Hook that checks all tool calls of a model response before any tool runs; created by `guard_hooks`.

    Raises:
        ConfigurationError: An argument is invalid.
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
        """Check the calls that the model made; replace those that must not run by results with the reason."""
        turn = self._turn(state)
        turn.ask()
        self._settle(state, turn)

    async def run_async(self, state: State) -> None:
        """Asynchronous form of `run`."""
        turn = self._turn(state)
        await turn.aask()
        self._settle(state, turn)

    def asked(self, call: ToolCall, tools: ToolsType | None, **more: Any) -> GuardedCall:
        """Return the `ToolCall` that the gateway checks for a call of one of the framework's `tools`."""
        named = [each for each in flatten_tools_or_toolsets(tools) if each.name == call.tool_name]
        function = function_of(*(one for each in named for one in (each.function, each.async_function)))
        # The framework fills in these parameters from the run's state if the model does not send them, so their
        # defaults do not apply.
        injected = {one for each in named for one in (each.inputs_from_state or {}).values()}
        schema = SignatureSchema(function, injected)
        return self.bridge.call(
            call.tool_name, call.arguments, call.id, function=function, schema=schema, **more
        )

    def write(self, state: State, messages: list[ChatMessage], refused: Iterable[Made]) -> None:
        """Replace the conversation by `messages`, and stop the run if one of the refused calls is pending."""
        state.set("messages", messages, handler_override=replace_values)
        if any(self.bridge.pauses_for(each.refused) for each in refused):
            state.set("stop_run", STOPPED)

    def answer(self, made: Made) -> ChatMessage:
        """Return the message that the model reads for a call that did not run."""
        if self.bridge.pauses_for(made.refused):
            return pending_message(made, made.refused)
        return refusal_message(made.own, made.told)

    def to_dict(self) -> dict[str, Any]:
        """Serialize the hook; the deserialized hook uses the default guard.

        Raises:
            ConfigurationError: The hook has a guard of its own, or a function as `tool_actions`; these cannot be
                serialized.
        """
        if self._written is None:
            raise ConfigurationError("the hook cannot be serialized; use a tool_actions mapping, no guard=")
        return default_to_dict(self, **self._written)

    def _turn(self, state: State) -> Turn:
        """Return the `Turn` with the calls of the model's last message, which are not checked yet."""
        messages = state.data.get("messages") or []
        context = state.data.get("hook_context") or {}
        agent = text_or_none(context.get("agent"), "hook_context['agent']") or self.bridge.agent
        run_id = text_or_none(context.get("run_id"), "hook_context['run_id']")
        # Call ids may occur again in other runs, so a check with a call id also contains a run id of the guard, which
        # is stored across a pause. It is omitted if the model has to repeat pending calls, which may happen in
        # another run.
        run_id = run_id or (None if not self.bridge.names_calls else _RUNS.of(state).run_id)
        tools = list(state.data.get("tools") or [])
        calls: list[ToolCall] = messages[-1].tool_calls if messages else []
        made = [Made(self.asked(each, tools, run_id=run_id, agent=agent), each) for each in calls]
        return Turn(self.bridge, made, ToolInvocationError)

    def _settle(self, state: State, turn: Turn) -> None:
        """Write the decisions into the conversation, and replace the tools by copies that run only allowed calls."""
        refused = turn.remove_refused_calls(partial(_calls_to_run, weakref.ref(state)))
        edited = [each for each in turn.made if each.arguments != each.own.arguments]
        for each in edited:
            each.own = replace(each.own, arguments=each.arguments)
        if refused or edited:
            *before, last = state.data["messages"]
            parts = split_message(
                last, [self.answer(each) for each in refused], [each.own for each in turn.made]
            )
            self.write(state, [*before, *parts], refused)
        _RUNS.begin(state, turn, self)
        tools = state.data.get("tools")
        if isinstance(tools, list):
            # The list is changed in place, because the framework reads the tools of the current step from this list
            # object.
            tools[:] = [_watched(each, turn) for each in tools]


class RecordHook(_Hook):
    """Hook after the tools, which logs calls whose tools did not run; created by `guard_hooks`."""

    allowed_hook_points: ClassVar[tuple[HookPoint, ...]] = ("after_tool",)

    def run(self, state: State) -> None:
        """Log the calls whose tools did not run; stop the run if a guarded function in a tool requires approval."""
        turn, hook = _RUNS.end(state)
        if turn is None:
            return
        messages: list[ChatMessage] = state.data["messages"]
        results = [one for each in messages for one in each.tool_call_results]
        held = turn.end((one.origin, str(one.result) if one.error else None) for one in results)
        if held:
            # The calls are compared by identity, because earlier messages may contain equal calls with other results.
            answers = {id(each.own): hook.answer(each) for each in held}
            hook.write(state, [answers.get(_origin(each), each) for each in messages], held)


def _origin(message: ChatMessage) -> int:
    """Return the `id()` of the framework's call object to which the result in a message refers."""
    return id(None if message.tool_call_result is None else message.tool_call_result.origin)


def _calls_to_run(state: weakref.ref[State]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return name and arguments of each call in the last message, which the framework is about to run."""
    # The reference is weak, because a run is considered ended when its `State` object is deleted.
    held = state()
    messages = [] if held is None else held.data.get("messages") or []
    return ((each.tool_name, each.arguments) for one in messages[-1:] for each in one.tool_calls)


def _watched(tool: Tool, turn: Turn) -> Tool:
    """Return a copy of a tool that runs only for the allowed calls of a turn, and logs their outcomes."""
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
    """Resume a run that was stopped because calls require an approval; each call is checked again.

    Args:
        agent: The agent that began the run, or an equal one.
        messages: The `messages` of the stopped run.
        decisions: Decisions of the framework's user. A call with `execute=False` does not run, even if it is
            approved.
        **given: Further arguments of `Agent.run`, such as state. The run id and the agent in `hook_context` are
            replaced by those of the stopped run.

    Returns:
        The result of `Agent.run`.

    Raises:
        ConfigurationError: The agent is not guarded, no call is pending, or a decision is not about a pending call.
    """
    return drive(_resumed(agent, messages, decisions, given))


async def aresume(
    agent: Agent, messages: Sequence[ChatMessage], decisions: Decisions = (), **given: Any
) -> dict[str, Any]:
    """Asynchronous form of `resume`."""
    return await adrive(_resumed(agent, messages, decisions, given))


async def resume_async(*args: Any, **options: Any) -> dict[str, Any]:
    """Deprecated name of `aresume`."""
    warn_renamed("resume_async", "aresume")
    return await aresume(*args, **options)


def _resumed(
    agent: Agent, messages: Sequence[ChatMessage], decisions: Decisions, given: Mapping[str, Any]
) -> Steps[dict[str, Any]]:
    again = _Again(agent, messages, decisions, given)
    yield from again.bridge.settle_steps(again.rejected)
    run, arun = partial(again.agent.run, **again.given), partial(again.agent.run_async, **again.given)
    return dict((yield Invoke(run, arun)))


class _Again:
    """Resumption of a stopped run.

    The framework runs only calls that the model has just made. So in the resumed run, a replacement of the chat
    generator makes the pending calls again in its first reply.
    """

    def __init__(
        self, agent: Agent, messages: Sequence[ChatMessage], decisions: Decisions, given: Mapping[str, Any]
    ) -> None:
        hook, held = _hook_of(agent), held_calls(messages)
        if not held:
            raise ConfigurationError(
                "these messages contain no tool call that waits for approval; pass all messages of the stopped run"
            )
        noes = _noes(held, decisions)
        again = [each.tool_call for each in held if each.approval_id not in noes]
        self.bridge = hook.bridge
        self.rejected: list[PausedCall] = []
        for each in held:
            if each.approval_id in noes:
                call = hook.asked(each.tool_call, agent.tools, run_id=each.run_id, agent=each.agent)
                self.rejected.append(PausedCall(call, noes[each.approval_id], each.approval_id))
        # The prompts are removed from the agent, because the messages of the stopped run already contain them.
        changed: dict[str, Any] = {"system_prompt": None, "user_prompt": None, "required_variables": None}
        if again:
            changed["chat_generator"] = _Replaying(agent.chat_generator, messages, again)
        self.agent = agent.clone(**changed)
        context = {**(given.get("hook_context") or {}), "run_id": held[-1].run_id, "agent": held[-1].agent}
        self.given = {**given, "messages": remove_pending_calls(messages, noes), "hook_context": context}


class _Replaying:
    """A chat generator whose first reply makes the pending calls again; later replies come from the original generator."""

    def __init__(self, inner: Any, messages: Iterable[ChatMessage], calls: Sequence[ToolCall]) -> None:
        said = [each for each in messages if any(one in calls for one in each.tool_calls)][-1]
        self._inner, self._replies = inner, [replace_calls(said, calls)]
        # The token counts are removed, because they were already counted before the pause.
        self._replies[0].meta.pop("usage", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, messages: list[ChatMessage], tools: Any = None, **given: Any) -> dict[str, Any]:
        """Return the pending calls at the first call, and afterwards the replies of the original generator."""
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
    """Return the messages that the model reads for calls that the user rejected, by approval id.

    Raises:
        ConfigurationError: A decision does not identify exactly one pending call, or changes arguments.
    """
    noes = {}
    for each in decisions:
        if not isinstance(each, ToolExecutionDecision):
            raise ConfigurationError(f"{each!r} is not a decision; pass ToolExecutionDecision(…)")
        name = each.tool_name
        named = [one for one in held if one.tool_call.tool_name == name]
        about = [one for one in named if not each.tool_call_id or each.tool_call_id == one.tool_call.id]
        if len(about) != 1:
            raise ConfigurationError(
                f"the decision for {name!r} (tool_call_id {each.tool_call_id!r}) matches {len(about)} "
                "waiting calls; set the tool_call_id of exactly one"
            )
        if not each.execute:
            noes[about[0].approval_id] = each.feedback or f"Not done: the call of {name!r} was rejected."
        elif each.final_tool_params not in (None, about[0].tool_call.arguments):
            raise ConfigurationError(
                f"the decision for {name!r} changes its arguments; change them when you approve the request at the gateway"
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
    """Return the hooks of an agent, including hooks that check and log all its tool calls.

    Args:
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`.
        agents: Toolgate agent ids by the names of agents. All other agents use the guard's agent id.
        agent: Name of the agent that has these hooks, unless `hook_context` contains another name.
        on_hold: Reaction to a call that requires an approval. `pause`: the run stops; continue it with `resume`.
            `wait`: wait for the approver within the run. `raise`: end the run with `ApprovalPending`. `notify_model`:
            the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.
        beside: The agent's other hooks.

    Returns:
        All hooks by hook point. The guard's hook is the last one before the tools, and the first one after them.

    Raises:
        ConfigurationError: An argument is invalid.
    """
    if beside is not None and not isinstance(beside, Mapping):
        raise ConfigurationError(f"beside is {beside!r}; pass a mapping from hook points to lists of hooks")
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
