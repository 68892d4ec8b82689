"""Plugin for CrewAI: `GuardHooks().register()` for the whole process, or `with GuardHooks():` around a kickoff."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import itertools
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

from toolgate import ApprovalPending, ConfigurationError, GatewayUnavailable, Guard, GuardError
from toolgate._drivers import adrive, drive
from toolgate_integrations._arguments import receive_or_keep
from toolgate_integrations._calls import RunOnce, invoke
from toolgate_integrations._options import OnHoldWithoutPause
from toolgate_integrations.base import (
    ArgumentSchema,
    Begun,
    Bridge,
    ModelSchema,
    RawSchema,
    ToolActions,
    ToolCall,
    find_error,
    refusal_text,
    require,
)
from toolgate_integrations.refusals import SETUP_ERRORS

require("crewai")

from crewai.flow.flow_context import current_flow_id, current_flow_name
from crewai.hooks import LLMCallHookContext, ToolCallHookContext
from crewai.hooks.dispatch import HookAborted, InterceptionPoint, get_global_hook_list, unregister
from crewai.tools import BaseTool
from crewai.tools.base_tool import Tool
from crewai.tools.structured_tool import CrewStructuredTool
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.string_utils import sanitize_tool_name

__all__ = ["GuardHooks", "SetupAborted"]

#: Type of a function that receives a tool's function, and returns the function that replaces it.
Instead: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def function_of(tool: CrewStructuredTool | None) -> object:
    """Return the original Python function of a tool, even if `watched` has replaced it; None if it has no function."""
    found = None
    for owner, name in _places(tool):
        found = getattr(owner, name)
    while hasattr(found, _BODY):
        found = getattr(found, _BODY)
    return found


def schema_of(tool: CrewStructuredTool | None) -> ArgumentSchema:
    """Return the schema with which the framework validates the arguments of a tool."""
    model = getattr(tool, "args_schema", None)
    return RawSchema() if model is None else ModelSchema(model, function_of(tool), ("self", "config"))


def watched(tool: CrewStructuredTool | None, watching: Instead, *, cached: bool) -> Callable[[], None]:
    """Replace a tool's function in all attributes from which the framework may read the function.

    Args:
        tool: The tool.
        watching: Function that receives the tool's function, and returns the replacement.
        cached: True if the framework may store the tool's result in its cache.

    Returns:
        Function that restores the tool's own function; it must be called exactly once.
    """
    places = [(*place, watching) for place in _places(tool)]
    if tool is not None and not cached:
        places.append((getattr(tool, "_original_tool", None) or tool, "cache_function", _never))
    with _lock:
        for owner, name, instead in places:
            _watch(owner, name, instead)

    def leave() -> None:
        with _lock:
            for owner, name, _ in places:
                _leave(owner, name)

    return leave


def _places(tool: CrewStructuredTool | None) -> Iterator[tuple[Any, str]]:
    original: BaseTool | None = getattr(tool, "_original_tool", None)
    if isinstance(original, Tool):
        yield original, "func"
        return
    if tool is not None:
        yield tool, "func"
    if original is not None:
        yield original, "_run"


def _watch(owner: Any, name: str, instead: Instead) -> None:
    place = id(owner), name
    if place not in _watched:
        body = getattr(owner, name)
        new = instead(body)
        setattr(new, _BODY, body)
        _watched[place] = _Watched(owner, vars(owner).get(name, _NONE))
        # `object.__setattr__` is used because Pydantic's own method rejects attributes that are not fields of the
        # model.
        object.__setattr__(owner, name, new)
    _watched[place].calls += 1


def _leave(owner: Any, name: str) -> None:
    here = _watched[id(owner), name]
    here.calls -= 1
    if here.calls == 0:
        del _watched[id(owner), name]
        if here.own is _NONE:
            object.__delattr__(owner, name)
        else:
            object.__setattr__(owner, name, here.own)


def _never(_: Callable[..., Any]) -> Callable[..., bool]:
    return lambda *_: False


@dataclass
class _Watched:
    owner: object
    own: object
    calls: int = 0


#: Attribute of a replacement function that contains the original function.
_BODY: Final = "_toolgate_body"
_NONE: Final = object()
#: The replaced functions, by the id() of the object and the name of the attribute that contains the function.
_watched: Final[dict[tuple[int, str], _Watched]] = {}
# Several threads may replace and restore the functions of the same tool.
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that must not run.

    Attributes:
        arguments: The framework's own dictionary of arguments; the hook after the call finds the call by the identity
            of this object.
        outer: The running call whose tool made this call; None if the model made it.
        refusal: The error that prevents the call.
    """

    arguments: dict[str, Any]
    outer: Call | None
    refusal: Exception


