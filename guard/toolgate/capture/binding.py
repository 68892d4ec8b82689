"""A call's arguments by name, as the signature binds them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, Final

from toolgate.errors import ConfigurationError

__all__ = ["Binder", "free_name"]

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
        signature = self._method if drop_first and not self._bound else self._signature
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        if signature is self._signature and self._owner is not None:
            del arguments[self._owner]
        extra: dict[str, Any] = arguments.pop(self.extra) if self.extra is not None else {}
        taken: dict[str, Any] = {**arguments, **({reserved: None} if reserved else {})}
        # Sorted, and the unproblematic first, so that the order of keywords never changes a name.
        for name in sorted(extra, key=lambda each: (each in taken, each)):
            free = free_name(name, taken)
            arguments[free] = taken[free] = extra[name]
        return arguments

    def _without_first(self) -> Signature:
        parameters = list(self._signature.parameters.values())
        if parameters and parameters[0].kind in _POSITIONAL:
            return self._signature.replace(parameters=parameters[1:])
        return self._signature
