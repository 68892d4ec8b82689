"""Arguments → context: what the gateway compares, an approver reads and the log keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolgate.capture.binding import Binder, free_name
from toolgate.capture.fitting import fit
from toolgate.capture.forms import forms
from toolgate.capture.hiding import Hider
from toolgate.capture.jsonsafe import JsonSafe
from toolgate.capture.jsontext import Json, dumps
from toolgate.capture.redaction import NameRule
from toolgate.capture.state import extra
from toolgate.errors import ConfigurationError

__all__ = ["Captured", "Rules", "capture", "copy_context"]

_AMOUNT: Final = "amount"


@dataclass(frozen=True, slots=True)
class Captured:
    """One call's context.

    Attributes:
        context: JSON-safe, within the gateway's size.
        hidden: The forms of what the context hides, to be kept out of error messages as well.
    """

    context: dict[str, Json]
    hidden: tuple[str, ...] = ()


class Rules:
    """What of a call's arguments is shown, hidden, left out or taken as the amount.

    Args:
        exclude: Arguments that are hidden: bound by their digest, shown to nobody.
        redact: More names to hide wherever they occur, also inside arguments.
        unbound: Arguments that are left out altogether: a call may differ in them after approval.
        amount: The argument whose value is also sent as `amount`, to be compared with `max_amount`.

    Raises:
        ConfigurationError: If a collection is a string or a name is none, or if the amount is to be hidden.
    """

    def __init__(
        self,
        *,
        exclude: Iterable[str] = (),
        redact: Iterable[str] = (),
        unbound: Iterable[str] = (),
        amount: str | None = None,
    ) -> None:
        self.exclude = _names("exclude", exclude)
        self.redact = _names("redact", redact)
        self.unbound = _names("unbound", unbound)
        self.amount = None if amount == _AMOUNT else amount
        self.reserved = None if self.amount is None else _AMOUNT
        self.names = NameRule(self.redact)
        self.visible = {_AMOUNT, amount or _AMOUNT}
        for option in ("exclude", "redact", "unbound"):
            for name in sorted(self.visible & getattr(self, option)):
                raise ConfigurationError(
                    f"{option} names {name!r}, which is compared with max_amount; leave it out of {option}"
                )

    def fits(self, binder: Binder, function: Callable[..., Any]) -> None:
        """Refuse rules that name arguments the function does not have.

        Raises:
            ConfigurationError: Naming the option, the argument and the function.
        """
        label = getattr(function, "__qualname__", repr(function))
        for option in ("exclude", "unbound"):
            unknown = getattr(self, option) - binder.names() - {binder.extra}
            if unknown and binder.extra is None:
                raise ConfigurationError(
                    f"{option} names {min(unknown)!r}, but {label!r} has no such argument"
                )
        if self.amount is None:
            return
        if not binder.is_single(self.amount):
            raise ConfigurationError(f"amount names {self.amount!r}, but {label!r} has no such argument")
        if _AMOUNT in binder.names():
            raise ConfigurationError(
                f"amount names {self.amount!r}, but {label!r} also has an argument 'amount'; "
                "rename one: only one of them can be compared with max_amount"
            )

    def leaves_out(self, name: str) -> bool:
        """Whether the argument is not sent at all."""
        return name in self.unbound and name not in self.visible

    def hides(self, name: str) -> bool:
        """Whether the argument is sent as a digest."""
        return name not in self.visible and (name in self.exclude or self.names.hides(name))


def copy_context(context: object) -> dict[Any, Any]:
    """A copy of the context someone wrote.

    Raises:
        ConfigurationError: If it is no mapping, naming its class.
    """
    if not isinstance(context, Mapping):
        raise ConfigurationError(
            f"context is of {type(context)!r}; pass a mapping of names to values, like {{'table': 'users'}}"
        )
    return dict(context)


def capture(arguments: Mapping[Any, Any], rules: Rules, hider: Hider) -> Captured:
    """Make the context of a call; never raises, whatever the arguments are.

    Args:
        arguments: The call's arguments by name; a name that is no string becomes text.
        rules: What of them is shown.
        hider: Makes the digests of what is not.
    """
    safe = JsonSafe(hider, rules.names)
    context: dict[str, Json] = {}
    if not all(type(name) is str for name in arguments):
        arguments = _with_text_names(arguments, safe)
    for name, value in arguments.items():
        if rules.leaves_out(name):
            # Only strings: the rest is often a session or a client, whose repr may cost much.
            safe.hidden.extend(forms(value) if type(value) is str else ())
        elif value is not None and rules.hides(name):
            context[safe.name(name)] = safe.hide(value)
        elif name in rules.visible:
            context[name] = safe.show(value)
            more = {} if type(value).__module__ == "builtins" else extra(value)
            context.update({f"${name}": safe.digest(more)} if more else {})
        else:
            context[safe.name(name)] = safe.convert(value)
    if rules.amount is not None and rules.amount in context:
        context[_AMOUNT] = context[rules.amount]
    return Captured(fit(context, hider), tuple(sorted(set(safe.hidden))))


def _with_text_names(arguments: Mapping[Any, Any], safe: JsonSafe) -> dict[str, Any]:
    named = {name: value for name, value in arguments.items() if type(name) is str}
    others: list[tuple[str, str, Any]] = []
    for name, value in arguments.items():
        if type(name) is not str:
            text = str.__str__(name) if issubclass(type(name), str) else safe.convert(name)
            plain = text if isinstance(text, str) else dumps(text, canonical=True)
            others.append((plain, type(name).__qualname__, value))
    # Sorted, so that the order of names never changes one; 1 and "1" both stay.
    for plain, _, value in sorted(others, key=lambda other: other[:2]):
        named[free_name(plain, named)] = value
    return named


def _names(option: str, names: Iterable[str]) -> frozenset[str]:
    given: tuple[object, ...] = (None,) if isinstance(names, str) else tuple(names)
    found = frozenset(name for name in given if isinstance(name, str))
    if len(found) != len(set(given)):
        raise ConfigurationError(f"{option} is {names!r}; pass a collection of names, like {{'body'}}")
    return found
