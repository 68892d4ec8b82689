"""Plugin for Agno: `agent = guard_agent(Agent(…))`, and `resume(agent, run)` after pending calls have paused a run."""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError, is_guarded
from toolgate._drivers import adrive, drive
from toolgate._effects import Invoke, Steps
from toolgate_integrations._arguments import Received, receive_or_keep
from toolgate_integrations._calls import PausedCall, invoke
from toolgate_integrations._options import OnHold, set_context
from toolgate_integrations.base import (
    AnnotatedSchema,
    ArgumentSchema,
    Bridge,
    RawSchema,
    ToolActions,
    ToolCall,
    require,
)
from toolgate_integrations.refusals import refusal_text

require("agno")

from agno.agent import Agent
from agno.exceptions import RetryAgentRun, StopAgentRun
from agno.models.response import ToolExecution
from agno.run.agent import RunOutput
from agno.run.requirement import RunRequirement
from agno.tools import Toolkit, tool
from agno.tools.function import Function, FunctionCall

__all__ = ["GuardedAgent", "aresume", "guard_agent", "resume"]

#: Maps the framework's call ids to the call ids that the checks of a resumed run contain. The framework's own ids are
#: not sent, because they may occur again in later turns of the model.
NAMES: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("toolgate_agno_names", default=None)


@dataclass
class _Begun:
    """A call that the framework is about to execute; it is stored here, because hooks do not receive it."""

    call: FunctionCall
    #: The call that was being executed when this call began, for example a call whose hook runs another agent; or
    #: None.
    outer: _Begun | None
    #: True after the guard's hook has been called for this call.
    ran: bool = False

    @property
    def hook(self) -> object:
        """The guard's hook around the tool of this call."""
        return getattr(self.call.function.pre_hook, "toolgate_hook", None)


_BEGUN: Final[ContextVar[_Begun | None]] = ContextVar("toolgate_agno_begun", default=None)


def _begin(call: FunctionCall) -> None:
    outer = _BEGUN.get()
    while outer is not None and outer.ran:
        outer = outer.outer
    _BEGUN.set(_Begun(call, outer))


class AgnoBridge(Bridge):
    """Bridge of one Agno agent.

    Attributes:
        setup_errors: Errors that must end runs, by run id.
        schemas: Maps tool names to the schemas with which the framework converts arguments. `resume` needs them because
            a paused call does not contain its tool.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.setup_errors: dict[str, Exception] = {}
        self.schemas: dict[str, ArgumentSchema] = {}

    def receive(self, tool: str, arguments: Mapping[str, Any] | None) -> Received:
        """Return the arguments of a call as the tool receives them, or unchanged if the tool's validation rejects them."""
        return receive_or_keep(arguments or {}, self.schemas.get(tool, RawSchema()))


class _Hook:
    """The guard's hook around a tool, which checks the call and runs it.

    It is a plain function even for asynchronous tools: synchronous runs omit hooks that are coroutine functions.
    """

    def __init__(self, bridge: AgnoBridge, function: object) -> None:
        self._bridge, self._function = bridge, function

    def __call__(self, function_call: Callable[..., Any]) -> Any:
        called = self._called()
        names, context = NAMES.get(), called.function._run_context  # noqa: SLF001 - hooks receive this object too
        received = self._bridge.receive(called.function.name, called.arguments)
        call = ToolCall(
            called.function.name,
            received.values,
            received=received,
            call_id=None if names is None else names.get(called.call_id or ""),
            run_id=None if context is None else context.session_id,
            agent=getattr(called.function._agent, "name", None),  # noqa: SLF001 - hooks receive this object too
            function=self._function,
        )
        steps = self._guarded(call, called, function_call)
        return adrive(steps) if inspect.iscoroutinefunction(function_call) else drive(steps)

    def _guarded(self, call: ToolCall, called: FunctionCall, function_call: Callable[..., Any]) -> Steps[Any]:
        asked = called.arguments

        def run(approved: dict[str, Any]) -> Steps[Any]:
            return invoke(lambda: function_call(**_taken(called, call.to_send(approved))))

        try:
            return (yield from self._bridge.run_steps(call, run))
        except ApprovalPending as pending:
            if call.call_id is None or called.arguments is not asked:
                # If the call's arguments were replaced, the tool has already begun, and the error is about another
                # call that the tool made.
                raise self._refused(called, pending) from pending
            # The run cannot pause at this point, because the framework pauses a run only before it calls the hooks. So
            # the model has to make a new call.
            yield from self._bridge.reject_steps(call, _TOO_LATE, pending.approval_id, final=False)
            raise RetryAgentRun(_TOO_LATE) from pending
        except GuardError as error:
            raise self._refused(called, error) from error

    def _called(self) -> FunctionCall:
        """Return the call that the framework is executing now; it may be a retry of the same call by another hook.

        Raises:
            RetryAgentRun: The call cannot be identified, so it must not run.
        """
        begun = _BEGUN.get()
        if begun is not None and begun.hook is not self and begun.ran:
            # The newest call has ended; it was made by an agent that another hook ran. The current call is the outer
            # one.
            begun = begun.outer
        if begun is None or begun.hook is not self:
            raise RetryAgentRun(_UNSEEN)
        if begun.ran and begun.outer is not None and begun.outer.hook is self:
            # If two nested calls use the same tool, the current one is unknown, so the call is refused.
            raise RetryAgentRun(_UNSEEN)
        begun.ran = True
        return begun.call

    def _refused(self, called: FunctionCall, error: GuardError) -> Exception:
        """Return the exception to raise for a refused call: one that the model reads, or one that ends the run."""
        if not isinstance(error, self._bridge.fatal):
            # `RetryAgentRun` is used because the framework prints every other exception with its traceback.
            return RetryAgentRun(refusal_text(error))
        context = called.function._run_context  # noqa: SLF001 - hooks receive this object too
        if context is None:
            return error
        self._bridge.setup_errors[context.run_id] = error
        return StopAgentRun("Not done: the permission gateway could not check the call.")


