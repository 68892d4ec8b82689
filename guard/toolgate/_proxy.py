"""Proxies that replace guarded functions and methods. A proxy has the attributes of the function and can be copied."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

import wrapt

from toolgate.errors import ConfigurationError

__all__ = [
    "GuardedBoundFunction",
    "GuardedFunction",
    "guarded_action",
    "hides_or_derives",
    "is_guarded",
    "refuse_guarded",
]

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
                f"cannot pickle the guarded function {name or self.__wrapped__!r}: it is not found by its module and "
                "name; decorate a function at the top level of a module"
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
            f"remove @guarded({action!r}) or the other"
        )


def guarded_action(function: object) -> str | None:
    """Return the action of a guarded function, even inside other decorators; None if the function is not guarded."""
    guarded = _find_guarded(function)
    return None if guarded is None else str(guarded._self_wrapper.action)  # noqa: SLF001 - public name in wrapt


def hides_or_derives(function: object) -> bool:
    """Return True if a guarded function has options that hide arguments or send computed values to the gateway."""
    guarded = _find_guarded(function)
    return guarded is not None and not guarded._self_wrapper.is_plain  # noqa: SLF001 - public name in wrapt


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
    """Return the `__call__` method of an object if it is guarded, otherwise the function that it wraps, or None."""
    method = inspect.getattr_static(type(function), "__call__", None)
    return method if type(method) is GuardedFunction else getattr(method, "__wrapped__", None)


def _find(module: str | None, name: str) -> Any:
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
