"""The decorator `guarded`, which replaces a function by a proxy. Each call of the proxy is a guarded call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from toolgate._callables import (
    GuardedFunction,
    Kind,
    guard_inside,
    inner_function,
    is_in_class,
    kind_of,
    refuse_async,
    refuse_guarded,
    refuse_unguardable,
)
from toolgate._capture.binding import Binder
from toolgate._capture.rules import Rules
from toolgate._options import Options, make_options
from toolgate._process_state import ensure_not_finalizing
from toolgate._telemetry import warn_renamed

__all__ = ["Guardable", "decorate"]

# `@guarded` above `@classmethod` or `@staticmethod` receives a `classmethod` or `staticmethod` object. Both types are
# listed here, because pyright does not regard them as `Callable`.
Guardable = TypeVar(
    "Guardable",
    bound="Callable[..., Any] | classmethod[Any, Any, Any] | staticmethod[Any, Any] | partialmethod[Any]",
)

# These modules are imported at the first call of a guarded function, so that `import toolgate` is fast.
if TYPE_CHECKING:
    from functools import partialmethod

    from toolgate._call import OnHold
    from toolgate._capture.rules import AmountFrom, ContextFrom
    from toolgate._state import GuardState


def decorate(
    find_state: Callable[[], GuardState],
    action: str,
    *,
    on_hold: OnHold,
    hold_timeout: float | None,
    include: Iterable[str] | None,
    exclude: Iterable[str],
    redact: Iterable[str | re.Pattern[str]],
    ignore: Iterable[str],
    unbound: Iterable[str],
    amount: AmountFrom | None,
    context: ContextFrom | None,
    agent_id: str | None,
    fail_open: bool,
) -> Callable[[Guardable], Guardable]:
    """Check the options and return the decorator.

    Each call of a decorated function calls `find_state` to get the state of the guard to use.

    Raises:
        ConfigurationError: An option is wrong. The decorator raises this error too, if a function cannot be guarded.
    """
    if unbound:
        warn_renamed("unbound=", "ignore=", stacklevel=4)
        ignore = unbound
    rules = Rules(
        include=include, exclude=exclude, redact=redact, ignore=ignore, amount=amount, context=context
    )
    options = make_options(
        action,
        rules,
        on_hold=on_hold,
        hold_timeout=hold_timeout,
        agent_id=agent_id,
        fail_open=fail_open,
    )
    decorator = _Decorator(find_state, options)

    def guarded(function: Guardable) -> Guardable:
        return cast("Guardable", decorator(function))

    return guarded


@dataclass(frozen=True, slots=True)
class _Decorator:
    find_state: Callable[[], GuardState]
    options: Options

    def __call__(self, function: Any) -> Any:
        refuse_guarded(function, self.options.action)
        wrapped = guard_inside(function, self)
        if wrapped is not None:
            return wrapped
        refuse_unguardable(function)
        inner = inner_function(function)
        binder = Binder(inner, in_class=is_in_class(function))
        name = getattr(inner, "__name__", None)
        options = replace(self.options, rules=self.options.rules.fits(binder, inner), tool=name)
        kind = kind_of(inner)
        if kind in (Kind.VALUE, Kind.GENERATOR):
            refuse_async(self.options.on_hold, f"{getattr(inner, '__qualname__', inner)!r}")
        tool = _Tool(self.find_state, options, binder, kind, inner)
        tool.proxy = guarded = GuardedFunction(function, tool, self)
        return guarded


class _Tool:
    """Wrapper of one decorated function: `wrapt` calls this object instead of the function."""

    def __init__(
        self,
        find_state: Callable[[], GuardState],
        options: Options,
        binder: Binder,
        kind: Kind,
        inner: Callable[..., Any],
    ) -> None:
        self._find_state = find_state
        self._options = options
        self._binder = binder
        self._kind = kind
        self._may_be_method = "." in getattr(inner, "__qualname__", "")
        named = inner if hasattr(inner, "__qualname__") else type(inner).__call__
        self._names = None if kind is Kind.VALUE else (named.__name__, named.__qualname__)
        self.proxy: Any = None

    @property
    def action(self) -> str:
        """The action of the function."""
        return self._options.action

    @property
    def is_plain(self) -> bool:
        """True if no option hides an argument or adds a computed value to the context."""
        return self._options.rules.is_plain

    def __call__(
        self,
        function: Callable[..., Any],
        instance: object,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        # The function is stored as a default value, because module globals may be None while the interpreter is
        # finalizing.
        ensure_not_finalizing: Callable[[], None] = ensure_not_finalizing,
    ) -> Any:
        # The imports below fail during interpreter finalization, so this function is called before them.
        ensure_not_finalizing()
        from toolgate._capture.arguments import CallArguments, Snapshot
        from toolgate._invocation import RUNNERS, Invocation

        # The arguments of coroutine functions are bound here too, so that a wrong argument raises an error at the call
        # and not only at the `await`.
        owner: tuple[Any, ...] = ()
        drop_first = instance is not None
        first = args[0] if args and not drop_first and self._may_be_method else None
        if isinstance(first, type) and self._is_class_method_of(first):
            drop_first, owner, args = True, args[:1], args[1:]
        rules = self._options.rules
        bound = self._binder.bind(args, kwargs, drop_first=drop_first, reserved=rules.reserved)
        state = self._find_state().ensure_open()
        arguments = CallArguments(
            self._binder,
            args,
            kwargs,
            bound,
            drop_first,
            rules,
            Snapshot(rules, state.fingerprinter),
        )
        tool = partial(function, *owner) if owner else function
        result = RUNNERS[self._kind](Invocation(self._options, state, arguments, tool))
        if self._names is not None:
            # If the coroutine is never awaited, Python's warning contains this name, so it must be the tool's name.
            result.__name__, result.__qualname__ = self._names
        return result

    def _is_class_method_of(self, owner: type) -> bool:
        """Return True if the class `owner` has the decorated function as a class method.

        Since Python 3.13, a `classmethod` around a guarded function passes the class as an ordinary first argument.
        Only a look-up of the method in the class can then distinguish `cls` from the arguments of the tool.
        """
        found = inspect.getattr_static(owner, self.proxy.__name__, None)
        return isinstance(found, classmethod) and found.__func__ is self.proxy
