"""Plugin for LlamaIndex: `agent = guard_agent(agent)`, or `tools=guard_tools([…])`."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeVar

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError
from toolgate_integrations._arguments import with_signature_defaults
from toolgate_integrations._calls import find_rejection
from toolgate_integrations._options import OnHold, set_context
from toolgate_integrations.base import Bridge, ToolActions, ToolCall, describe_pending, find_error, require

require("llamaindex")

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent
from llama_index.core.agent.workflow import ToolCall as ToolCallEvent
from llama_index.core.objects import ObjectRetriever
from llama_index.core.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolOutput, adapt_to_async_tool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_index_instrumentation.dispatcher import active_instrument_tags

# These classes have no public name; the framework's own agents import them from the same module.
from workflows.runtime.types.results import AddWaiter, StepWorkerStateContextVar, WaitingForEvent

__all__ = ["GuardedFunctionTool", "GuardedTool", "guard_agent", "guard_tools"]

_running: ContextVar[tuple[str, str] | None] = ContextVar("toolgate_llamaindex_running", default=None)


@dataclass(frozen=True, slots=True)
class Place:
    """The tool call that the current step of an agent executes.

    Attributes:
        ctx: The framework's context of the step.
        event: The model's call.
        call_id: Id of the call, which is unique in the run and stays the same if the step is executed again.
        run_id: Id of the conversation, which stays the same after a restart of the process.
        running_id: Id of the run in this process.
        agent: Name of the agent; None outside of an `AgentWorkflow`.
        waited: Ids of the approval requests for which the call has already paused; the newest one is the last.
    """

    ctx: Context[Any]
    event: ToolCallEvent
    call_id: str
    run_id: str
    running_id: str
    agent: str | None
    waited: list[str]

    def running(self) -> AbstractContextManager[None]:
        """Mark the call as running inside the `with` block, so that calls made by its tool are not mistaken for it."""
        return set_context(_running, (self.running_id, self.call_id))

    async def read_rejection(self) -> str | None:
        """Return the user's reason if the user rejected the paused call.

        The result is None for any other answer, and for a call that has not paused.

        Raises:
            WaitingForEvent: The user has not answered yet. The framework executes the step again after the answer, and
                also once after a restart, to find out for which answer the step waits.
        """
        if not self.waited:
            return None
        event = await self.ctx.wait_for_event(HumanResponseEvent, **self._wait(self.waited[-1]))
        # After a restart, the framework may also pass an answer to paused calls that wait for another answer. An answer
        # to another call is therefore ignored.
        if event.get("approval_id", None) != self.waited[-1]:
            return None
        return find_rejection({name: event.get(name, None) for name in ("response", "reason")})

    def paused(self, pending: ApprovalPending) -> WaitingForEvent[Any]:
        """Return the exception that pauses the step until the user answers; the framework then executes the step again."""
        said = {
            "prefix": f"{pending.action!r} waits for a person's approval: {pending.reason}",
            **describe_pending(pending),
            "tool_name": self.event.tool_name,
            "tool_kwargs": self.event.tool_kwargs,
            "tool_id": self.event.tool_id,
        }
        asked = InputRequiredEvent(**said)
        if pending.approval_id in self.waited:
            # The user has answered, but the call is still pending. The event that asks the user is written again here,
            # because the framework writes it only once for each wait.
            self.ctx.write_event_to_stream(asked)
        return self.make_wait(pending.approval_id, asked)

    def make_wait(self, approval_id: str, asked: InputRequiredEvent | None = None) -> WaitingForEvent[Any]:
        """Return the exception that makes the step wait until the user answers an approval request.

        The new wait replaces an earlier wait of the step. With two waits, the call would run twice.
        """
        return WaitingForEvent(
            AddWaiter(event_type=HumanResponseEvent, waiter_event=asked, **self._wait(approval_id))
        )

    def _wait(self, approval_id: str) -> dict[str, Any]:
        waiter_id = _waits(self.call_id) + approval_id
        return {"waiter_id": waiter_id, "requirements": {"approval_id": approval_id}, "timeout": None}


async def place_of(tool_name: str) -> Place | None:
    """Return the call that the current step of an agent executes, or None if no step executes the tool `tool_name`."""
    step = StepWorkerStateContextVar.get(None)
    if step is None or not isinstance(step.event, ToolCallEvent) or step.event.tool_name != tool_name:
        return None
    # The id of the step is added, because a model without call ids uses the tool's name as the id, or no id.
    call_id = f"{step.event.tool_id}:{step.state.work_item_id}"
    running_id = active_instrument_tags.get().get("llamaindex.run_id")
    if running_id is None or step.state.work_item_id is None or _running.get() == (running_id, call_id):
        return None
    ctx = Context.get_step_context()
    run_id = await ctx.store.get(_RUN_ID, default=None)
    if run_id is None:
        # Calls of the same run may do this at the same time, because all of them write the same value.
        run_id = running_id
        await ctx.store.set(_RUN_ID, run_id)
    agent = await ctx.store.get("current_agent_name", default=None)
    waits = [each.waiter_id for each in step.state.collected_waiters]
    ours = [each.removeprefix(_waits(call_id)) for each in waits if each.startswith(_waits(call_id))]
    return Place(ctx, step.event, call_id, run_id, running_id, agent, ours)


class _Turn(asyncio.Lock):
    """Lock that is held while a call is executed, so that the call is not executed twice at the same time."""

    done = False


# The cache holds far more locks than there are pending calls, so it never drops a lock that is in use.
@lru_cache(4096)
def _turn(running_id: str, call_id: str) -> _Turn:  # noqa: ARG001 - `lru_cache` uses the arguments as the key
    return _Turn()


@asynccontextmanager
async def turn_of(place: Place) -> AsyncIterator[str | None]:
    """Lock a call inside the `with` block, so that it is not executed twice, and pause it if it requires an approval.

    The context manager returns the user's reason if the user rejected the call, else None. Without the lock, the call
    would be executed twice if the framework receives two answers to it.

    Raises:
        WaitingForEvent: The call pauses, or was already executed.
    """
    # The lock covers only this run in this process. If a stored run is resumed twice, the gateway denies the second
    # execution of the call.
    turn = _turn(place.running_id, place.call_id)
    async with turn:
        if turn.done and place.waited:
            raise place.make_wait(place.waited[-1])
        turn.done = True
        try:
            yield await place.read_rejection()
        except ApprovalPending as pending:
            turn.done = False
            raise place.paused(pending) from pending
        except WaitingForEvent:
            turn.done = False
            raise


def _waits(call_id: str) -> str:
    return f"toolgate:{call_id}:"


_RUN_ID: Final = "toolgate_run_id"


class GuardedTool(AsyncBaseTool):
    """A tool of any class that checks and logs every call; created by `guard_tools` and `guard_agent`."""

    def __init__(self, inner: Any, bridge: Bridge, agent: str | None) -> None:
        self._inner, self._bridge, self._agent = inner, bridge, agent

    @property
    def metadata(self) -> Any:
        """The original tool's `ToolMetadata`, which the model reads."""
        return self._inner.metadata

    def __call__(self, *args: Any, **given: Any) -> ToolOutput:
        """Call the tool, like `call`."""
        return self.call(*args, **given)

    def call(self, *args: Any, **given: Any) -> ToolOutput:
        """Check the call, run the tool if it is allowed, and log the outcome; otherwise return the reason as an error."""
        beside = self._beside(given)
        try:
            unnamed, told = self._named(args, given)

            def run(approved: dict[str, Any]) -> ToolOutput:
                values = [approved.pop(name) for name in unnamed]
                output: ToolOutput = self._inner.call(*values, **approved, **beside)
                return output

            call = self._called(told, None, coroutine=False)
            return self._bridge.run(call, run, _failed, (WaitingForEvent,))
        except GuardError as error:
            return self._error_output(given, self._bridge.refusal(error))

    async def acall(self, *args: Any, **given: Any) -> ToolOutput:
        """Asynchronous form of `call`; in a run of an agent, a call that requires an approval can pause.

        Raises:
            WaitingForEvent: The call pauses.
        """
        beside, place = self._beside(given), await place_of(self._name)
        try:
            unnamed, told = self._named(args, given)

            async def run(approved: dict[str, Any]) -> ToolOutput:
                values = [approved.pop(name) for name in unnamed]
                with nullcontext() if place is None else place.running():
                    output: ToolOutput = await self._inner.acall(*values, **approved, **beside)
                return output

            call = self._called(told, place, coroutine=True)
            if place is None or self._bridge.on_hold != "pause":
                return await self._bridge.arun(call, run, _failed, (WaitingForEvent,))
            async with turn_of(place) as no:
                if no is None:
                    return await self._bridge.arun(call, run, _failed, (WaitingForEvent, ApprovalPending))
                return self._error_output(given, await self._bridge.areject(call, no, place.waited[-1]))
        except GuardError as error:
            return self._error_output(given, self._bridge.refusal(error))

    def of(self, bridge: Bridge, agent: str | None) -> GuardedTool:
        """Return this tool if it was guarded for `agent` or with another bridge; else return a copy for `agent`."""
        if bridge is not self._bridge or agent == self._agent:
            return self
        return type(self)(self._inner, bridge, agent)

    @property
    def _name(self) -> str:
        return str(self.metadata.get_name())

    def _beside(self, given: dict[str, Any]) -> dict[str, Any]:
        """Remove the arguments that the framework adds to the model's arguments, and return them."""
        own = getattr(self._inner, "ctx_param_name", None)
        return {own: given.pop(own)} if own in given else {}

    def _named(self, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        """Return the parameter names of the positional arguments, and all arguments by name."""
        known = self.metadata.get_parameters_dict().get("properties", {}) if args else {}
        unnamed = [name for name in known if name not in given][: len(args)]
        if len(unnamed) < len(args):
            raise ConfigurationError(
                f"the tool {self._name!r} was called with {len(args)} positional arguments, but accepts "
                f"only {len(unnamed)}; pass arguments by name"
            )
        return unnamed, {**dict(zip(unnamed, args, strict=True)), **given}

    def _called(self, told: dict[str, Any], place: Place | None, *, coroutine: bool) -> ToolCall:
        function = _function(self._inner, coroutine=coroutine)
        # As the framework does, the tool's partial parameters are added to the arguments, and no value is converted.
        told = {**(getattr(self._inner, "partial_params", None) or {}), **told}
        own = getattr(self._inner, "ctx_param_name", None)
        return ToolCall(
            self._name,
            with_signature_defaults(told, function, () if own is None else (own,)),
            call_id=place.call_id if place is not None and self._bridge.names_calls else None,
            run_id=None if place is None else place.run_id,
            agent=self._agent if self._agent or place is None else place.agent,
            function=function,
        )

    def _error_output(self, given: dict[str, Any], text: str) -> ToolOutput:
        # The output is marked as an error; otherwise it would be the final answer of a tool with `return_direct`.
        raw = {"args": (), "kwargs": given}
        return ToolOutput(self._name, text, raw_input=raw, raw_output=text, is_error=True)


class GuardedFunctionTool(GuardedTool, FunctionTool):
    """A guarded `FunctionTool`; the framework calls tools that are not a `FunctionTool` in another way."""

    def __init__(self, inner: AsyncBaseTool, bridge: Bridge, agent: str | None) -> None:
        # The framework calls a tool of another class with a positional argument, and again with keyword arguments if
        # the first call raises an exception. Such a tool could run twice, so this class is a `FunctionTool`.
        copy_attributes(self, inner)
        super().__init__(inner, bridge, agent)

    @property
    def fn(self) -> Callable[..., Any]:
        """The guarded synchronous function, for code that creates another tool from the function of this tool."""

        @functools.wraps(super().fn)
        def standing(*args: Any, **given: Any) -> Any:
            return self._raw(self.call(*args, **given))

        return standing

    @property
    def async_fn(self) -> Callable[..., Any]:
        """The guarded coroutine function, for code that creates another tool from the function of this tool."""

        @functools.wraps(super().async_fn)
        async def standing(*args: Any, **given: Any) -> Any:
            return self._raw(await self.acall(*args, **given))

        return standing

    def _raw(self, output: ToolOutput) -> object:
        return output.content if output.is_error else output.raw_output

    @property
    def real_fn(self) -> Callable[..., Any]:
        """The guarded form of the function with which the tool was created: synchronous or a coroutine function."""
        return self.async_fn if inspect.iscoroutinefunction(super().real_fn) else self.fn


def guarded(tools: Iterable[Any], bridge: Bridge, agent: str | None) -> list[AsyncBaseTool]:
    """Return guarded copies of tools; tools that are already guarded are not guarded a second time."""
    return [_guarded(each, bridge, agent) for each in tools]


def copy_attributes(target: object, source: object) -> None:
    """Copy the attributes of `source` to `target`, except those that would hide methods of the class of `target`."""
    vars(target).update(
        {name: value for name, value in vars(source).items() if not hasattr(type(target), name)}
    )


def _guarded(tool: Any, bridge: Bridge, agent: str | None) -> AsyncBaseTool:
    if isinstance(tool, GuardedTool):
        return tool.of(bridge, agent)
    if not isinstance(tool, BaseTool):
        if not callable(tool):
            raise ConfigurationError(
                f"{tool!r} is not a tool; pass a function, a FunctionTool or another tool"
            )
        tool = FunctionTool.from_defaults(tool)
    kind = GuardedFunctionTool if isinstance(tool, FunctionTool) else GuardedTool
    return kind(adapt_to_async_tool(tool), bridge, agent)


def _function(tool: AsyncBaseTool, *, coroutine: bool) -> object:
    """Return the original function that will run, the asynchronous one if `coroutine` is true.

    If the tool has no such function, the framework wraps the tool's other function, which is then returned.
    """
    if not isinstance(tool, FunctionTool):
        return None
    function = tool.async_fn if coroutine else tool.fn
    return tool.real_fn if function.__module__ == FunctionTool.__module__ else function


def _failed(output: object) -> str | None:
    return (output.content or "error") if isinstance(output, ToolOutput) and output.is_error else None


A = TypeVar("A", bound="BaseWorkflowAgent | AgentWorkflow")


def guard_agent(
    agent: A,
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHold = "pause",
    hold_timeout: float | None = None,
) -> A:
    """Check and log the calls of all tools of an agent, or of all agents of an `AgentWorkflow`.

    Retrieved tools and handoffs are included.

    Args:
        agent: The agent or workflow, which is changed in place. Its copies are guarded too.
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`.
        agents: Toolgate agent ids by agent names. All other agents use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `pause`: the call pauses with an `InputRequiredEvent`.
            `wait`: wait for the approver within the run. `raise`: end the run with `ApprovalPending`. `notify_model`:
            the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Returns:
        The same agent or workflow.

    Raises:
        ConfigurationError: An argument is invalid.
    """
    bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout, can_pause=True)
    if not isinstance(agent, (AgentWorkflow, BaseWorkflowAgent)):
        raise ConfigurationError(f"agent is {agent!r}; pass a FunctionAgent, ReActAgent or AgentWorkflow")
    if isinstance(agent, AgentWorkflow):
        for each in agent.agents.values():
            _become(each, _GuardedAgent, bridge)
    _become(agent, _GuardedWorkflow if isinstance(agent, AgentWorkflow) else _GuardedAgent, bridge)
    members = agent.agents.values() if isinstance(agent, AgentWorkflow) else [agent]
    tools = [tool for each in members for tool in each.tools or () if isinstance(tool, BaseTool)]
    names = [tool.metadata.name or "" for tool in tools]
    # The list of names is not complete, because retrieved tools and handoffs are added later.
    bridge.verify_tools(names, is_complete=False)
    return agent


