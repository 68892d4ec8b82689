"""The decorator: asks before the tool runs and records what it did."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from toolgate._capture.binding import Binder
from toolgate._capture.rules import Rules
from toolgate.holding import refuse_async
from toolgate.layers import guarded_below
from toolgate.options import Options, make_options
from toolgate.shutdown import ensure_not_finalizing
from toolgate.tools import (
    Kind,
    inner_function,
    is_class_method_of,
    is_in_class,
    kind_of,
    refuse_unguardable,
)
from toolgate.wrappers import GuardedFunction, refuse_guarded

__all__ = ["Guardable", "decorate"]

# Unbound by Callable alone: pyright sees the class- or static method object below the decorator.
Guardable = TypeVar(
    "Guardable",
    bound="Callable[..., Any] | classmethod[Any, Any, Any] | staticmethod[Any, Any] | partialmethod[Any]",
)

# What only a call needs is loaded by the first one.
if TYPE_CHECKING:
    from functools import partialmethod

    from toolgate._capture.rules import AmountFrom, ContextFrom
    from toolgate.calls import OnHold
    from toolgate.runtime import Runtime


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

    guard = _Guarding(runtime, options)

    def guarded(function: Guardable) -> Guardable:
        return cast("Guardable", guard(function))

    return guarded


@dataclass(frozen=True, slots=True)
class _Guarding:
    """Guards functions with one action; is pickled with what is guarded, where its guard can be found again."""

    runtime: Callable[[], Runtime]
    options: Options

    def __call__(self, function: Any) -> Any:
        refuse_guarded(function, self.options.action)
        below = guarded_below(function, self)
        if below is not None:
            return below
        refuse_unguardable(function)
        inner = inner_function(function)
        binder = Binder(inner, in_class=is_in_class(function))
        name = getattr(inner, "__name__", None)
        options = replace(self.options, rules=self.options.rules.fits(binder, inner), tool=name)
        kind = kind_of(inner)
        if kind in (Kind.VALUE, Kind.GENERATOR):
            refuse_async(self.options.on_hold, f"{getattr(inner, '__qualname__', inner)!r}")
        tool = _Tool(self.runtime, options, binder, kind, inner)
        tool.itself = guarded = GuardedFunction(function, tool, self)
        return guarded


class _Tool:
    """One decorated function: what is known of it, and its calls."""

    def __init__(
        self,
        runtime: Callable[[], Runtime],
        options: Options,
        binder: Binder,
        kind: Kind,
        inner: Callable[..., Any],
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._binder = binder
        self._kind = kind
        named = inner if hasattr(inner, "__qualname__") else type(inner).__call__
        self._names = None if kind is Kind.VALUE else (named.__name__, named.__qualname__)
        self.itself: Any = None

    @property
    def action(self) -> str:
        """The action identifier."""
        return self._options.action

    @property
    def is_plain(self) -> bool:
        """Whether the gateway is asked about the arguments as they are."""
        return self._options.rules.is_plain

    def __call__(
        self, function: Callable[..., Any], instance: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        # Before the imports, which fail during finalization.
        ensure_not_finalizing()
        from toolgate._capture.arguments import CallArguments
        from toolgate.running.kinds import RUN, Turn

        # All of this at the call, so that a wrong one fails where it is written and not where it is awaited.
        owner: tuple[Any, ...] = ()
        drop_first = instance is not None
        if not drop_first and args and is_class_method_of(self.itself, args[0]):
            drop_first, owner, args = True, args[:1], args[1:]
        rules = self._options.rules
        bound = self._binder.bind(args, kwargs, drop_first=drop_first, reserved=rules.reserved)
        runtime = self._runtime().ensure_open()
        arguments = CallArguments(
            self._binder, args, kwargs, bound, drop_first=drop_first, rules=rules, fingerprinter=runtime.hider
        )
        tool = partial(function, *owner) if owner else function
        made = RUN[self._kind](Turn(self._options, runtime, arguments, tool))
        if self._names is not None:
            # What tells of a coroutine that is never awaited, or of a generator, tells of the tool.
            made.__name__, made.__qualname__ = self._names
        return made
