"""What is guarded below the object that was decorated: that object stays what it is, around a guarded function."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from toolgate.errors import ConfigurationError
from toolgate.tools import inner_function

__all__ = ["guarded_below"]


def guarded_below(function: Any, guard: Callable[[Any], Any]) -> Any:
    """`function` around what `guard` makes of the function inside; None if it is to be guarded itself.

    So the arguments that a `functools.partial` holds are asked about like all others, and a context manager is
    checked when it is entered.

    Raises:
        ConfigurationError: For an object that gives a context manager when called, with the cure.
    """
    inner = inner_function(function)
    below = _below(inner, guard)
    if below is None or inner is function:
        return below
    return type(function)(below)


def _below(function: Any, guard: Callable[[Any], Any]) -> Any:
    if type(function) is functools.partial:
        _refuse_placeholder(function)
        held = functools.partial(guard(function.func), *function.args, **function.keywords)
        held.__dict__.update(function.__dict__)
        return held
    if type(function) is functools.partialmethod:
        return functools.partialmethod(guard(function.func), *function.args, **function.keywords)
    if inspect.ismethod(function) and (again := _manager(function.__func__)):
        generator: Any = inspect.unwrap(function.__func__, stop=lambda each: _manager(each) is None)
        return again(guard(types.MethodType(generator, function.__self__)))
    if again := _manager(function):
        manager = again(guard(function.__wrapped__))
        manager.__dict__.update({**function.__dict__, "__wrapped__": manager.__wrapped__})
        return manager
    if _manager(getattr(type(function), "__call__", None)):  # noqa: B004 - the method is wanted, not whether it exists
        raise ConfigurationError(
            f"{function!r} gives a context manager when called; guard the __call__ of its class"
        )
    return None


def _manager(function: Any) -> Callable[[Any], Any] | None:
    """What of contextlib made `function`, if it did."""
    code = getattr(function, "__code__", None)
    return _MANAGERS.get(code) if isinstance(code, types.CodeType) else None


def _refuse_placeholder(partial: functools.partial[Any]) -> None:
    placeholder = getattr(functools, "Placeholder", _ABSENT)
    if any(each is placeholder for each in partial.args):
        raise ConfigurationError(
            f"{partial!r} has a placeholder; guard {partial.func!r} and make the partial of that"
        )


@contextlib.contextmanager
def _sync() -> Iterator[None]:
    yield


@contextlib.asynccontextmanager
async def _async() -> Any:
    yield


_ABSENT: Final = object()
# contextlib says of no function that it made it; its code does.
_MANAGERS: Final[dict[types.CodeType, Callable[[Any], Any]]] = {
    _sync.__code__: contextlib.contextmanager,
    _async.__code__: contextlib.asynccontextmanager,
}