def guard_tools(
    tools: Iterable[BaseTool | Callable[..., Any]],
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHold = "pause",
    hold_timeout: float | None = None,
) -> list[AsyncBaseTool]:
    """Return tools that check and log every call; tools that are already guarded are returned unchanged.

    The options are those of `guard_agent`. `agents` has an effect only in an `AgentWorkflow`, because other runs do
    not contain the name of their agent.

    Raises:
        ConfigurationError: An argument is invalid.
    """
    bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout, can_pause=True)
    found = guarded(tools, bridge, None)
    bridge.verify_tools([tool.metadata.name or "" for tool in found], is_complete=False)
    return found


class _GuardedAgent(BaseWorkflowAgent):
    """Agent class whose attributes `tools` and `tool_retriever` always return guarded tools, even those added later."""

    guarded_by: ClassVar[Bridge]

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        # The attributes are guarded here because a workflow reads them directly, without calling a method of the
        # agent.
        if name == "tools" and found is not None:
            # The new list is stored, so that tools that a caller adds to it are added to the agent.
            if (own := guarded(found, self.guarded_by, self.name)) != found:
                found = self.__dict__["tools"] = own
        elif name == "tool_retriever" and found is not None:
            found = _GuardedRetriever(found, self.guarded_by, self.name)
        return found

    async def handle_tool_call_results(self, ctx: Any, results: list[Any], memory: Any) -> None:
        """Handle a step's tool results as the framework does, but raise an error that must end the run."""
        for each in results:
            if (error := find_error(each.tool_output.exception, self.guarded_by.fatal)) is not None:
                raise error
        kind_of_agent: Any = super()
        await kind_of_agent.handle_tool_call_results(ctx, results, memory)

    async def get_tools(self, input_str: str | None = None) -> list[AsyncBaseTool]:
        """Return the guarded tools for a step of the agent."""
        return guarded(await super().get_tools(input_str), self.guarded_by, self.name)


