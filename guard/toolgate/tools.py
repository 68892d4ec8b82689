"""What may be guarded: one look at a function, at decoration."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from enum import Enum, auto
from typing import Any

from toolgate.errors import ConfigurationError

__all__ = [
    "Kind",
    "inner_function",
    "is_async",
    "is_class_method_of",
    "is_in_class",
    "kind_of",
    "refuse_unguardable",
]


def inner_function(function: Any) -> Any:
    """The function inside a class- or static method, or `function` itself."""
    return function.__func__ if isinstance(function, (classmethod, staticmethod)) else function


class Kind(Enum):
    """What calling a function gives."""

    VALUE = auto()
    COROUTINE = auto()
    GENERATOR = auto()
    ASYNC_GENERATOR = auto()


def kind_of(function: Any) -> Kind:
    """What calling `function` gives: also for an object with `__call__`, and behind `functools.partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    method = getattr(type(function), "__call__", None)  # noqa: B004 - the method is wanted, not whether it exists
    for each in (function, method):
        if inspect.iscoroutinefunction(each):
            return Kind.COROUTINE
        if inspect.isasyncgenfunction(each):
            return Kind.ASYNC_GENERATOR
        if inspect.isgeneratorfunction(each):
            return Kind.GENERATOR
    return Kind.VALUE


def is_async(function: Any) -> bool:
    """Whether calling `function` gives a coroutine: also for an object whose `__call__` is one."""
    return kind_of(function) is Kind.COROUTINE


def refuse_unguardable(function: Any) -> None:
    """Refuse what would be recorded wrongly.

    Raises:
        ConfigurationError: For classes and whatever cannot be called, with the cure.
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
    """Whether `owner` is a class that holds `function` inside a `classmethod`.

    From Python 3.13 on a class method calls what it wraps with the class as first argument and without
    binding it, so nothing else tells `cls` from an argument.
    """
    if not isinstance(owner, type) or "." not in getattr(function, "__qualname__", ""):
        return False
    found = inspect.getattr_static(owner, function.__name__, None)
    return isinstance(found, classmethod) and found.__func__ is function


def is_in_class(function: Any) -> bool:
    """Whether `function` is being defined in a class body and is given its instance or class when called.

    Built-in methods are not defined in one, and a method taken from a finished class is a function of the object
    it works on: there, what they are given is what there is to ask about.
    """
    if isinstance(function, (staticmethod, types.MethodDescriptorType, types.WrapperDescriptorType)):
        return False
    inner = inner_function(function)
    scope = str(getattr(inner, "__qualname__", "")).rpartition(".")[0]
    return scope.rpartition(".")[2] not in {"", "<locals>"} and not _is_of_finished_class(inner)


def _is_of_finished_class(function: Any) -> bool:
    # While a class body runs, its name is not there yet or still means something older.
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for part in str(function.__qualname__).split("."):
        found = inspect.getattr_static(found, part, None)
    return inner_function(found) is function
