"""Plugin for DSPy: `dspy.ReAct("question -> answer", tools=guard_tools([…]))`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NoReturn

from toolgate import ConfigurationError, Guard, GuardError
from toolgate_integrations._arguments import with_signature_defaults
from toolgate_integrations._options import OnHoldWithoutPause
from toolgate_integrations.base import Bridge, ToolActions, ToolCall, refusal_text, require

require("dspy")

from dspy import Tool, settings
from dspy.utils.callback import with_callbacks

__all__ = ["GuardedCoroutineFunction", "GuardedFunction", "GuardedTool", "guard_tools"]


class EndsRun:
    """Result of a tool call that did not run because of a wrong setting or API key; it ends the agent's run.

    DSPy converts an exception that a tool raises to text for the model. This object instead raises the error when DSPy
    converts the object to text, because DSPy does not catch exceptions there.

    Attributes:
        error: The setup error.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error

    __repr__ = __str__


class GuardedFunction:
    """Function of a guarded tool, which checks each call and runs the tool's own function if the call is allowed.

    It is a callable object instead of a plain function. DSPy's `CodeAct` runs the source code of plain functions in a
    sandbox, and would find the source code of the tool's own function, which would run there unchecked.
    """

    def __init__(self, tool: Tool, bridge: Bridge) -> None:
        self.__name__, self.__doc__ = tool.name or "", tool.desc
        self.__signature__ = inspect.signature(tool.func)
        self._name, self._func, self._bridge = tool.name or "", tool.func, bridge

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Check the call; return the result of the tool's function, or the reason why it did not run."""
        call = self._call(args, kwargs)
        try:
            return self._bridge.run(call, lambda approved: _finished(self._func(**approved), call.name))
        except self._bridge.fatal as error:
            return EndsRun(error)
        except GuardError as error:
            # The reason is returned as a result instead of being raised, because the model would also read the
            # traceback of an exception, with file paths.
            return refusal_text(error)
        except Exception as error:  # noqa: BLE001 - raised again, with a shorter traceback
            raise error.with_traceback(_strip_guard_frames(error.__traceback__)) from error.__cause__

    def acall(self, **kwargs: Any) -> Awaitable[Any]:
        """Asynchronous form of the call, which does not block the event loop."""
        # This is not a coroutine function, because that would add a frame of the guard to the traceback of the tool's
        # errors.
        return self._arun(self._call((), kwargs))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ToolCall:
        given = {**self._by_name(args, kwargs), **kwargs}
        # DSPy has already validated and converted the arguments, so only the defaults are added.
        arguments = with_signature_defaults(given, self._func)
        return self._bridge.call(self._name, arguments, None, function=self._func)

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        parameters = self.__signature__.parameters.values() if args else ()
        names = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        if len(args) > len(names) or not kwargs.keys().isdisjoint(names[: len(args)]):
            raise TypeError(
                f"the tool {self._name!r} was called with too many positional arguments, or with one "
                "argument twice; pass arguments by name"
            )
        return dict(zip(names, args, strict=False))

    async def _arun(self, call: ToolCall) -> Any:
        async def run(approved: dict[str, Any]) -> Any:
            result = self._func(**approved)
            return await result if inspect.isawaitable(result) else result

        try:
            return await self._bridge.arun(call, run)
        except self._bridge.fatal as error:
            return EndsRun(error)
        except GuardError as error:
            return refusal_text(error)
        except Exception as error:  # noqa: BLE001 - raised again, with a shorter traceback
            raise error.with_traceback(_strip_guard_frames(error.__traceback__)) from error.__cause__

    def __copy__(self) -> GuardedFunction:
        return self

    def __deepcopy__(self, _: Any) -> GuardedFunction:
        return self

    def __reduce__(self) -> NoReturn:
        raise ConfigurationError(
            f"the tool {self._name!r} is guarded and cannot be saved with the program; save only the state "
            "(save_program=False), and guard the tools again after loading it"
        )


class GuardedCoroutineFunction(GuardedFunction):
    """`GuardedFunction` for coroutine functions; its `__call__` is a coroutine function, so DSPy awaits it."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Check the call; return the result of the tool's function, or the reason why it did not run."""
        return await self._arun(self._call(args, kwargs))


class GuardedTool(Tool):  # type: ignore[misc]  # the framework has no type annotations
    """A DSPy tool that checks every call before its function runs; created by `guard_tools`."""

    def __init__(self, *_: Any, **__: Any) -> NoReturn:
        raise ConfigurationError(
            "create a GuardedTool with guard_tools([…]); otherwise its calls would not be checked"
        )

    @classmethod
    def from_mcp_tool(cls, *_: Any, **__: Any) -> NoReturn:
        """Raise `ConfigurationError`, because the inherited method would return a tool without checks."""
        raise ConfigurationError("use guard_tools([dspy.Tool.from_mcp_tool(…)])")

    @classmethod
    def from_langchain(cls, *_: Any, **__: Any) -> NoReturn:
        """Raise `ConfigurationError`, because the inherited method would return a tool without checks."""
        raise ConfigurationError("use guard_tools([dspy.Tool.from_langchain(…)])")

    @with_callbacks  # type: ignore[untyped-decorator]  # the framework has no type annotations
    async def acall(self, **kwargs: Any) -> Any:
        """Call the tool asynchronously; unlike DSPy, run a synchronous function outside of the event loop's thread."""
        return await self.func.acall(**self._validate_and_parse_args(**kwargs))


