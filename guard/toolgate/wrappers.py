"""What stands in the place of a guarded function: looks like it, and is copied and pickled where it is."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import wrapt

from toolgate.errors import ConfigurationError

__all__ = [
    "Again",
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

#: guards another function in the same way; pickled, it is the function and arguments that make it anew
Again: TypeAlias = Callable[[Any], Any]


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
    """A guarded function, or whatever else can be called.

    What is known by its name is copied and pickled by it, as functions are. Everything else is copied and pickled as
    it would be without the guard, and guarded again.
    """

    __bound_function_wrapper__ = GuardedBoundFunction

    def __init__(self, function: Callable[..., Any], wrapper: Callable[..., Any], again: Again) -> None:
        super().__init__(function, wrapper)
        self._self_again = again

    def __reduce_ex__(self, protocol: object) -> str | tuple[Any, ...]:
        name = getattr(self, "__qualname__", None)
        if name is not None and _found(getattr(self, "__module__", None), name) is self:
            return str(name)
        return _guarded_again, (self.__wrapped__, self._self_again)

    def __copy__(self) -> Any:
        return self._made_by(copy.copy)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._made_by(lambda wrapped: copy.deepcopy(wrapped, memo))

    def _made_by(self, copied: Callable[[Any], Any]) -> Any:
        wrapped = self.__wrapped__
        if isinstance(wrapped, (classmethod, staticmethod)):
            # Not copied by Python, and never seen but in the class's own dictionary.
            return self
        function = copied(wrapped)
        return self if function is wrapped else self._self_again(function)


def refuse_guarded(function: Any, action: str) -> None:
    """Refuse what is guarded already, however deep inside.

    Raises:
        ConfigurationError: Naming it and the action.
    """
    seen = _guarded_in(function)
    if seen is not None:
        raise ConfigurationError(
            f"{getattr(seen, '__qualname__', seen)!r} is already guarded; remove @guarded({action!r}) or the other"
        )


def guarded_action(function: object) -> str | None:
    """The action with which a function is guarded, however deep inside; None if it is not."""
    seen = _guarded_in(function)
    return None if seen is None else str(seen._self_wrapper.action)  # noqa: SLF001 - wrapt's own name for it


def hides_or_derives(function: object) -> bool:
    """Return whether a function that is guarded, however deep inside, is asked about otherwise than by its arguments."""
    seen = _guarded_in(function)
    return seen is not None and not seen._self_wrapper.is_plain  # noqa: SLF001 - wrapt's own name for it


def is_guarded(function: object) -> bool:
    """Return whether every call of `function` asks the gateway: the function itself is the guarded one.

    A wrapper around a guarded function is not: it may return without calling it, as `functools.cache` does.
    """
    # First: a guarded method looks like the method it guards.
    if type(function) in (GuardedFunction, GuardedBoundFunction):
        return True
    if isinstance(function, (classmethod, staticmethod)) or inspect.ismethod(function):
        return is_guarded(function.__func__)
    if isinstance(function, type):
        return False
    return type(inspect.getattr_static(type(function), "__call__", None)) is GuardedFunction


def _guarded_in(function: Any) -> Any:
    seen: Any = function
    before: list[Any] = []
    while seen is not None and not any(seen is each for each in before):
        if type(seen) in (GuardedFunction, GuardedBoundFunction):
            return seen
        before.append(seen)
        seen = _inside(seen)
    return None


def _inside(function: Any) -> Any:
    if isinstance(function, (classmethod, staticmethod)) or inspect.ismethod(function):
        return function.__func__
    if isinstance(function, (functools.partial, functools.partialmethod)):
        return function.func
    if isinstance(function, type):
        return None
    return getattr(function, "__wrapped__", None) or _called(function)


def _called(function: Any) -> Any:
    """The guarded method that is called with an object, if it is one."""
    method = inspect.getattr_static(type(function), "__call__", None)
    return method if type(method) is GuardedFunction else getattr(method, "__wrapped__", None)


def _found(module: str | None, name: str) -> Any:
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _guarded_again(function: Any, again: Again) -> Any:
    return again(function)
