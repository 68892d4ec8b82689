"""Binding of a call's arguments to the parameters of the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from types import GenericAlias, SimpleNamespace
from typing import Any, Final, get_type_hints

from toolgate.errors import ConfigurationError

__all__ = ["UNKNOWN", "Binder", "free_name"]

# `Binder.hint` returns this value for a parameter without an annotation.
UNKNOWN: Final = Parameter.empty
_OWNERS: Final = frozenset(("self", "cls", "mcs", "metacls"))
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def free_name(name: str, taken: Mapping[str, object]) -> str:
    """Return `name`, with as many trailing underscores as are needed to make it differ from all names in `taken`."""
    while name in taken:
        name += "_"
    return name


class Binder:
    """Binds the arguments of calls to the parameters of one function.

    Args:
        function: The function that is called; for a method, usually the function as defined in the class.
        in_class: True if the function was defined in a class. A first parameter called `self` or `cls` is then the
            instance or class, and is not treated as an argument even if a call passes it explicitly.

    Raises:
        ConfigurationError: The function has no signature that can be read.
    """

    def __init__(self, function: Callable[..., Any], *, in_class: bool = False) -> None:
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"Python cannot read the signature of {function!r}; write a function that calls it, and "
                "guard that function"
            ) from error
        self._function = function
        # The signature of a bound method does not contain `self` or `cls`, so no parameter has to be removed.
        self._bound = getattr(function, "__self__", None) is not None
        self._method = self._without_first()
        parameters = self._signature.parameters.values()
        first = next(iter(parameters), None)
        owned = first is not None and first.kind in _POSITIONAL and first.name in _OWNERS
        self._owner = first.name if first is not None and owned and in_class and not self._bound else None
        self.extra = next((each.name for each in parameters if each.kind is Parameter.VAR_KEYWORD), None)

    def names(self) -> frozenset[str]:
        """Return the names of all parameters except `**kwargs`."""
        return frozenset(self._signature.parameters) - {self.extra}

    def is_single(self, name: str) -> bool:
        """Return whether `name` is a parameter with exactly one value, and not `*args` or `**kwargs`."""
        parameter = self._signature.parameters.get(name)
        return parameter is not None and parameter.kind not in (
            Parameter.VAR_POSITIONAL,
            Parameter.VAR_KEYWORD,
        )

    def bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, drop_first: bool, reserved: str | None
    ) -> dict[str, Any]:
        """Return all arguments by name, including defaults; `**kwargs` arguments are at the same level as the others.

        Args:
            args: Positional arguments. With `drop_first`, they do not contain the instance or class.
            kwargs: Keyword arguments.
            drop_first: True if the function's first parameter is the instance or class (`self` or `cls`).
            reserved: Name that no argument from `**kwargs` may have in the result, or None. An argument with this name
                gets a trailing underscore.

        Raises:
            TypeError: The function cannot be called with these arguments.
        """
        signature = self._signature_for(drop_first=drop_first)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = self._without_owner(bound.arguments, signature)
        if self.extra is None:
            return arguments
        extra: dict[str, Any] = arguments.pop(self.extra)
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
        """Return the positional and keyword arguments of a call with some values replaced.

        Args:
            args: Positional arguments, as for `bind`.
            kwargs: Keyword arguments.
            changes: Maps names of arguments, as `bind` returns them, to new values.
            drop_first: As for `bind`.
            reserved: As for `bind`.
        """
        signature = self._signature_for(drop_first=drop_first)
        bound = signature.bind(*args, **kwargs)
        whole = signature.bind(*args, **kwargs)
        whole.apply_defaults()
        arguments = self._without_owner(whole.arguments, signature)
        extra: dict[str, Any] = arguments.pop(self.extra) if self.extra is not None else {}
        named = _named(extra, arguments, reserved)
        if any(name not in named and name not in bound.arguments for name in changes):
            # A new value replaces the default of an argument that the caller did not pass. If this argument is
            # positional, all arguments before it must be passed as well, so the new call contains all defaults.
            bound = whole
        bound.arguments.update({name: value for name, value in changes.items() if name not in named})
        changed = {named[name]: value for name, value in changes.items() if name in named}
        if changed and self.extra is not None:
            bound.arguments[self.extra] = {**extra, **changed}
        return bound.args, bound.kwargs

    def hint(self, name: str) -> object:
        """Return the annotation of an argument, or `UNKNOWN` if there is none or it cannot be evaluated."""
        parameter = self._signature.parameters.get(name)
        if parameter is None and self.extra is not None:
            parameter = self._signature.parameters[self.extra]
        if parameter is None or parameter.annotation is UNKNOWN:
            return UNKNOWN
        holder = SimpleNamespace(__annotations__={"it": parameter.annotation})
        inner: Any = inspect.unwrap(self._function)
        inner = inner if hasattr(inner, "__globals__") else getattr(type(inner), "__call__", None)  # noqa: B004 - the method itself is needed, not only whether it exists
        try:
            # Each annotation is evaluated separately, so that a failure affects only its own parameter.
            hint: Any = get_type_hints(holder, globalns=getattr(inner, "__globals__", {}))["it"]
            if parameter.kind is Parameter.VAR_POSITIONAL:
                return GenericAlias(tuple, (hint, ...))
            return hint | None if parameter.default is None else hint
        except Exception:  # noqa: BLE001 - evaluating an annotation may raise anything, such as NameError
            return UNKNOWN

    def _signature_for(self, *, drop_first: bool) -> Signature:
        return self._method if drop_first and not self._bound else self._signature

    def _without_owner(self, arguments: Mapping[str, Any], signature: Signature) -> dict[str, Any]:
        if self._owner is None or signature is not self._signature:
            return dict(arguments)
        return {name: value for name, value in arguments.items() if name != self._owner}

    def _without_first(self) -> Signature:
        parameters = list(self._signature.parameters.values())
        if parameters and parameters[0].kind in _POSITIONAL:
            return self._signature.replace(parameters=parameters[1:])
        return self._signature


def _named(extra: Mapping[str, Any], taken: Mapping[str, Any], reserved: str | None) -> dict[str, str]:
    """Return the names of the `**kwargs` arguments: each name in the result of `bind`, mapped to the caller's name.

    The two names differ if the caller's name is `reserved`, or is the name of another argument (`taken`).
    """
    used = {*taken, reserved} if reserved else set(taken)
    return {_beside(name, used): name for name in sorted(extra)}


def _beside(name: str, used: set[str]) -> str:
    """Return a name that is not in `used` for the `**kwargs` argument `name`; different arguments get different names.

    The result does not depend on the other `**kwargs` arguments of the call: if `used` contains `a`, the argument `a`
    is always renamed to `a_`, and the argument `a_` to `a__`.
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
