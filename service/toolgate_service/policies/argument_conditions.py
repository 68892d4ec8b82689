"""Conditions in CEL that cover the arguments of given calls, and as few other arguments as possible."""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from toolgate_service.approvals.policy import DIGEST_MEMBER
from toolgate_service.core.strict_json import Json

#: maximum number of different values of an argument that a condition lists
MAX_VALUES = 10
#: smallest positive integer whose double also stands for a larger integer
_TOO_LARGE = 2**53

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: words that are not identifiers in CEL
_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "null",
        "namespace",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)


class NotCoverable(Exception):
    """Error for approved calls from which no rule can be suggested. The message contains the reason."""


def cover_arguments(calls: Sequence[Mapping[str, Json]]) -> str:
    """Return a condition that is true for the arguments of all given calls.

    The condition is true only for calls with exactly the same argument names, where each argument has one of the values
    that it has in the given calls. If an argument has more than `MAX_VALUES` different values and all are numbers, the
    numbers between the smallest and the largest are included. As in all conditions, a number that is not an integer is
    rounded to the nearest double before it is compared.

    Raises:
        NotCoverable: The calls have different argument names, or the condition cannot list the values of an argument,
            for example because there are too many or because they have different types.
    """
    names = set(calls[0])
    if any(set(call) != names for call in calls):
        raise NotCoverable("the calls have different argument names")
    parts = [f"size(args) == {len(names)}"]
    for name in sorted(names):
        is_identifier = _IDENTIFIER.fullmatch(name) is not None and name not in _RESERVED
        reference = f"args.{name}" if is_identifier else f"args[{quote(name)}]"
        parts.append(f"has({reference})" if is_identifier else f"{quote(name)} in args")
        parts += _cover_values(name, reference, [call[name] for call in calls])
    return " && ".join(parts)


def _cover_values(name: str, reference: str, values: Sequence[Json]) -> Sequence[str]:
    kinds = {_kind(name, value) for value in values}
    if len(kinds) > 1:
        raise NotCoverable(f"argument {name!r} has values of the types {' and '.join(sorted(kinds))}")
    if kinds == {"number"}:
        return _cover_numbers(reference, [_number(name, value) for value in values])
    literals = list(dict.fromkeys(map(_literal, values)))
    if len(literals) > MAX_VALUES:
        raise NotCoverable(f"argument {name!r} has more than {MAX_VALUES} different values")
    return [_equals_one(reference, literals)]


def _cover_numbers(reference: str, numbers: Sequence[int | float]) -> Sequence[str]:
    is_whole = all(isinstance(number, int) for number in numbers)
    # Write either all numbers of the list as integers or all as doubles.
    literals = [str(number) if is_whole else repr(float(number)) for number in sorted(set(numbers))]
    if len(literals) <= MAX_VALUES:
        return [_equals_one(reference, literals)]
    return [f"{reference} >= {literals[0]}", f"{reference} <= {literals[-1]}"]


def _equals_one(reference: str, literals: Sequence[str]) -> str:
    return (
        f"{reference} == {literals[0]}" if len(literals) == 1 else f"{reference} in [{', '.join(literals)}]"
    )


def _kind(name: str, value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | Decimal():
            return "number"
        case str():
            return "string"
        case dict() if DIGEST_MEMBER in value and not any(
            isinstance(member, dict | list | Decimal) for member in value.values()
        ):
            return "redacted value"
    raise NotCoverable(f"argument {name!r} has lists or objects as values")


def _number(name: str, value: Json) -> int | float:
    """Return a number as an int, or as a float whose decimal representation is exactly the number.

    Raises:
        NotCoverable: The number has too many digits.
    """
    if not isinstance(value, int | Decimal):
        raise TypeError(f"{value!r} is not a number")
    if value == int(value):
        whole = int(value)
        if abs(whole) < _TOO_LARGE:
            return whole
    elif Decimal(repr(float(value))) == value:
        return float(value)
    raise NotCoverable(f"argument {name!r} has numbers with too many digits to compare them exactly")


def _literal(value: Json) -> str:
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{quote(key)}: {_literal(member)}' for key, member in sorted(value.items()))}}}"
        )
    return quote(str(value))


def quote(text: str) -> str:
    """Return a text as a string literal of CEL, which supports all escape sequences in the output of `json.dumps`."""
    return json.dumps(text, ensure_ascii=False)
