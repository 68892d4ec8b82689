"""Arguments → context: what the gateway compares, an approver reads and the log keeps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolgate._capture.binding import free_name
from toolgate._capture.fitting import fit
from toolgate._capture.forms import forms
from toolgate._capture.hiding import Hider
from toolgate._capture.jsonsafe import JsonSafe
from toolgate._capture.jsontext import Json, dumps
from toolgate._capture.rules import AMOUNT, Rules
from toolgate._capture.state import extra
from toolgate.errors import ConfigurationError

__all__ = ["Captured", "Rules", "capture", "copy_context"]

# Data, other than a client or a session from which the whole process may be reachable.
_CONTAINERS: Final = frozenset((dict, list, tuple, set, frozenset))


@dataclass(frozen=True, slots=True)
class Captured:
    """One call's context.

    Attributes:
        context: JSON-safe, within the gateway's size.
        hidden: The forms of what the context hides, to be kept out of error messages as well.
        patterns: Further forms to be kept out of them.
        too_large: The first argument that is a container of more objects than are digested.
    """

    context: dict[str, Json]
    hidden: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()
    too_large: str | None = None


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


def capture(
    arguments: Mapping[Any, Any],
    rules: Rules,
    hider: Hider,
    derived: Mapping[str, Any] | None = None,
) -> Captured:
    """Make the context of a call; never raises, whatever the arguments are.

    Args:
        arguments: The call's arguments by name; a name that is no string becomes text.
        rules: What of them is shown.
        hider: Makes the digests of what is not.
        derived: What `Rules.derive` says stands beside them.
    """
    safe = JsonSafe(hider, rules.names)
    context: dict[str, Json] = {}
    too_large: str | None = None
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
            context.update(_beside(name, value, safe))
        else:
            context[safe.name(name)] = safe.convert(value)
        if too_large is None and safe.is_cut and type(value) in _CONTAINERS:
            too_large = name
    if rules.amount is not None and rules.amount in context:
        context[AMOUNT] = context[rules.amount]
    for name, value in (derived or {}).items():
        if name == AMOUNT:
            context[name] = safe.show(value)
        else:
            context[safe.name(name)] = safe.member(name, value)
    return Captured(fit(context, hider), tuple(sorted(set(safe.hidden))), rules.names.patterns, too_large)


def _beside(name: str, value: object, safe: JsonSafe) -> dict[str, Json]:
    """What a visible value has beside what is shown of it, as a digest."""
    try:
        more = {} if type(value).__module__ == "builtins" else extra(value)
    except Exception:  # noqa: BLE001 - properties of other people's classes may do anything
        return {f"${name}": safe.unreadable(value)}
    return {f"${name}": safe.digest(more)} if more else {}


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
