"""A call's arguments by name, as the signature binds them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from types import GenericAlias, SimpleNamespace
from typing import Any, Final, get_type_hints

from toolgate.errors import ConfigurationError

__all__ = ["UNKNOWN", "Binder", "free_name"]

# Stands for a type nobody told.
UNKNOWN: Final = Parameter.empty
_OWNERS: Final = frozenset(("self", "cls", "mcs", "metacls"))
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def free_name(name: str, taken: Mapping[str, object]) -> str:
    """`name`, with as many trailing underscores as it takes to stand beside `taken`."""
    while name in taken:
        name += "_"
    return name


class Binder:
    """Binds calls to one function's signature, which is read once.

    Args:
        function: The function as it will be called, before any binding to an instance.
        in_class: Whether it was defined in a class: a first parameter called like an instance or class is one,
            also in calls that came through neither.

    Raises:
        ConfigurationError: If the function has no signature that can be read.
    """

    def __init__(self, function: Callable[..., Any], *, in_class: bool = False) -> None:
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{function!r} has no signature that can be read; guard a function that calls it"
            ) from error
        # A method taken from its instance has already lost its first parameter.
        self._function = function
        self._bound = getattr(function, "__self__", None) is not None
        self._method = self._without_first()
        parameters = self._signature.parameters.values()
        first = next(iter(parameters), None)
        owned = first is not None and first.kind in _POSITIONAL and first.name in _OWNERS
        self._owner = first.name if first is not None and owned and in_class and not self._bound else None
        self.extra = next((each.name for each in parameters if each.kind is Parameter.VAR_KEYWORD), None)

    def names(self) -> frozenset[str]:
        """The parameters that hold one value each, and the one that holds `*args`."""
        return frozenset(self._signature.parameters) - {self.extra}

    def is_single(self, name: str) -> bool:
        """Whether `name` is a parameter that holds exactly one value."""
        parameter = self._signature.parameters.get(name)
        return parameter is not None and parameter.kind not in (
            Parameter.VAR_POSITIONAL,
            Parameter.VAR_KEYWORD,
        )

    def bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, drop_first: bool, reserved: str | None
    ) -> dict[str, Any]:
        """The arguments by name, defaults applied, `**kwargs` beside the named ones.

        Args:
            args: Positional arguments, without the instance when `drop_first`.
            kwargs: Keyword arguments.
            drop_first: The call came through an instance or class, which holds the first parameter.
            reserved: A name that no extra keyword argument may take.

        Raises:
            TypeError: If the function cannot be called with these arguments; nothing was asked or run.
        """
        bound = self._seen(drop_first=drop_first).bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = self._without_owner(bound.arguments, drop_first=drop_first)
        extra: dict[str, Any] = arguments.pop(self.extra) if self.extra is not None else {}
        named = _named(extra, arguments, reserved)
        return {**arguments, **{free: extra[name] for free, name in named.items()}}

    def rebind(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        changes: Mapping[str, Any],
        *,
        drop_first: bool,
        reserved: str | None,
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call with some values replaced; the names are those of `bind`.

        Args:
            args: Positional arguments, as for `bind`.
            kwargs: Keyword arguments.
            changes: New values by name.
            drop_first: As for `bind`.
            reserved: As for `bind`.
        """
        bound = self._seen(drop_first=drop_first).bind(*args, **kwargs)
        whole = self._seen(drop_first=drop_first).bind(*args, **kwargs)
        whole.apply_defaults()
        arguments = self._without_owner(whole.arguments, drop_first=drop_first)
        extra: dict[str, Any] = arguments.pop(self.extra) if self.extra is not None else {}
        named = _named(extra, arguments, reserved)
        if any(name not in named and name not in bound.arguments for name in changes):
            # A default is changed: what stands before it may have to be passed as well.
            bound = whole
        bound.arguments.update({name: value for name, value in changes.items() if name not in named})
        changed = {named[name]: value for name, value in changes.items() if name in named}
        if changed and self.extra is not None:
            bound.arguments[self.extra] = {**extra, **changed}
        return bound.args, bound.kwargs

    def hint(self, name: str) -> object:
        """The annotation of a parameter's value, `UNKNOWN` without one that can be read."""
        parameter = self._signature.parameters.get(name)
        if parameter is None and self.extra is not None:
            parameter = self._signature.parameters[self.extra]
        if parameter is None or parameter.annotation is UNKNOWN:
            return UNKNOWN
        told = SimpleNamespace(__annotations__={"it": parameter.annotation})
        inner: Any = inspect.unwrap(self._function)
        inner = inner if hasattr(inner, "__globals__") else getattr(type(inner), "__call__", None)  # noqa: B004 - the method is wanted, not whether it exists
        try:
            # One by one: what cannot be read of one parameter says nothing of another.
            hint: Any = get_type_hints(told, globalns=getattr(inner, "__globals__", {}))["it"]
            if parameter.kind is Parameter.VAR_POSITIONAL:
                return GenericAlias(tuple, (hint, ...))
            return hint | None if parameter.default is None else hint
        except Exception:  # noqa: BLE001 - an annotation may be any expression, of names that are long gone
            return UNKNOWN

    def _seen(self, *, drop_first: bool) -> Signature:
        return self._method if drop_first and not self._bound else self._signature

    def _without_owner(self, arguments: Mapping[str, Any], *, drop_first: bool) -> dict[str, Any]:
        dropped = None if self._seen(drop_first=drop_first) is not self._signature else self._owner
        return {name: value for name, value in arguments.items() if name != dropped}

    def _without_first(self) -> Signature:
        parameters = list(self._signature.parameters.values())
        if parameters and parameters[0].kind in _POSITIONAL:
            return self._signature.replace(parameters=parameters[1:])
        return self._signature


def _named(extra: Mapping[str, Any], taken: Mapping[str, Any], reserved: str | None) -> dict[str, str]:
    """The names under which extra keyword arguments stand beside the others, and their own."""
    used = {*taken, reserved} if reserved else set(taken)
    return {_beside(name, used): name for name in sorted(extra)}


def _beside(name: str, used: set[str]) -> str:
    """The name of an extra keyword argument beside `used`; of two names it never makes one.

    Where `a` is used, `a` becomes `a_` and `a_` becomes `a__`, whether or not both are passed: which keyword
    was passed must be told by the name alone.
    """
    stem = name.rstrip("_")
    taken = {len(each) - len(stem) for each in used if each.rstrip("_") == stem}
    tail = len(name) - len(stem)
    if not taken or tail < min(taken):
        return name
    at = min(taken)
    steps = tail - at
    while steps or at in taken:
        steps -= at not in taken
        at += 1
    return stem + "_" * at
