"""What stands in the context beside the arguments: taken from one of them, or computed by a function."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from decimal import Decimal
from inspect import Parameter
from typing import Any, TypeAlias

from toolgate._capture.plain import is_model
from toolgate._capture.state import state
from toolgate.errors import ConfigurationError

__all__ = ["AmountFrom", "Computed", "ContextFrom", "checked_amount", "members_of"]

AmountFrom: TypeAlias = str | Callable[..., int | float | Decimal]
ContextFrom: TypeAlias = str | Callable[..., Mapping[str, object]]


class Computed:
    """A function that is given those of a call's arguments it has parameters for, by name.

    Args:
        option: The option it was given as.
        function: The function.

    Raises:
        ConfigurationError: If it cannot be called by names alone, or would have to be awaited.
    """

    def __init__(self, option: str, function: Callable[..., Any]) -> None:
        self.option = option
        self._function = function
        self._label = f"{option}={getattr(function, '__qualname__', type(function).__qualname__)!r}"
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(f"{self._label} is asynchronous; use a function that returns at once")
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"{self._label} has no signature; use a function with names") from error
        for each in parameters:
            if each.kind is Parameter.VAR_POSITIONAL or each.kind is Parameter.POSITIONAL_ONLY:
                raise ConfigurationError(
                    f"{self._label} takes {each.name!r} by position; arguments are given by name"
                )
        self._takes_all = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)
        named = [each for each in parameters if each.kind is not Parameter.VAR_KEYWORD]
        self._takes = frozenset(each.name for each in named)
        self._needs = frozenset(each.name for each in named if each.default is Parameter.empty)

    def refuse_unknown(self, names: frozenset[str], label: str) -> None:
        """Refuse a function that needs an argument the tool does not have.

        Raises:
            ConfigurationError: Naming it.
        """
        if missing := self._needs - names:
            raise ConfigurationError(
                f"{self._label} takes {min(missing)!r}, but {label!r} has no such argument"
            )

    def reads(self, names: frozenset[str]) -> bool:
        """Return whether the function is given one of these arguments."""
        return bool(names) and (self._takes_all or not self._takes.isdisjoint(names))

    def of(self, arguments: Mapping[Any, Any]) -> Any:
        """What the function makes of the arguments.

        Raises:
            ConfigurationError: If it cannot be called with them, or raised; nobody was asked then.
        """
        if missing := self._needs - set(arguments):
            raise ConfigurationError(f"{self._label} takes {min(missing)!r}, which this call does not have")
        given = {
            name: value
            for name, value in arguments.items()
            if type(name) is str and (self._takes_all or name in self._takes)
        }
        try:
            return self._function(**given)
        except Exception as error:
            raise ConfigurationError(
                f"{self._label} raised {type(error).__name__}: the gateway was not asked and the tool did not run"
            ) from error

    def wrong(self, value: object, cure: str) -> ConfigurationError:
        """The error for a value it should not have returned; tells its class alone."""
        return ConfigurationError(f"{self._label} returned {type(value).__name__!r}; return {cure}")


def checked_amount(computed: Computed, arguments: Mapping[Any, Any]) -> int | float | Decimal:
    """The amount a function computes.

    Raises:
        ConfigurationError: If it raised, or returned no number: without one nothing would be compared.
    """
    value = computed.of(arguments)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise computed.wrong(value, "a number")
    return value


def members_of(source: object) -> dict[str, Any] | None:
    """What a mapping, dataclass or model holds, by name; None for anything else, or what cannot be read."""
    try:
        return _read(source)
    except Exception:  # noqa: BLE001 - other people's classes may do anything when read
        return None


def _read(source: object) -> dict[str, Any] | None:
    kind: Any = type(source)
    if issubclass(kind, dict):
        found = dict(dict.items(source))  # type: ignore[arg-type]  # the very class is a dict's
    elif dataclasses.is_dataclass(kind) or is_model(kind):
        found = state(source) or {}
    elif issubclass(kind, Mapping):
        found = dict(source)  # type: ignore[call-overload]  # likewise a mapping's
    else:
        return None
    return found if all(type(name) is str for name in found) else None
