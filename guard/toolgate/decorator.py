"""The decorator: asks before the tool runs and records what it did."""

from __future__ import annotations

import contextvars
import copy
import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import wrapt

from toolgate.capture.binding import Binder
from toolgate.capture.rules import Rules
from toolgate.errors import ConfigurationError
from toolgate.holding import refuse_async
from toolgate.options import Options, make_options
from toolgate.tools import inner_function, is_async, is_class_method_of, is_in_class, refuse_unguardable

__all__ = ["Guardable", "decorate"]

# Unbound by Callable alone: pyright sees the class- or static method object below the decorator.
Guardable = TypeVar(
    "Guardable", bound="Callable[..., Any] | classmethod[Any, Any, Any] | staticmethod[Any, Any]"
)

# What only a call needs is loaded by the first one.
if TYPE_CHECKING:
    from toolgate.calls import OnHold
    from toolgate.capture.arguments import CallArguments
    from toolgate.capture.deriving import AmountFrom, ContextFrom
    from toolgate.runtime import Runtime

    _Wrapper = wrapt.FunctionWrapper[..., Any]
    _BoundWrapper = wrapt.BoundFunctionWrapper[..., Any]
else:
    _Wrapper = wrapt.FunctionWrapper
    _BoundWrapper = wrapt.BoundFunctionWrapper


def decorate(
    runtime: Callable[[], Runtime],
    action: str,
    *,
    on_hold: OnHold,
    hold_timeout: float | None,
    include: Iterable[str] | None,
    exclude: Iterable[str],
    redact: Iterable[str | re.Pattern[str]],
    unbound: Iterable[str],
    amount: AmountFrom | None,
    context: ContextFrom | None,
    agent_id: str | None,
    fail_open: bool,
) -> Callable[[Guardable], Guardable]:
    """Check the options and return the decorator; `runtime` is asked for at every call.

    Raises:
        ConfigurationError: Here or when decorating, naming what is wrong and the cure.
    """
    rules = Rules(
        include=include, exclude=exclude, redact=redact, unbound=unbound, amount=amount, context=context
    )
    options = make_options(
        action,
        rules,
        on_hold=on_hold,
        hold_timeout=hold_timeout,
        agent_id=agent_id,
        fail_open=fail_open,
    )

    def guard(function: Guardable) -> Guardable:
        refuse_unguardable(function)
        _refuse_guarded(function, options.action)
        inner = inner_function(function)
        binder = Binder(inner, in_class=is_in_class(function))
        name = getattr(inner, "__name__", None)
        fitted = replace(options, rules=rules.fits(binder, inner), tool=name)
        if not is_async(inner):
            refuse_async(options.on_hold, f"{getattr(inner, '__qualname__', inner)!r}")
        tool = _Tool(runtime, fitted, binder)
        wrapper = tool.run_async if is_async(inner) else tool.run
        guarded = GuardedFunction(cast("Callable[..., Any]", function), wrapper)
        tool.itself = guarded
        return cast("Guardable", guarded)

    return guard


class GuardedBoundFunction(_BoundWrapper):
    """A guarded method taken from its instance or class; survives copy and pickle."""

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return getattr, (self._owner(), self.__name__)

    def __copy__(self) -> GuardedBoundFunction:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return getattr(copy.deepcopy(self._owner(), memo), self.__name__)

    def _owner(self) -> Any:
        owner = getattr(self.__wrapped__, "__self__", None)
        return self._self_owner if owner is None else owner


class GuardedFunction(_Wrapper):
    """A guarded function: looks like the function, and is copied and pickled like one, by its name."""

    __bound_function_wrapper__ = GuardedBoundFunction

    def __reduce_ex__(self, protocol: object) -> str:
        return str(self.__qualname__)

    def __copy__(self) -> GuardedFunction:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> GuardedFunction:
        return self


class _Tool:
    """What one decoration knows, and the two ways to run the tool."""

    def __init__(self, runtime: Callable[[], Runtime], options: Options, binder: Binder) -> None:
        self._runtime = runtime
        self._options = options
        self._binder = binder
        self.itself: Any = None

    def run(
        self, function: Callable[..., Any], instance: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        from toolgate.drivers import call
        from toolgate.performers import Performer
        from toolgate.resuming import resumed_by

        runtime, arguments, owner = self._prepare(instance, args, kwargs)
        performer = Performer(
            runtime.client(),
            runtime.recorder,
            arguments,
            on_hold=self._options.on_hold,
            waiters=runtime.waiters,
            hold_timeout=self._options.hold_timeout,
        )
        flow = self._options.flow(runtime, arguments.capture(), resumed_by(runtime))

        def tool() -> Any:
            passed, named = arguments.passed()
            return _no_coroutine(function, function(*owner, *passed, **named))

        return call(flow, performer, tool)

    def run_async(
        self, function: Callable[..., Any], instance: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Coroutine[Any, Any, Any]:
        from toolgate.drivers import acall
        from toolgate.performers import AsyncPerformer
        from toolgate.resuming import resumed_by

        # Bound here, so that a wrong call fails where it is written and not where it is awaited.
        runtime, arguments, owner = self._prepare(instance, args, kwargs)
        # The caller acts, not whoever awaits; the arguments count as they are when the tool runs.
        caller = contextvars.copy_context()
        resumes = resumed_by(runtime)

        async def guarded_call() -> Any:
            performer = AsyncPerformer(
                runtime.async_client(),
                runtime.recorder,
                arguments,
                on_hold=self._options.on_hold,
                waiters=runtime.waiters,
                hold_timeout=self._options.hold_timeout,
            )
            flow = caller.run(self._options.flow, runtime, arguments.capture(), resumes)

            def tool() -> Any:
                passed, named = arguments.passed()
                return function(*owner, *passed, **named)

            return await acall(flow, performer, tool)

        return guarded_call()

    def _prepare(
        self, instance: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Runtime, CallArguments, tuple[Any, ...]]:
        from toolgate.capture.arguments import CallArguments

        owner: tuple[Any, ...] = ()
        drop_first = instance is not None
        if not drop_first and args and is_class_method_of(self.itself, args[0]):
            drop_first, owner, args = True, args[:1], args[1:]
        rules = self._options.rules
        bound = self._binder.bind(args, kwargs, drop_first=drop_first, reserved=rules.reserved)
        runtime = self._runtime().ensure_open()
        arguments = CallArguments(
            self._binder, args, kwargs, bound, drop_first=drop_first, rules=rules, hider=runtime.hider
        )
        return runtime, arguments, owner


def _no_coroutine(function: Callable[..., Any], value: Any) -> Any:
    # Recording success now would be wrong: nothing of it has run yet.
    if inspect.iscoroutine(value):
        value.close()
        raise ConfigurationError(
            f"{function!r} returned a coroutine without being a coroutine function; "
            "guard the coroutine function itself, below the other decorators"
        )
    return value


def _refuse_guarded(function: Any, action: str) -> None:
    seen: Any = function
    while seen is not None:
        if type(inner_function(seen)) in (GuardedFunction, GuardedBoundFunction):
            raise ConfigurationError(
                f"{getattr(seen, '__qualname__', seen)!r} is already guarded; remove @guarded({action!r}) or the other"
            )
        seen = getattr(inner_function(seen), "__wrapped__", None)