class _GuardedFunction(Function):
    """A tool whose last hook is always the guard's, even if the framework replaces all hooks by the agent's."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "tool_hooks":
            hook = getattr(self.pre_hook, "toolgate_hook", None)
            value = [*(each for each in value or () if each is not hook), hook]
        super().__setattr__(name, value)


def _before(hook: _Hook, own: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a `pre_hook` that stores the current call for the guard's hook, and then runs the tool's own `pre_hook`."""

    def before(fc: FunctionCall, agent: Any, team: Any, run_context: Any) -> None:
        _begin(fc)
        if own is not None:
            own(**_wanted(own, fc=fc, agent=agent, team=team, run_context=run_context))

    async def abefore(fc: FunctionCall, agent: Any, team: Any, run_context: Any) -> None:
        _begin(fc)
        if own is not None:
            await own(**_wanted(own, fc=fc, agent=agent, team=team, run_context=run_context))

    chosen: Any = abefore if inspect.iscoroutinefunction(own) else before
    chosen.toolgate_hook = hook
    return chosen  # type: ignore[no-any-return]  # a function with an additional attribute


def guarded_tool(given: Any, bridge: AgnoBridge) -> Any:
    """Return a guarded copy of a tool; tools that the model's provider runs are returned unchanged."""
    if isinstance(given, Toolkit):
        return _guarded_toolkit(given, bridge)
    if isinstance(given, Function):
        return _guarded(given._per_run_copy(), bridge, given.entrypoint)  # noqa: SLF001 - no public method
    if callable(given):
        # The framework's `tool` decorator is used for functions marked by `@approval`, because only the decorator
        # evaluates the mark.
        marked = hasattr(given, "_agno_approval_type")
        try:
            made = tool(given) if marked else Function.from_callable(given)
        except Exception as error:
            raise ConfigurationError(
                f"Agno cannot use the tool {given!r} ({type(error).__name__}); pass a function"
            ) from error
        return _guarded(made, bridge, given)
    return given


def _guarded_toolkit(toolkit: Toolkit, bridge: AgnoBridge) -> Toolkit:
    """Return a guarded copy of a toolkit for one run.

    Its functions are read at each request, because a remote toolkit has no functions before it connects.
    """
    guarded = copy.copy(toolkit)

    def of(functions: Mapping[str, Function]) -> dict[str, Any]:
        return {name: guarded_tool(each, bridge) for name, each in functions.items()}

    vars(guarded)["get_functions"] = lambda: of(toolkit.get_functions())
    vars(guarded)["get_async_functions"] = lambda: of(toolkit.get_async_functions())
    return guarded


def _guarded(function: Function, bridge: AgnoBridge, original: object) -> Function:
    body: Any = original if callable(original) else None
    bridge.schemas[function.name] = AnnotatedSchema(body, _OWN)
    hooks = function.tool_hooks
    function.pre_hook = _before(_Hook(bridge, original), function.pre_hook)
    object.__setattr__(function, "__class__", _GuardedFunction)
    function.tool_hooks = hooks
    # With `on_hold="pause"`, every tool is set to require a confirmation, because only that pauses the run. A tool that
    # requests input from the user pauses the run itself, and is not changed.
    asks = function.external_execution or function.requires_user_input or function.name in _ASKING
    if bridge.on_hold == "pause" and not (asks or is_guarded(original)):
        if function.requires_confirmation:
            raise ConfigurationError(
                f"the tool {function.name!r} has requires_confirmation, which cannot be combined with "
                "on_hold='pause'; remove it, or use guard_agent(…, on_hold='wait') or 'notify_model'"
            )
        function.requires_confirmation = True
    return function