class _GuardedWorkflow(AgentWorkflow):
    """A workflow whose agents have only guarded tools, including the handoffs that the workflow adds."""

    guarded_by: ClassVar[Bridge]

    async def get_tools(self, agent_name: str, input_str: str | None = None) -> list[AsyncBaseTool]:
        """Return the guarded tools for a step of the agent `agent_name`."""
        return guarded(await super().get_tools(agent_name, input_str), self.guarded_by, agent_name)


class _GuardedRetriever(ObjectRetriever[Any]):
    """A retriever that returns guarded tools."""

    def __init__(self, retriever: ObjectRetriever[Any], bridge: Bridge, agent: str) -> None:
        copy_attributes(self, retriever)
        self._found_by, self._bridge, self._agent = retriever, bridge, agent

    def retrieve(self, str_or_query_bundle: Any) -> list[Any]:
        return guarded(self._found_by.retrieve(str_or_query_bundle), self._bridge, self._agent)

    async def aretrieve(self, str_or_query_bundle: Any) -> list[Any]:
        return guarded(await self._found_by.aretrieve(str_or_query_bundle), self._bridge, self._agent)


def _become(one: Any, kind: Any, bridge: Bridge) -> None:
    """Change the class of an agent or workflow to a guarded subclass; its copies have this class too."""
    was = type(one)
    if issubclass(was, kind):
        return
    # The subclass has the name of the original class, because the framework finds stored runs by the class name.
    names = {"__module__": was.__module__, "__qualname__": was.__qualname__}
    made: Any = type(was.__name__, (kind, was), names)
    made.guarded_by = bridge
    # Steps that were added to the original class are copied, because subclasses do not inherit them.
    made._step_functions = was._step_functions  # noqa: SLF001 - there is no public attribute
    object.__setattr__(one, "__class__", made)