class Passing:
    """A call that was allowed to run.

    Attributes:
        arguments: The framework's own dictionary of arguments; the hook after the call finds the call by the identity
            of this object.
        outer: The running call whose tool made this call; None if the model made it.
    """

    def __init__(
        self,
        begun: Begun,
        tool: CrewStructuredTool | None,
        arguments: dict[str, Any],
        outer: Call | None,
    ) -> None:
        self.arguments = arguments
        self.outer = outer
        self._begun = begun
        self._approved = copy.deepcopy(arguments)
        self._once = RunOnce(NotSeenError("the tool is still running, or was interrupted"))
        # The results of a function that is decorated with `@guarded` are not cached, because a cached result would skip
        # its check.
        self._leave = watched(tool, _watching, cached=not begun.asks_itself)

    @property
    def refusal(self) -> GuardError | None:
        """Error because of which the tool did not run, although the call was allowed; None if there is no such error.

        A function that is decorated with `@guarded` has refused the call, or another hook has changed the arguments.
        """
        refuses = GuardError if self._begun.asks_itself else _ChangedError
        return self._once.error if isinstance(self._once.error, refuses) else None

    @property
    def running(self) -> bool:
        """True while the tool's function runs; a function of another tool that starts meanwhile is called by it."""
        return self._once.is_running

    def run(self, body: Callable[[], Any]) -> Any:
        """Run the tool's function if the call is executed for the first time; afterwards, reuse the stored outcome."""

        def run() -> Any:
            self._look()
            answer = body()
            # The framework would run a returned coroutine only after this function has logged the outcome. The
            # coroutine is therefore run here.
            return asyncio.run(answer) if asyncio.iscoroutine(answer) else answer

        return drive(self._once.steps(self._begun.steps(invoke(run), _failure)))

    async def arun(self, body: Callable[[], Awaitable[Any]]) -> Any:
        """Asynchronous form of `run`."""

        async def run() -> Any:
            self._look()
            return await body()

        return await adrive(self._once.steps(self._begun.steps(invoke(run), _failure)))

    def end(self) -> None:
        """Restore the tool's function after the call; if the function has not run, log the call as not run."""
        self._leave()
        if not self._once.began:
            self._begun.not_run(NotSeenError(_NOT_SEEN))

    def _look(self) -> None:
        if self.arguments != self._approved:
            raise _ChangedError(
                "another hook changed the arguments after the gateway had checked the call; register that "
                "hook before the guard"
            )


Call: TypeAlias = Passing | Refused
#: The current call of this thread or task. The guard's hook before the call sets it; the tool's function and the hook
#: after the call read it.
passing: Final[ContextVar[Call | None]] = ContextVar("toolgate_crewai_passing", default=None)


class NotSeenError(Exception):
    """Raised if the framework ended a call without running the tool, for example because it used a cached result."""


class _ChangedError(ConfigurationError):
    """Raised if another hook changed the arguments of a call after the gateway checked them."""


def _failure(answer: Any) -> str | None:
    return answer.as_agent_message() if isinstance(answer, ToolFailure) else None


