"""Inspection of a callable that is being decorated: its kind, the function inside it, and whether it can be guarded."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from toolgate._call import OnHold

__all__ = [
    "Kind",
    "guard_inside",
    "inner_function",
    "is_class_method_of",
    "is_in_class",
    "kind_of",
    "refuse_async",
    "refuse_unguardable",
]


def inner_function(function: Any) -> Any:
    """Return the function inside a class or static method, or `function` itself."""
    return function.__func__ if isinstance(function, (classmethod, staticmethod)) else function


class Kind(Enum):
    """Kind of a function, which depends on the object that a call returns, such as a coroutine or a generator."""

    VALUE = auto()
    COROUTINE = auto()
    GENERATOR = auto()
    ASYNC_GENERATOR = auto()


def kind_of(function: Any) -> Kind:
    """Return the kind of a function, of an object with a `__call__` method, or of the function in a `partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    method = getattr(type(function), "__call__", None)  # noqa: B004 - `callable` does not return the method
    for each in (function, method):
        if inspect.iscoroutinefunction(each):
            return Kind.COROUTINE
        if inspect.isasyncgenfunction(each):
            return Kind.ASYNC_GENERATOR
        if inspect.isgeneratorfunction(each):
            return Kind.GENERATOR
    return Kind.VALUE


def refuse_async(on_hold: OnHold, what: str) -> None:
    """Raise an error if `on_hold` is a coroutine function. The error message describes the synchronous tool by `what`.

    Raises:
        ConfigurationError: A synchronous tool cannot await `on_hold`.
    """
    if not isinstance(on_hold, str) and kind_of(on_hold) is Kind.COROUTINE:
        raise ConfigurationError(
            f"on_hold is the coroutine function {on_hold!r}, but {what} is synchronous; use a plain function"
        )


def refuse_unguardable(function: Any) -> None:
    """Raise an error if `function` is a class, a property, or an object that cannot be called.

    Raises:
        ConfigurationError: The message names the object and the fix.
    """
    inner = inner_function(function)
    if isinstance(inner, type):
        raise ConfigurationError(
            f"class {inner.__qualname__!r} cannot be guarded; guard the method that acts"
        )
    if isinstance(inner, (property, functools.cached_property)):
        raise ConfigurationError(
            f"{inner!r} cannot be called; guard the function below @{type(inner).__name__}"
        )
    if not callable(inner):
        raise ConfigurationError(f"{inner!r} cannot be called; guard a function or method")


def is_class_method_of(function: Any, owner: object) -> bool:
    """Return True if `owner` is a class that has `function` as a class method.

    Since Python 3.13, a `classmethod` around a guarded function passes the class as an ordinary first argument. Only a
    look-up of the method in the class can then distinguish `cls` from the arguments of the tool.
    """
    if not isinstance(owner, type):
        return False
    found = inspect.getattr_static(owner, function.__name__, None)
    return isinstance(found, classmethod) and found.__func__ is function


def is_in_class(function: Any) -> bool:
    """Return True if `function` is decorated inside a class body, so that its first parameter is `self` or `cls`.

    Return False for built-in methods, and for methods that are decorated after their class is complete. The first
    argument of such a method is sent to the gateway like the other arguments.
    """
    if isinstance(function, (staticmethod, types.MethodDescriptorType, types.WrapperDescriptorType)):
        return False
    inner = inner_function(function)
    scope = str(getattr(inner, "__qualname__", "")).rpartition(".")[0]
    return scope.rpartition(".")[2] not in {"", "<locals>"} and not _is_of_finished_class(inner)


def _is_of_finished_class(function: Any) -> bool:
    # The function is looked up by its qualified name. While the class body runs, the look-up does not find `function`,
    # because the name of the class does not exist yet, or refers to an older class.
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in str(function.__qualname__).split("."):
        found = inspect.getattr_static(found, part, None)
    return inner_function(found) is function


def guard_inside(function: Any, guard: Callable[[Any], Any]) -> Any:
    """Guard the function inside a `functools.partial` or a `@contextmanager`, and return the new outer object.

    The gateway then also receives the arguments that the partial contains. A context manager is checked when it is
    entered. Return None if `function` is neither a partial nor a context manager; the caller then guards `function`
    itself.

    Args:
        function: The object that is decorated.
        guard: Function that returns the guarded form of a function.

    Raises:
        ConfigurationError: `function` is an object whose `__call__` method is decorated with `@contextmanager`.
    """
    inner = inner_function(function)
    wrapped = _guard_inside(inner, guard)
    if wrapped is None or inner is function:
        return wrapped
    # If `function` is a class method or a static method, the result must be one as well.
    return type(function)(wrapped)


def _guard_inside(function: Any, guard: Callable[[Any], Any]) -> Any:
    if type(function) is functools.partial:
        _refuse_placeholder(function)
        bound = functools.partial(guard(function.func), *function.args, **function.keywords)
        bound.__dict__.update(function.__dict__)
        return bound
    if type(function) is functools.partialmethod:
        return functools.partialmethod(guard(function.func), *function.args, **function.keywords)
    if inspect.ismethod(function) and (decorate := _manager(function.__func__)):
        generator: Any = inspect.unwrap(function.__func__, stop=lambda each: _manager(each) is None)
        return decorate(guard(types.MethodType(generator, function.__self__)))
    if decorate := _manager(function):
        manager = decorate(guard(function.__wrapped__))
        manager.__dict__.update({**function.__dict__, "__wrapped__": manager.__wrapped__})
        return manager
    if _manager(getattr(type(function), "__call__", None)):  # noqa: B004 - `callable` does not return the method
        raise ConfigurationError(
            f"{function!r} gives a context manager when called; guard the __call__ of its class"
        )
    return None


def _manager(function: Any) -> Callable[[Any], Any] | None:
    """Return the `contextlib` decorator that was applied to `function`, or None."""
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
# Maps a code object to the `contextlib` decorator that creates functions with this code. All functions that
# `@contextmanager` returns share one code object, and those of `@asynccontextmanager` share another. The functions have
# no attribute that identifies the decorator.
_MANAGERS: Final[dict[types.CodeType, Callable[[Any], Any]]] = {
    _sync.__code__: contextlib.contextmanager,
    _async.__code__: contextlib.asynccontextmanager,
}