def _wanted(own: Callable[..., Any], **offered: Any) -> dict[str, Any]:
    return {name: offered[name] for name in inspect.signature(own).parameters if name in offered}


def _taken(called: FunctionCall, approved: dict[str, Any]) -> dict[str, Any]:
    # The approved arguments are stored in the call, because the framework ignores the arguments that a hook passes
    # on.
    called.arguments = approved
    return approved


# Names of parameters that the framework fills in itself, so the model does not send them.
_OWN: Final = {"self", "agent", "team", "run_context", "session_state", "dependencies", "fc"} | {
    *("images", "videos", "audios", "files")
}
_ASKING: Final = {"get_user_input", "ask_user"}
_UNSEEN: Final = "Not done: the guard could not identify the call. Tell the operator."
_TOO_LATE: Final = "Not done: the call now needs a person's approval. Call the tool again."


@dataclass
class Waking:
    """One call of `resume` or `aresume` for a paused run.

    The framework treats a call without a confirmation as rejected. So the run continues only after all its calls are
    decided.
    """

    bridge: AgnoBridge
    agent: str | None
    run: RunOutput
    names: dict[str, str] = field(default_factory=dict)

    def settle(self) -> Steps[bool]:
        """Generator that looks up the decisions about all calls that paused the run; returns True if no call is pending."""
        calls = [(each, self._paused_call(each)) for each in self._paused()]
        pending = yield from self.bridge.settle_steps(call for _, call in calls)
        for (execution, call), one in zip(calls, pending, strict=True):
            if call.rejected is None:
                self._note(execution, one)
        return self._decided()

    def named(self) -> AbstractContextManager[None]:
        """Make the checks inside the `with` block use the same call ids as the checks of `settle`."""
        return set_context(NAMES, self.names)

    def _paused_call(self, execution: ToolExecution) -> PausedCall:
        # The id of the framework's requirement is used, because the provider's call ids may start at 0 again in each
        # turn.
        requirement, tool = self._requirement(execution), execution.tool_name or ""
        name = f"{self.run.run_id}:{execution.tool_call_id if requirement is None else requirement.id}"
        self.names[execution.tool_call_id or ""] = name
        arguments = self.bridge.receive(tool, execution.tool_args).values
        call = ToolCall(tool, arguments, call_id=name, run_id=self.run.session_id, agent=self.agent)
        copied = None if requirement is None else requirement.tool_execution
        approval_id = execution.approval_id or (None if copied is None else copied.approval_id)
        rejected = (execution.confirmation_note or "") if self._rejected(execution) else None
        return PausedCall(call, rejected, approval_id)

    def _paused(self) -> list[ToolExecution]:
        return [each for each in self.run.tools or () if each.requires_confirmation and each.result is None]

    def _requirement(self, execution: ToolExecution) -> RunRequirement | None:
        """Return the framework's requirement in which a user confirms or rejects a call; None if there is none."""
        for each in reversed(self.run.requirements or []):
            if each.tool_execution is not None and each.tool_execution.tool_call_id == execution.tool_call_id:
                return each
        return None

    def _rejected(self, execution: ToolExecution) -> bool:
        requirement = self._requirement(execution)
        if requirement is not None and requirement.confirmation is False:
            execution.confirmed, execution.confirmation_note = False, requirement.confirmation_note
        return execution.confirmed is False

    def _note(self, execution: ToolExecution, pending: ApprovalPending | None) -> None:
        for each in self._confirm(execution, None if pending else True):
            each.approval_id = None if pending is None else pending.approval_id

    def _confirm(self, execution: ToolExecution, confirmed: bool | None) -> list[ToolExecution]:  # noqa: FBT001 - the framework stores the same kind of value
        """Set the confirmation of a call and of the copy in its requirement, and return both."""
        requirement = self._requirement(execution)
        copies = [execution]
        if requirement is not None:
            requirement.confirmation = confirmed
            copies += [] if requirement.tool_execution is None else [requirement.tool_execution]
        for each in copies:
            each.confirmed = confirmed
        return copies

    def _decided(self) -> bool:
        calls = self._paused()
        if not self.run.active_requirements and all(each.confirmed is not None for each in calls):
            return True
        for each in calls:
            if each.confirmed:
                # The call is allowed, but another one is pending. Its confirmation is removed, so that the next attempt
                # to resume checks it again.
                self._confirm(each, None)
        return False


A = TypeVar("A", bound=Agent)


