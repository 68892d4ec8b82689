"""Options of a guarded function or block that decide which arguments the context shows, hides or omits.

The context is the JSON object that the gateway checks, an approver reads and the log stores. Options can also add
computed values to it.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    from decimal import Decimal

    from toolgate._capture.binding import Binder
    from toolgate._capture.redaction import SecretRule

__all__ = ["AMOUNT", "AmountFrom", "ContextFrom", "Rules"]

AMOUNT: Final = "amount"

AmountFrom: TypeAlias = "str | Callable[..., int | float | Decimal]"
ContextFrom: TypeAlias = "str | Callable[..., Mapping[str, object]]"


class Rules:
    """Options for converting a call's arguments to the JSON object that the gateway checks (the context).

    Args:
        include: Names of the arguments to show; all others are hidden. None shows all arguments.
        exclude: Names of arguments to hide. The context contains their digests, so that an approval covers their
            values without showing them.
        redact: Additional names of arguments or fields, whose values are hidden at any depth, and patterns of secrets.
        ignore: Names of arguments to omit from the context. An approval does not cover them: their values may change
            between the check and the run.
        amount: Name of the argument whose value is also sent as `amount`, which the gateway compares with
            `max_amount`, or a function that computes the amount from the arguments.
        context: Name of an argument whose members are added to the context, or a function that returns such members.

    Raises:
        ConfigurationError: An option has an invalid type, two options contradict each other, or the amount would be
            hidden or omitted.
    """

    def __init__(
        self,
        *,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        redact: Iterable[str | re.Pattern[str]] = (),
        ignore: Iterable[str] = (),
        amount: AmountFrom | None = None,
        context: ContextFrom | None = None,
    ) -> None:
        self.include = None if include is None else _names("include", include)
        self.exclude = _names("exclude", exclude)
        self.redact, self._patterns = _names_and_patterns(redact)
        self.ignore = _names("ignore", ignore)
        self.amount, self._computed_amount = _source(AMOUNT, amount)
        self.context, self._computed_context = _source("context", context)
        if self.amount == AMOUNT:
            self.amount = None
        self.reserved = None if self.amount is None and self._computed_amount is None else AMOUNT
        self.visible = {AMOUNT, self.amount or AMOUNT}
        self.extra: frozenset[str] = frozenset()
        self.known: frozenset[str] | None = None
        for option in ("exclude", "redact", "ignore"):
            for name in sorted(self.visible & getattr(self, option)):
                raise ConfigurationError(
                    f"{option} contains {name!r}, the amount that is compared with max_amount; remove it "
                    f"from {option}"
                )
        for name in sorted((self.include or frozenset()) & (self.exclude | self.ignore)):
            raise ConfigurationError(
                f"{name!r} is in include and also in exclude or ignore; remove it from one of them"
            )

    @property
    def is_plain(self) -> bool:
        """True if no option hides, omits or adds a value."""
        hidden = self.exclude or self.redact or self._patterns or self.ignore
        derived = (self.amount, self._computed_amount, self.context, self._computed_context)
        return self.include is None and not hidden and all(each is None for each in derived)

    @cached_property
    def names(self) -> SecretRule:
        """Rule that finds secrets by the names and the form of values.

        It is created on first use, because importing its module compiles many patterns.
        """
        from toolgate._capture.redaction import SecretRule

        return SecretRule(self.redact, self._patterns)

    def fits(self, binder: Binder, function: Callable[..., Any]) -> Rules:
        """Check that `function` has all arguments that the options name, and return a copy of these rules for it.

        Raises:
            ConfigurationError: An option names an argument that the function does not have.
        """
        label = getattr(function, "__qualname__", repr(function))
        fitted = copy.copy(self)
        fitted.known = binder.names()
        fitted.extra = extra = frozenset() if binder.extra is None else frozenset((binder.extra,))
        for option in ("include", "exclude", "ignore"):
            unknown = (getattr(self, option) or frozenset()) - binder.names() - extra
            if unknown and not extra:
                raise ConfigurationError(
                    f"{option} names {min(unknown)!r}, but {label!r} has no such argument"
                )
        for computed in (self._computed_amount, self._computed_context):
            if computed is not None and not extra:
                computed.refuse_unknown(binder.names(), label)
        for option, name in (("context", self.context), ("amount", self.amount)):
            if name is not None and not binder.is_single(name):
                raise ConfigurationError(f"{option} names {name!r}, but {label!r} has no such argument")
        if self.reserved is not None and AMOUNT in binder.names():
            given = f"names {self.amount!r}" if self.amount is not None else "is a function"
            raise ConfigurationError(
                f"the option amount {given}, but {label!r} also has an argument 'amount'; rename one of "
                "them, because only one can be compared with max_amount"
            )
        return fitted

    def leaves_out(self, name: str) -> bool:
        """Return True if the argument `name` is not sent to the gateway."""
        return self._is_named_in(self.ignore, name) and name not in self.visible

    def hides(self, name: str) -> bool:
        """Return True if the gateway receives a digest instead of the value of the argument `name`."""
        if name in self.visible:
            return False
        if self.include is not None and not self._is_named_in(self.include, name):
            return True
        return (bool(self.exclude) and self._is_named_in(self.exclude, name)) or self.names.hides(name)

    def derive(self, arguments: Mapping[Any, Any]) -> dict[str, Any]:
        """Return the values that the options `amount` and `context` add to the checked arguments.

        Raises:
            ConfigurationError: The `amount` or `context` function failed, or an added value has the name of an
                argument.
        """
        if self.reserved is not None and AMOUNT in arguments:
            raise ConfigurationError(
                f"the context already contains {AMOUNT!r}; remove {AMOUNT!r} from the context, or remove "
                "the option amount="
            )
        if self.amount is not None and self.amount not in arguments:
            raise ConfigurationError(
                f"the option amount is {self.amount!r}, but the context contains no value with this name; "
                "add it to the context"
            )
        derived: dict[str, Any] = {}
        if self.context is not None or self._computed_context is not None:
            derived = self._members(arguments)
        for name in sorted(derived):
            if name in arguments or name == self.reserved:
                raise ConfigurationError(
                    f"the context= function returned {name!r}, but the call already has an argument with "
                    "this name; rename it in the function"
                )
        if self._computed_amount is not None:
            derived[AMOUNT] = self._computed_amount.amount_of(arguments)
        return derived

    def changeable(self, arguments: Mapping[Any, Any]) -> frozenset[str]:
        """Return the names of the arguments that the check uses and that are mutable."""
        from toolgate._capture.serializer import is_immutable

        found = set[str]()
        for name, value in arguments.items():
            if not is_immutable(value) and (
                not self.leaves_out(name) or self.derives_from(frozenset((name,)))
            ):
                found.add(name)
        return frozenset(found)

    def derives_from(self, names: frozenset[str]) -> bool:
        """Return True if the `amount` or `context` function, or the option `context`, reads one of these arguments."""
        if self.context in names:
            return True
        computed = (self._computed_amount, self._computed_context)
        return any(each is not None and each.reads(names) for each in computed)

    def _members(self, arguments: Mapping[Any, Any]) -> dict[str, Any]:
        computed = self._computed_context
        if computed is not None:
            given = computed.of(arguments)
            found = _members_of(given)
            if found is None:
                raise computed.wrong(given, "a mapping of names to values")
            return found
        source = None if self.context is None else arguments.get(self.context)
        found = {} if source is None else _members_of(source)
        if found is None:
            raise ConfigurationError(
                f"context names {self.context!r}, which is of type {type(source).__name__!r} in this call; "
                "pass a mapping, a dataclass or a model"
            )
        return found

    def _is_named_in(self, names: frozenset[str], name: str) -> bool:
        # If an option names the `**kwargs` parameter, the option applies to every argument that this parameter
        # receives.
        if name in names:
            return True
        return bool(names & self.extra) and self.known is not None and name not in self.known


class _Computed:
    """Wrapper of a function that was passed as the option `amount` or `context`.

    The function is called with keyword arguments: the tool's arguments whose names match its parameters.

    Args:
        option: `amount` or `context`, for error messages.
        function: Synchronous function that accepts keyword arguments.

    Raises:
        ConfigurationError: The function cannot be called with keyword arguments alone, or is asynchronous.
    """

    def __init__(self, option: str, function: Callable[..., Any]) -> None:
        self._function = function
        self._label = f"{option}={getattr(function, '__qualname__', type(function).__qualname__)!r}"
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(f"{self._label} is asynchronous; use a synchronous function")
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{self._label} has no readable signature; use a function with named parameters"
            ) from error
        for each in parameters:
            if each.kind is Parameter.VAR_POSITIONAL or each.kind is Parameter.POSITIONAL_ONLY:
                raise ConfigurationError(
                    f"{self._label} has the positional-only or variadic parameter {each.name!r}, but "
                    "Toolgate passes arguments by name; use ordinary parameters"
                )
        self._takes_all = any(each.kind is Parameter.VAR_KEYWORD for each in parameters)
        named = [each for each in parameters if each.kind is not Parameter.VAR_KEYWORD]
        self._takes = frozenset(each.name for each in named)
        self._needs = frozenset(each.name for each in named if each.default is Parameter.empty)

    def refuse_unknown(self, names: frozenset[str], label: str) -> None:
        """Check that the function requires only arguments that the tool has.

        Args:
            names: Names of the tool's arguments.
            label: Name of the tool, for the error message.

        Raises:
            ConfigurationError: The function requires an argument that the tool does not have.
        """
        if missing := self._needs - names:
            raise ConfigurationError(
                f"{self._label} has the required parameter {min(missing)!r}, but {label!r} has no such "
                "argument; rename the parameter or give it a default"
            )

    def reads(self, names: frozenset[str]) -> bool:
        """Return True if at least one of these arguments is passed to the function."""
        return bool(names) and (self._takes_all or not self._takes.isdisjoint(names))

    def of(self, arguments: Mapping[Any, Any]) -> Any:
        """Call the function with the tool's arguments whose names match its parameters, and return the result.

        Raises:
            ConfigurationError: A required argument is missing, or the function raised an exception.
        """
        if missing := self._needs - set(arguments):
            raise ConfigurationError(
                f"{self._label} needs the argument {min(missing)!r}, which this call does not have; give "
                "the parameter a default"
            )
        given = {
            name: value
            for name, value in arguments.items()
            if type(name) is str and (self._takes_all or name in self._takes)
        }
        try:
            return self._function(**given)
        except Exception as error:
            raise ConfigurationError(
                f"{self._label} raised {type(error).__name__}; the call was not checked, and the tool did not run"
            ) from error

    def amount_of(self, arguments: Mapping[Any, Any]) -> int | float | Decimal:
        """Call the function as `of` does, and return its result, which must be a number.

        Raises:
            ConfigurationError: As for `of`, or the result is not a number.
        """
        from decimal import Decimal

        value = self.of(arguments)
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            raise self.wrong(value, "a number")
        return value

    def wrong(self, value: object, cure: str) -> ConfigurationError:
        """Return the error for a function of the user that returned `value`, which has a wrong type.

        The message contains the type of the value, but not the value. It ends with "return" and `cure`, the description
        of a correct result.
        """
        return ConfigurationError(f"{self._label} returned {type(value).__name__!r}; return {cure}")


def _members_of(source: object) -> dict[str, Any] | None:
    """Return the members of a mapping, dataclass or model, or None for anything else."""
    from toolgate._capture.serializer import fields_of

    kind: Any = type(source)
    try:
        if issubclass(kind, dict):
            found: dict[str, Any] | None = dict(dict.items(source))  # type: ignore[arg-type]  # `source` is a dict
        else:
            found = dict(source) if issubclass(kind, Mapping) else fields_of(source)  # type: ignore[call-overload]  # `source` is a mapping
    except Exception:  # noqa: BLE001 - a class of the application may raise anything when it is read
        return None
    return None if found is None or any(type(name) is not str for name in found) else found


def _source(option: str, source: Any) -> tuple[str | None, _Computed | None]:
    """Return (name, None) for the name of an argument, (None, function) for a function, or (None, None) for None."""
    if source is None or isinstance(source, str):
        return source, None
    if not callable(source):
        raise ConfigurationError(f"{option} is {source!r}; use an argument's name or a function")
    return None, _Computed(option, source)


def _names(option: str, names: Iterable[str]) -> frozenset[str]:
    given: tuple[object, ...] = (None,) if isinstance(names, str) else tuple(names)
    found = frozenset(name for name in given if isinstance(name, str))
    if len(found) != len(set(given)):
        raise ConfigurationError(f"{option} is {names!r}; pass a collection of names, like {{'body'}}")
    return found


def _names_and_patterns(
    redact: Iterable[str | re.Pattern[str]],
) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    given: tuple[Any, ...] = (None,) if isinstance(redact, (str, re.Pattern)) else tuple(redact)
    patterns = tuple(each for each in given if isinstance(each, re.Pattern))
    names = frozenset(each for each in given if isinstance(each, str))
    if len(names) + len(set(patterns)) != len(set(given)) or any(
        isinstance(each.pattern, bytes) for each in patterns
    ):
        raise ConfigurationError(
            f"redact is {redact!r}; pass a collection of names and of patterns of text, like "
            "{'iban', re.compile('DE[0-9]{20}')}"
        )
    return names, patterns
