"""Agno's tools as a guarded agent has them: with the gateway's question as the hook nearest to the tool."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

from agno.exceptions import RetryAgentRun, StopAgentRun
from agno.tools import Toolkit, tool
from agno.tools.function import Function, FunctionCall

from toolgate import ApprovalPending, ConfigurationError, Guard, GuardError, is_guarded
from toolgate_integrations._arguments import AnnotatedSchema, ArgumentSchema, RawSchema, receive_or_keep
from toolgate_integrations._base import Bridge, ToolCall
from toolgate_integrations._setup_errors import SETUP_ERRORS
from toolgate_integrations._telling import refusal_or_raise

__all__ = ["NAMES", "AgnoBridge", "OnHold", "guarded_tool", "schema_of"]

OnHold = Literal["pause", "wait", "tell"]

#: while a run is gone on with: names of its calls, which stay the same, by the framework's ids of them
NAMES: Final[ContextVar[Mapping[str, str] | None]] = ContextVar("toolgate_agno_names", default=None)


@dataclass
class _Begun:
    """A call that the framework is about to carry out: hooks are not told which it is.

    Attributes:
        call: The call.
        outer: The call of which another hook runs an agent that makes this one; None if there is none.
        ran: Whether the guard's hook was reached.
    """

    call: FunctionCall
    outer: _Begun | None
    ran: bool = False

    @property
    def hook(self) -> object:
        """The guard's hook of the call's tool."""
        return getattr(self.call.function.pre_hook, "toolgate_hook", None)


_BEGUN: Final[ContextVar[_Begun | None]] = ContextVar("toolgate_agno_begun", default=None)


def _begin(call: FunctionCall) -> None:
    outer = _BEGUN.get()
    while outer is not None and outer.ran:
        outer = outer.outer
    _BEGUN.set(_Begun(call, outer))


class AgnoBridge(Bridge):
    """Carries out the calls of an agent.

    Attributes:
        setup_errors: Why no decision could be requested, by the framework's ids of runs.
    """

    def __init__(self, guard: Guard | None, **given: Any) -> None:
        super().__init__(guard, **given)
        self.setup_errors: dict[str, Exception] = {}


class _Hook:
    """What stands around a tool.

    It is no coroutine function: such hooks are left out of synchronous runs, and the tool would run.
    """

    def __init__(self, bridge: AgnoBridge, function: object) -> None:
        self._bridge, self._function = bridge, function

    def __call__(self, function_call: Callable[..., Any]) -> Any:
        called = self._called()
        asked = called.arguments
        names, context = NAMES.get(), called.function._run_context  # noqa: SLF001 - hooks are given the same
        received = receive_or_keep(called.arguments or {}, schema_of(self._bridge, called.function.name))
        call = ToolCall(
            called.function.name,
            received.values,
            received=received,
            call_id=None if names is None else names.get(called.call_id or ""),
            run_id=None if context is None else context.session_id,
            agent=getattr(called.function._agent, "name", None),  # noqa: SLF001 - likewise
            function=self._function,
        )
        if inspect.iscoroutinefunction(function_call):
            return self._arun(call, called, function_call)
        try:
            return self._bridge.run(
                call, lambda approved: function_call(**_taken(called, call.to_send(approved)))
            )
        except ApprovalPending as pending:
            if call.call_id is None or called.arguments is not asked:
                # With the second the tool has begun, and what waits is another call, inside.
                raise _refused(pending) from pending
            # Too late to pause: the framework pauses before hooks, and the call may come no other time.
            self._bridge.reject(call, _TOO_LATE, pending.approval_id, final=False)
            raise RetryAgentRun(_TOO_LATE) from pending
        except SETUP_ERRORS as error:
            raise self._stopped(called, error) from error
        except GuardError as error:
            raise _refused(error) from error

    def _called(self) -> FunctionCall:
        """Return the call that the framework carries out; another hook may make it more than once, as to retry it.

        Raises:
            RetryAgentRun: The guard cannot tell which one it is.
        """
        begun = _BEGUN.get()
        if begun is not None and begun.hook is not self and begun.ran:
            # Another hook ran an agent, whose calls are over.
            begun = begun.outer
        if begun is None or begun.hook is not self:
            raise RetryAgentRun(_UNSEEN)
        if begun.ran and begun.outer is not None and begun.outer.hook is self:
            # Of two calls of the same tool, one within the other, it may be either.
            raise RetryAgentRun(_UNSEEN)
        begun.ran = True
        return begun.call

    async def _arun(self, call: ToolCall, called: FunctionCall, function_call: Callable[..., Any]) -> Any:
        asked = called.arguments

        async def run(approved: dict[str, Any]) -> Any:
            return await function_call(**_taken(called, call.to_send(approved)))

        try:
            return await self._bridge.arun(call, run)
        except ApprovalPending as pending:
            if call.call_id is None or called.arguments is not asked:
                raise _refused(pending) from pending
            await self._bridge.areject(call, _TOO_LATE, pending.approval_id, final=False)
            raise RetryAgentRun(_TOO_LATE) from pending
        except SETUP_ERRORS as error:
            raise self._stopped(called, error) from error
        except GuardError as error:
            raise _refused(error) from error

    def _stopped(self, called: FunctionCall, error: Exception) -> Exception:
        """What ends the run; the guarded agent raises the error itself, as the framework keeps every exception."""
        context = called.function._run_context  # noqa: SLF001 - hooks are given the same
        if context is None:
            return error
        self._bridge.setup_errors[context.run_id] = error
        return StopAgentRun("Not done: the permission gateway could not be asked.")


class _GuardedFunction(Function):
    """A tool whose last hook is ours, whatever its others are exchanged for: an agent's hooks replace a tool's."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "tool_hooks":
            hook = getattr(self.pre_hook, "toolgate_hook", None)
            value = [*(each for each in value or () if each is not hook), hook]
        super().__setattr__(name, value)


