"""JSON read strictly and written exactly (decisions §2).

Python's own reader accepts duplicate members, ``NaN`` and lone surrogates, and rounds numbers to binary floats. A
gateway that compares amounts and binds approvals to arguments may do none of that: two readers of one text must never
see two different calls.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from json.encoder import encode_basestring
from typing import NoReturn, TypeAlias

from toolgate_service.clock import wire

Json: TypeAlias = "bool | int | Decimal | str | list[Json] | dict[str, Json] | None"

MAX_DIGITS = 400
MAX_EXPONENT = 400
#: values in one text, containers included and member names not
MAX_NODES = 5_000
#: characters by which the numbers of a text may grow when they are written without exponents
MAX_GROWTH = 64 * 1024
#: The shortest value takes one byte and a comma: a text of at most this many bytes per allowed value needs no counting.
_BYTES_PER_NODE = 2
#: Bytes of a text whose numbers cannot grow by more than `MAX_GROWTH`: `1e400,` becomes 401 digits.
_SMALL = 900


class InvalidJson(ValueError):
    """The text is not JSON as the gateway reads it; the message says why, for the caller."""


class TooManyValues(InvalidJson):
    """The text holds more values than the caller allows."""


def loads(raw: bytes, *, max_nodes: int = MAX_NODES) -> Json:
    """Read a JSON text: integers as ``int``, every other number as an exact ``Decimal``.

    The values are counted before anything is parsed, so that a text of many small values costs no more than a large
    string.

    Args:
        raw: the text.
        max_nodes: the largest number of values, containers included and member names not.

    Raises:
        InvalidJson: not UTF-8, not JSON, duplicate members, ``NaN`` or ``Infinity``, NUL or lone surrogates in a
            string, a number of more than 400 digits or an exponent beyond ±400, numbers that grow by more than 64 KiB
            when written without exponents, nesting beyond what can be read.
        TooManyValues: more than `max_nodes` values.
    """
    limit_nodes(raw, max_nodes)
    try:
        value = _whole(raw.decode("utf-8"), _SMALL_READER if len(raw) <= _SMALL else _reader(_Numbers()))
    except UnicodeDecodeError:
        raise InvalidJson("The body is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InvalidJson(f"The body is not valid JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise InvalidJson("The body is nested too deeply") from None
    # Only an escape can bring NUL or half a surrogate pair past the decoder: most bodies have none and skip the walk.
    if b"\\u" in raw:
        _refuse_bad_text(value)
    return value


def dumps(value: object, *, sort_keys: bool = False) -> str:
    """Write a value as compact JSON, decimals as numbers with their exact value, moments as the API shows them.

    Numbers are written without exponent and superfluous zeros: ``1``, ``1.0`` and ``1e0`` are one text.

    Args:
        value: made of None, bool, int, float, Decimal, str, datetime, lists, tuples and dicts with string keys.
        sort_keys: order members by UTF-16 code units, as RFC 8785 does.

    Raises:
        TypeError: something in the value has no JSON form.
    """
    parts: list[str] = []
    _write(value, parts, sort_keys=sort_keys)
    return "".join(parts)


def limit_nodes(raw: bytes, most: int) -> None:
    """Refuse a text of too many values before it is parsed. A text that is not JSON may pass.

    Args:
        raw: the text.
        most: the largest number of values, containers included and member names not.

    Raises:
        TooManyValues: it has more.
    """
    if len(raw) <= _BYTES_PER_NODE * most:
        return
    if 1 + raw.count(b",") + raw.count(b"[") + raw.count(b"{") <= most:
        return
    # Commas and brackets inside strings do not count: drop the strings.
    unescaped = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Each value has at most one name and is at most one string.
    if unescaped.count(b'"') <= 4 * most:
        outside = b'"'.join(unescaped.split(b'"')[::2]).translate(None, b" \t\r\n")
        empty = outside.count(b"[]") + outside.count(b"{}")
        if 1 + outside.count(b",") + outside.count(b"[") + outside.count(b"{") - empty <= most:
            return
    raise TooManyValues(f"The body has more than {most} JSON values")


def _whole(text: str, reader: "tuple[Scanner, json.JSONDecoder]") -> Json:
    value: Json
    scan, decoder = reader
    try:
        value, end = scan(text, 0)
    except StopIteration:
        # White space in front of it, or no JSON: the decoder finds out, and its message names the place.
        value = decoder.decode(text)
        return value
    rest = text[end:].lstrip(" \t\r\n")
    if rest:
        raise json.JSONDecodeError("Extra data", text, len(text) - len(rest))
    return value


def loads_own(text: str) -> Json:
    """Read a text that `dumps` wrote: written out, a number may have more digits than `loads` accepts from others."""
    value: Json = _OWN_DECODER.decode(text)
    return value


def deeper_than(levels: int, value: Json) -> bool:
    """Say whether arrays and objects nest deeper than so many levels: a scalar has none, ``{}`` has one."""
    # Level by level and not by recursion: the decoder reads deeper than Python's stack lets a function go.
    containers = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not containers:
            return False
        containers = [
            item for container in containers for item in _items(container) if isinstance(item, (dict, list))
        ]
    return bool(containers)


def has_more_nodes(value: Json, most: int) -> bool:
    """Say whether a value and those inside it are more than `most`."""
    count, left = 1, [value]
    while left and count <= most:
        container = left.pop()
        if isinstance(container, dict | list):
            count += len(container)
            left += _items(container)
    return count > most


def plain_number(number: Decimal) -> str:
    """Write a finite decimal without exponent and superfluous zeros; minus zero is ``0``."""
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in {"-0", ""} else text


def _write(value: object, parts: list[str], *, sort_keys: bool) -> None:
    # Most values are texts.
    if type(value) is str:
        parts.append(encode_basestring(value))
    elif isinstance(value, dict):
        _write_object(value, parts, sort_keys=sort_keys)
    elif isinstance(value, (list, tuple)):
        _write_array(value, parts, sort_keys=sort_keys)
    else:
        parts.append(_scalar(value))


def _scalar(value: object) -> str:
    match value:
        case str():
            return encode_basestring(value)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Decimal():
            return plain_number(value)
        case float():
            return plain_number(Decimal(repr(value)))
        case datetime():
            return f'"{wire(value)}"'
    raise TypeError(f"{type(value).__name__!r} has no JSON form")


def _write_array(value: Sequence[object], parts: list[str], *, sort_keys: bool) -> None:
    parts.append("[")
    for index, item in enumerate(value):
        if index:
            parts.append(",")
        _write(item, parts, sort_keys=sort_keys)
    parts.append("]")


def _write_object(value: dict[str, object], parts: list[str], *, sort_keys: bool) -> None:
    names: Iterable[str] = _in_order(value) if sort_keys else value
    before = "{"
    for name in names:
        parts.append(f"{before}{encode_basestring(name)}:")
        _write(value[name], parts, sort_keys=sort_keys)
        before = ","
    parts.append("}" if value else "{}")


def _in_order(value: dict[str, object]) -> list[str]:
    names = sorted(value)
    # By code point it is the same order, unless some name goes beyond the first sixteen bits.
    return names if "".join(names).isascii() else sorted(value, key=_utf16)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


def _unique_members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InvalidJson(f"The member {name[:100]!r} appears more than once")
            seen.add(name)
    return members


def _items(container: dict[str, Json] | list[Json]) -> Iterable[Json]:
    return container.values() if isinstance(container, dict) else container


def _integer(text: str) -> int:
    _count_digits(text)
    return int(text)


def _count_digits(text: str) -> None:
    if len(text) - text.count("-") - text.count(".") > MAX_DIGITS:
        raise InvalidJson(f"A number has more than {MAX_DIGITS} digits")


def _decimal(text: str) -> Decimal:
    digits, _, exponent = text.lower().partition("e")
    _count_digits(digits)
    if exponent and (len(exponent) > MAX_DIGITS or abs(int(exponent)) > MAX_EXPONENT):
        raise InvalidJson(f"A number has an exponent beyond ±{MAX_EXPONENT}")
    return Decimal(text)


class _Numbers:
    """Reads the numbers of one text, and limits by how much their exponents make them grow."""

    def __init__(self) -> None:
        self._left = MAX_GROWTH

    def decimal(self, text: str) -> Decimal:
        number = _decimal(text)
        # Every exponent counts as zeros: `1e400` and `1e-400` are written with 400 of them.
        if "e" in text or "E" in text:
            self._left -= abs(number.adjusted())
            if self._left < 0:
                raise InvalidJson(
                    f"The numbers of the body, written without exponents, grow by more than {MAX_GROWTH} digits"
                )
        return number


def _constant(name: str) -> NoReturn:
    raise InvalidJson(f"{name} is not a JSON number")


def _refuse_bad_text(value: Json) -> None:
    left = [value]
    while left:
        match left.pop():
            case str() as text:
                _refuse_bad_string(text)
            case list() as items:
                left.extend(items)
            case dict() as members:
                left.extend(members)
                left.extend(members.values())


def _refuse_bad_string(text: str) -> None:
    if "\0" in text:
        raise InvalidJson("A string contains the NUL character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidJson("A string contains a lone surrogate") from None


Scanner: TypeAlias = Callable[[str, int], tuple[Json, int]]


def _reader(numbers: _Numbers | None) -> tuple[Scanner, json.JSONDecoder]:
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique_members,
        parse_float=_decimal if numbers is None else numbers.decimal,
        parse_int=_integer,
        parse_constant=_constant,
    )
    # What `decode` calls between its searches for white space; the types do not know it.
    return decoder.scan_once, decoder  # type: ignore[attr-defined]  # see above


_OWN_DECODER = json.JSONDecoder(parse_float=Decimal)
_SMALL_READER = _reader(None)