def _watching(body: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(body)
    def watching(*args: Any, **kwargs: Any) -> Any:
        call = _find_starting_call()
        return body(*args, **kwargs) if call is None else call.run(lambda: body(*args, **kwargs))

    @functools.wraps(body)
    async def awatching(*args: Any, **kwargs: Any) -> Any:
        call = _find_starting_call()
        return await (body(*args, **kwargs) if call is None else call.arun(lambda: body(*args, **kwargs)))

    return awatching if inspect.iscoroutinefunction(body) else watching


def _find_starting_call() -> Passing | None:
    """Return the allowed call whose tool function starts now, or None.

    The result is None for a function that is called by a tool that is already running.
    """
    call = passing.get()
    return call if isinstance(call, Passing) and not call.running else None


_NOT_SEEN: Final = "the tool did not run: the framework returned a result itself, for example from its cache or because of a usage limit or invalid arguments"
logger = logging.getLogger("toolgate")


class SetupAborted(ConfigurationError, HookAborted):  # type: ignore[misc]  # type checks run without the framework
    """Error that ends a run because a tool call was not carried out: a setting or the API key is wrong."""


class GuardHooks:
    """Hooks that check and log every tool call of all agents of the process, while they are registered.

    Args:
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`.
        agents: Toolgate agent ids by the roles given to `Agent(role=…)`. All other agents use the guard's agent id.
        on_hold: Reaction to a call that requires an approval. `wait`: wait for the approver within the run. `raise`:
            end the run with `ApprovalPending`. `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        tool_actions: ToolActions | None = None,
        agents: Mapping[str, str] | None = None,
        on_hold: OnHoldWithoutPause = "notify_model",
        hold_timeout: float | None = None,
    ) -> None:
        self._bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout)
        self._answers = itertools.count(1)
        # Keyed by the id() of the agent. The value refers to the agent too, so that no other object gets the same
        # id().
        self._setup_errors: dict[int, tuple[object, Exception]] = {}

    def register(self) -> None:
        """Check and log all tool calls of the process until `unregister` is called.

        Raises:
            ConfigurationError: Guard hooks are already registered, so each call would be checked twice.
        """
        with _registering:
            before, after = map(get_global_hook_list, _POINTS)
            if any(isinstance(getattr(one, "__self__", None), GuardHooks) for one in before):
                raise ConfigurationError(
                    "guard hooks are already registered in this process; unregister them first, or use one "
                    "guard for all agents and set their ids with agents= or acting_as(…)"
                )
            # `_first` runs before all other hooks and copies the context. The copy contains the tool and the
            # arguments that the framework will use, even if a later hook replaces these attributes of the context.
            for hooks, hook in ((before, self._before), (after, self._after)):
                hooks.insert(0, self._first)
                hooks.append(hook)
            get_global_hook_list(InterceptionPoint.PRE_MODEL_CALL).append(self._before_model)

    def unregister(self) -> None:
        """Stop checking tool calls; to be called when no crew is running."""
        with _registering:
            for point in _POINTS:
                for hook in (self._first, self._before, self._after):
                    unregister(point, hook)
            unregister(InterceptionPoint.PRE_MODEL_CALL, self._before_model)

    def __enter__(self) -> Self:
        self.register()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.unregister()
        if kind is None and self._setup_errors:
            # A setup error is still stored here if the model was not called again after the failed call, because the
            # tool's result was the final answer of the run.
            _key, (_text, error) = self._setup_errors.popitem()
            raise error

    def _first(self, context: ToolCallHookContext) -> None:
        setattr(context, _MADE, copy.copy(context))

    def _before(self, context: ToolCallHookContext) -> bool | None:
        # The framework runs the tool in spite of a hook that raises an exception or is a coroutine function. So this
        # hook is synchronous, and returns False to prevent the call.
        made: ToolCallHookContext | None = getattr(context, _MADE, None)
        outer = passing.get()
        try:
            passing.set(self._let_through(made, outer))
        except Exception as error:  # noqa: BLE001 - the framework ignores an exception; only False prevents the call
            passing.set(Refused((made or context).tool_input, outer, error))
            self._note(made or context, error)
            return False
        return None

    def _before_model(self, context: LLMCallHookContext) -> None:
        """End the run of an agent if one of its calls was not carried out because a setting or the API key is wrong.

        Raises:
            SetupAborted: The error of the call. The class is a `HookAborted`, because the framework ignores all other
                exceptions of hooks.
        """
        if (noted := self._setup_errors.pop(id(context.agent), None)) is not None:
            raise SetupAborted(str(noted[1]), "toolgate") from noted[1]

    def _note(self, context: ToolCallHookContext, error: Exception) -> None:
        if (found := find_error(error, self._bridge.fatal)) is not None:
            if isinstance(found, SETUP_ERRORS):
                self._bridge.report(found)
            self._setup_errors[id(context.agent)] = context.agent, found

    def _let_through(self, context: ToolCallHookContext | None, outer: Call | None) -> Passing:
        """Check a call, and return it if it may run.

        Raises:
            Exception: The call must not run; the exception is the reason.
        """
        if context is None:
            raise ConfigurationError(
                "one of the guard's hooks was removed; unregister the guard, and register it again"
            )
        call = _named(context)
        begun = self._bridge.begin(call)
        try:
            sent = call.to_send(begun.arguments)
            if sent != context.tool_input:
                context.tool_input.clear()
                context.tool_input.update(sent)
            return Passing(begun, context.tool, context.tool_input, outer)
        except Exception as error:
            begun.not_run(error)
            raise

    def _after(self, context: ToolCallHookContext) -> str | None:
        made: ToolCallHookContext = getattr(context, _MADE, context)
        call = passing.get()
        while call is not None and call.arguments is not made.tool_input:
            call = call.outer
        if call is None:
            return None
        passing.set(call.outer)
        if isinstance(call, Passing):
            call.end()
        # An error of the tool itself is not handled here, because the framework has already shown it to the model.
        if call.refusal is None:
            return None
        self._note(made, call.refusal)
        return self._refusal_message(context.tool_name, call.refusal)

    def _refusal_message(self, tool: str, refusal: Exception) -> str:
        """Return the message about a refused call, which the model reads instead of the framework's own message."""
        if not isinstance(refusal, GuardError):
            logger.warning(
                "a call to the tool %r was blocked, because the guard failed with %r", tool, type(refusal)
            )
            return f"Not done: the guard failed with {type(refusal).__name__}. Tell the operator."
        text = refusal_text(refusal)
        if isinstance(refusal, ApprovalPending | GatewayUnavailable):
            # The framework ends a run after five equal tool results. A model may repeat a pending call more often, so a
            # counter in the text makes each result different.
            return f"{text} (Response number {next(self._answers)}.)"
        return text


def _named(context: ToolCallHookContext) -> ToolCall:
    """Return the `ToolCall` that the gateway checks; it has no call id, because the framework has none.

    Raises:
        ConfigurationError: Two tools have the same name, so it is unknown which of them the framework will run.
    """
    # Like the framework, use the tools of the task if it has any, and otherwise the tools of the agent.
    tools = getattr(context.task, "tools", None) or getattr(context.agent, "tools", None) or ()
    if len({id(one) for one in tools if sanitize_tool_name(one.name) == context.tool_name}) > 1:
        raise ConfigurationError(
            f"two tools have the name {context.tool_name!r}, so CrewAI could run a different tool than the "
            "one that was checked; rename one of them"
        )
    role = getattr(context.agent, "_original_role", None) or getattr(context.agent, "role", None)
    # The run id is the id of the flow in which the agent runs. Without such a flow, the current flow is the agent's own
    # loop, whose id is different at each execution of the agent and is therefore not used.
    flow = None if current_flow_name.get() == "AgentExecutor" else current_flow_id.get()
    received = receive_or_keep(context.tool_input, schema_of(context.tool))
    return ToolCall(
        context.tool_name,
        received.values,
        received=received,
        run_id=flow,
        agent=role.strip() if isinstance(role, str) else None,
        function=function_of(context.tool),
    )


_POINTS: Final = (InterceptionPoint.PRE_TOOL_CALL, InterceptionPoint.POST_TOOL_CALL)
#: Attribute under which a hook's context contains a copy of itself, made before other hooks could change the context.
_MADE: Final = "_toolgate_made"
_registering = threading.Lock()