def _before(hook: _Hook, own: Callable[..., Any] | None) -> Callable[..., Any]:
    """What sees which call it is, before the hooks; then the tool's own `pre_hook` does what it does."""

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
    return chosen  # type: ignore[no-any-return]  # a function that bears its hook


def guarded_tool(given: Any, bridge: AgnoBridge) -> Any:
    """A tool of an agent, guarded; what the model's provider runs stays as it is.

    Raises:
        ConfigurationError: It pauses by itself where held calls pause the run, or cannot be called.
    """
    if isinstance(given, Toolkit):
        return _guarded_toolkit(given, bridge)
    if isinstance(given, Function):
        return _guarded(given._per_run_copy(), bridge, given.entrypoint)  # noqa: SLF001 - what a run takes
    if callable(given):
        # By the decorator where `@approval` has left its mark: nothing else reads it.
        marked = hasattr(given, "_agno_approval_type")
        try:
            made = tool(given) if marked else Function.from_callable(given)
        except Exception as error:
            raise ConfigurationError(
                f"the tool {given!r} is none that Agno can call ({type(error).__name__}); pass a function"
            ) from error
        return _guarded(made, bridge, given)
    return given


def schema_of(bridge: Bridge, name: str) -> ArgumentSchema:
    """Return the schema by which the framework converts the arguments of a tool's calls, by the tool's name."""
    with _lock:
        return _schemas.get(bridge, {}).get(name, RawSchema())


def _guarded_toolkit(toolkit: Toolkit, bridge: AgnoBridge) -> Toolkit:
    """A copy for one run; its functions are asked for late, as those of servers come when they are connected."""
    guarded = copy.copy(toolkit)

    def of(functions: Mapping[str, Function]) -> dict[str, Any]:
        return {name: guarded_tool(each, bridge) for name, each in functions.items()}

    vars(guarded)["get_functions"] = lambda: of(toolkit.get_functions())
    vars(guarded)["get_async_functions"] = lambda: of(toolkit.get_async_functions())
    return guarded


def _guarded(function: Function, bridge: AgnoBridge, original: object) -> Function:
    body: Any = original if callable(original) else None
    with _lock:
        # By the name: a call that is looked at before the run goes on has no tool.
        _schemas.setdefault(bridge, {})[function.name] = AnnotatedSchema(body, _OWN)
    hooks = function.tool_hooks
    function.pre_hook = _before(_Hook(bridge, original), function.pre_hook)
    object.__setattr__(function, "__class__", _GuardedFunction)
    function.tool_hooks = hooks
    if bridge.on_hold == "pause" and not (_asks_itself(function) or is_guarded(original)):
        if function.requires_confirmation:
            raise ConfigurationError(
                f"the tool {function.name!r} has requires_confirmation, and where held calls pause the run the gateway "
                "says which do; take it away, or use guard_agent(…, on_hold='wait') or 'tell'"
            )
        function.requires_confirmation = True
    return function


def _asks_itself(function: Function) -> bool:
    """Whether a call pauses for something that only the framework's user can say."""
    asks = function.external_execution or function.requires_user_input
    return bool(asks) or function.name in {"get_user_input", "ask_user"}


def _wanted(own: Callable[..., Any], **offered: Any) -> dict[str, Any]:
    parameters = inspect.signature(own).parameters
    return {name: value for name, value in offered.items() if name in parameters}


def _taken(called: FunctionCall, approved: dict[str, Any]) -> dict[str, Any]:
    # The framework runs the tool with these, whatever a hook hands on.
    called.arguments = approved
    return approved


def _refused(error: GuardError) -> RetryAgentRun:
    # The framework's own word for an error that the model reads; any other is printed with its traceback.
    return RetryAgentRun(refusal_or_raise(error))


# The framework fills these in by their names.
_OWN: Final = frozenset(
    (
        "self",
        "agent",
        "team",
        "run_context",
        "session_state",
        "dependencies",
        "images",
        "videos",
        "audios",
        "files",
        "fc",
    )
)
_schemas: Final[WeakKeyDictionary[Bridge, dict[str, ArgumentSchema]]] = WeakKeyDictionary()
_lock: Final = threading.Lock()
_UNSEEN: Final = "Not done: the guard was not told which call this is. Tell the operator."
_TOO_LATE: Final = "Not done: it needs a person now. Ask for it again."