class GuardedAgent(Agent):
    """An Agno agent whose tool calls are checked and logged; created by `guard_agent`.

    Each guarded agent has a class of its own that contains its bridge, so that copies of the agent are guarded too.
    """

    bridge: ClassVar[AgnoBridge]

    def get_tools(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the guarded tools for one run, including tools that were added later or by the framework."""
        return [guarded_tool(tool, self.bridge) for tool in super().get_tools(*args, **kwargs)]

    async def aget_tools(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Asynchronous form of `get_tools`."""
        return [guarded_tool(tool, self.bridge) for tool in await super().aget_tools(*args, **kwargs)]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the agent as Agno does, but raise a setup error that occurred in a tool call; Agno would not raise it."""
        return self._ended(super().run(*args, **kwargs))

    def arun(self, *args: Any, **kwargs: Any) -> Any:
        """Asynchronous form of `run`."""
        return self._aended(super().arun(*args, **kwargs))

    def continue_run(self, *args: Any, **kwargs: Any) -> Any:
        """Continue a paused run as Agno does, but raise a setup error that occurred in a tool call."""
        return self._ended(super().continue_run(*args, **kwargs))

    def acontinue_run(self, *args: Any, **kwargs: Any) -> Any:
        """Asynchronous form of `continue_run`."""
        return self._aended(super().acontinue_run(*args, **kwargs))

    def _ended(self, run: Any) -> Any:
        if isinstance(run, Iterator):
            return self._streamed(run)
        self._raise_setup_error(run)
        return run

    def _aended(self, run: Any) -> Any:
        async def awaited() -> Any:
            return self._ended(await run)

        return self._astreamed(run) if isinstance(run, AsyncIterator) else awaited()

    def _streamed(self, run: Iterator[Any]) -> Iterator[Any]:
        for event in run:
            yield event
            self._raise_setup_error(event)

    async def _astreamed(self, run: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for event in run:
            yield event
            self._raise_setup_error(event)

    def _raise_setup_error(self, seen: Any) -> None:
        error = self.bridge.setup_errors.pop(getattr(seen, "run_id", None) or "", None)
        if error is not None:
            raise error


def guard_agent(
    agent: A,
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    on_hold: OnHold = "pause",
    hold_timeout: float | None = None,
) -> A:
    """Return a copy of an agent whose tool calls are checked and logged.

    Args:
        agent: The agent; it is not changed.
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`.
        agents: Toolgate agent ids by the names given to `Agent(name=…)`. All other agents use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `pause`: the run pauses; continue it with `resume`.
            `wait`: wait for the approver within the run. `raise`: end the run with `ApprovalPending`. `notify_model`:
            the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Raises:
        ConfigurationError: An argument is invalid, or `on_hold` is `pause` and a tool has `requires_confirmation`.
    """
    given: object = agent
    if not isinstance(given, Agent) or isinstance(given, GuardedAgent):
        raise ConfigurationError(f"agent is {agent!r}; pass an agno.agent.Agent that is not guarded yet")
    bridge = AgnoBridge(guard, tool_actions, agents, on_hold, hold_timeout, can_pause=True)
    for each in agent.tools if isinstance(agent.tools, (list, tuple)) else ():
        # Each tool is guarded once here only to raise configuration errors. During a run, the framework would only show
        # them to the model.
        guarded_tool(each, bridge)
    guarded = copy.copy(agent)
    if isinstance(agent.tools, list):
        # The list is copied, so that tools that are added to the guarded agent are not added to the original agent.
        guarded.tools = list(agent.tools)
    kind = type(f"Guarded{type(agent).__name__}", (GuardedAgent, type(agent)), {"bridge": bridge})
    object.__setattr__(guarded, "__class__", kind)
    return guarded


def resume(agent: Agent, run: RunOutput) -> RunOutput:
    """Resume a paused run, and return the run when it has ended or is paused again.

    With `on_hold="pause"`, every tool call first pauses the run. A call runs when the gateway allows it; confirming
    its requirement in the framework has no effect. Rejecting the requirement denies the call and cancels its approval
    request, whose id is `tool_execution.approval_id` of the requirement.

    Args:
        agent: The guarded agent; it may be in another process than the one that began the run.
        run: The result of `agent.run`, `agent.get_run_output` or this function.

    Raises:
        ConfigurationError: The agent is not guarded.
    """
    return drive(_resumed(agent, run))


async def aresume(agent: Agent, run: RunOutput) -> RunOutput:
    """Asynchronous form of `resume`."""
    return await adrive(_resumed(agent, run))


def _resumed(agent: Agent, run: RunOutput) -> Steps[RunOutput]:
    while run.is_paused:
        waking = Waking(_bridge(agent), agent.name, run)
        if not (yield from waking.settle()):
            return run
        with waking.named():
            run = yield Invoke(
                partial(agent.continue_run, run_response=run), partial(agent.acontinue_run, run_response=run)
            )
    return run


def _bridge(agent: Agent) -> AgnoBridge:
    if not isinstance(agent, GuardedAgent):
        raise ConfigurationError(f"agent is {agent!r}; pass the agent that guard_agent(…) returned")
    return agent.bridge