def guard_tools(
    tools: Iterable[Callable[..., Any] | Tool],
    guard: Guard | None = None,
    *,
    tool_actions: ToolActions | None = None,
    agents: Mapping[str, str] | None = None,
    agent: str | None = None,
    on_hold: OnHoldWithoutPause = "notify_model",
    hold_timeout: float | None = None,
) -> list[GuardedTool]:
    """Return tools that check and log every call, for `dspy.ReAct` and other modules that call a `dspy.Tool`.

    Args:
        tools: Functions, callable objects, or `dspy.Tool`s; they are not changed.
        guard: The guard that sends the checks; None for the default guard, which `toolgate.configure` can set.
        tool_actions: Actions by tool name, as a mapping or a function of the name. The default action is
            `tools.<name>`.
        agents: Toolgate agent ids by agent names. All other agents use the guard's agent id.
        agent: Name of the agent that has these tools.
        on_hold: Reaction to a call that requires an approval. `wait`: wait for the approver within the run. `raise`:
            end the run with `ApprovalPending`. `notify_model`: the model reads that the call is pending.
        hold_timeout: Seconds to wait for the approver with `on_hold="wait"`; afterwards, the model reads that the call
            is pending. None for no limit.

    Returns:
        The guarded tools, in the order of `tools`.

    Raises:
        ConfigurationError: An argument is invalid.
    """
    bridge = Bridge(guard, tool_actions, agents, on_hold, hold_timeout, agent=agent)
    if isinstance(tools, (str, Tool)) or not isinstance(tools, Iterable):
        raise ConfigurationError(f"tools is {tools!r}; pass a list of functions or dspy.Tools")
    found = [_guarded(each, bridge) for each in tools]
    bridge.verify_tools([str(tool.name) for tool in found], is_complete=False)
    return found


def _guarded(given: Callable[..., Any] | Tool, bridge: Bridge) -> GuardedTool:
    if not callable(given) or isinstance(given, (GuardedTool, GuardedFunction, type)):
        raise ConfigurationError(
            f"tool {given!r} cannot be guarded; pass a function or a dspy.Tool that is not guarded yet"
        )
    tool = given if isinstance(given, Tool) else Tool(given)
    _look_at(tool)
    guarded = tool.model_copy()
    object.__setattr__(guarded, "__class__", GuardedTool)
    kind = GuardedCoroutineFunction if _is_async(tool.func) else GuardedFunction
    guarded.func = kind(tool, bridge)
    return guarded  # type: ignore[no-any-return]  # the class it was just given


def _look_at(tool: Tool) -> None:
    if isinstance(tool.func, GuardedFunction):
        raise ConfigurationError(
            f"tool {tool.name!r} cannot be guarded; pass a function or a dspy.Tool that is not guarded yet"
        )
    if type(tool) is not Tool:
        raise ConfigurationError(
            f"tool {tool.name!r} is of {type(tool)!r}, whose own code for calls would be skipped; pass a "
            "dspy.Tool, or a function that calls this tool"
        )
    if any(_is(kind, tool.func) for kind in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)):
        raise ConfigurationError(
            f"tool {tool.name!r} is a generator function, which would run only after its result is logged; "
            "return a list instead"
        )


def _strip_guard_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the guard's frames at its start.

    DSPy shows the model only the first five frames, which would otherwise be those of the guard.
    """
    seen = traceback
    while seen is not None and seen.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        seen = seen.tb_next
    return seen or traceback


_OURS: Final = frozenset({"toolgate", "toolgate_integrations"})


def _is_async(function: Any) -> bool:
    return _is(inspect.iscoroutinefunction, function)


def _is(kind: Callable[[Any], bool], function: Any) -> bool:
    return kind(function) or kind(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is needed, not only whether it exists
    )


def _finished(result: Any, name: str) -> Any:
    """Return a function's result; if it is a coroutine, run the coroutine and return its result.

    DSPy itself would run the coroutine only after the outcome of the call is logged.
    """
    if not inspect.iscoroutine(result):
        return result
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    if loop is None and settings.allow_tool_async_sync_conversion:
        return asyncio.run(result)
    result.close()
    raise ValueError(
        f"the tool {name!r} is asynchronous; call it with await acall(…), or, if no event loop is running, use "
        "dspy.context(allow_tool_async_sync_conversion=True)"
    )
