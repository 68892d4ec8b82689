"""Callables that the decorator `guarded` receives, and the proxies that replace them.

Before a callable is replaced, this module finds out its kind, the function inside it, and whether it can be guarded. A
proxy has the attributes of the function and can be copied.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from enum import Enum, auto
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Final

import wrapt

from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from toolgate._call import OnHold

__all__ = [
    "GuardedBoundFunction",
    "GuardedFunction",
    "Kind",
    "guard_inside",
    "guarded_action",
    "hides_or_derives",
    "inner_function",
    "is_guarded",
    "is_in_class",
    "kind_of",
    "refuse_async",
    "refuse_guarded",
    "refuse_unguardable",
]


def inner_function(function: Any) -> Any:
    """Return the function that a `classmethod` or `staticmethod` object wraps; return any other value unchanged."""
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
    method = getattr(type(function), "__call__", None)  # noqa: B004 - the method itself is needed
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
            f"class {inner.__qualname__!r} cannot be guarded; guard one of its methods instead"
        )
    if isinstance(inner, (property, functools.cached_property)):
        raise ConfigurationError(
            f"{inner!r} cannot be called; guard the function below @{type(inner).__name__}"
        )
    if not callable(inner):
        raise ConfigurationError(f"{inner!r} cannot be called; guard a function or method")


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
    if _manager(getattr(type(function), "__call__", None)):  # noqa: B004 - the method itself is needed
        raise ConfigurationError(
            f"{function!r} returns a context manager and cannot be guarded; decorate the __call__ method of "
            "its class with @guarded instead"
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
            f"{partial!r} has a placeholder and cannot be guarded; guard {partial.func!r} and create the "
            "partial from the guarded function"
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


if TYPE_CHECKING:
    _Wrapper = wrapt.FunctionWrapper[..., Any]
    _BoundWrapper = wrapt.BoundFunctionWrapper[..., Any]
else:
    _Wrapper = wrapt.FunctionWrapper
    _BoundWrapper = wrapt.BoundFunctionWrapper


class GuardedBoundFunction(_BoundWrapper):
    """Guarded method that is bound to an instance or class; copying and pickling include the instance or class."""

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
    """Proxy that replaces a guarded function or other callable object.

    A guarded function is pickled by its module and name, as plain functions are. Other guarded objects can be copied,
    but not pickled.

    Args:
        function: The callable to guard.
        wrapper: Called instead of `function`; it checks the call and then calls `function`.
        guard: Function that guards a copy of `function` in the same way; called when the proxy is copied.
    """

    __bound_function_wrapper__ = GuardedBoundFunction

    def __init__(
        self, function: Callable[..., Any], wrapper: Callable[..., Any], guard: Callable[[Any], Any]
    ) -> None:
        super().__init__(function, wrapper)
        self._self_guard = guard

    def __reduce_ex__(self, protocol: object) -> str:
        name = getattr(self, "__qualname__", None)
        if name is None or _find(getattr(self, "__module__", None), name) is not self:
            raise PicklingError(
                f"cannot pickle the guarded function {name or self.__wrapped__!r}: pickle does not find it "
                "by its module and name; define the function at the top level of a module and use it as a "
                "decorator there"
            )
        return str(name)

    def __copy__(self) -> Any:
        return self._copied(copy.copy)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._copied(lambda wrapped: copy.deepcopy(wrapped, memo))

    def _copied(self, copied: Callable[[Any], Any]) -> Any:
        wrapped = self.__wrapped__
        if isinstance(wrapped, (classmethod, staticmethod)):
            # Class and static methods are not copied, because the module `copy` does not support them.
            return self
        function = copied(wrapped)
        return self if function is wrapped else self._self_guard(function)


def refuse_guarded(function: Any, action: str) -> None:
    """Raise an error if a function is already guarded, even if other decorators were applied to the guarded function.

    Raises:
        ConfigurationError: The message names the function and the action.
    """
    guarded = _find_guarded(function)
    if guarded is not None:
        raise ConfigurationError(
            f"{getattr(guarded, '__qualname__', guarded)!r} is already guarded; "
            f"remove @guarded({action!r}), or remove the other guard"
        )


def guarded_action(function: object) -> str | None:
    """Return the action of a guarded function, even inside other decorators; None if the function is not guarded."""
    guarded = _find_guarded(function)
    return None if guarded is None else str(guarded._self_wrapper.action)  # noqa: SLF001 - `_self_` is public in wrapt


def hides_or_derives(function: object) -> bool:
    """Return True if a guarded function has options that hide arguments or send computed values to the gateway."""
    guarded = _find_guarded(function)
    return guarded is not None and not guarded._self_wrapper.is_plain  # noqa: SLF001 - `_self_` is public in wrapt


def is_guarded(function: object) -> bool:
    """Return True if every call of `function` is checked, because `function` itself is a guarded function.

    Return False for another decorator around a guarded function, such as `functools.cache`, which may return a result
    without calling the guarded function.
    """
    # This test must be the first, because `inspect.ismethod` also returns True for the proxy of a method.
    if type(function) in (GuardedFunction, GuardedBoundFunction):
        return True
    if isinstance(function, (classmethod, staticmethod)) or inspect.ismethod(function):
        return is_guarded(function.__func__)
    if isinstance(function, type):
        return False
    return type(inspect.getattr_static(type(function), "__call__", None)) is GuardedFunction


def _find_guarded(function: Any) -> Any:
    current: Any = function
    seen: list[Any] = []
    while current is not None and not any(current is each for each in seen):
        if type(current) in (GuardedFunction, GuardedBoundFunction):
            return current
        seen.append(current)
        current = _inside(current)
    return None


def _inside(function: Any) -> Any:
    if isinstance(function, (classmethod, staticmethod)) or inspect.ismethod(function):
        return function.__func__
    if isinstance(function, (functools.partial, functools.partialmethod)):
        return function.func
    if isinstance(function, type):
        return None
    return getattr(function, "__wrapped__", None) or _call_method(function)


def _call_method(function: Any) -> Any:
    """Return an object's guarded `__call__` method; for an unguarded one, the function that it wraps, or None."""
    method = inspect.getattr_static(type(function), "__call__", None)
    return method if type(method) is GuardedFunction else getattr(method, "__wrapped__", None)


def _find(module: str | None, name: str) -> Any:
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
