"""Strict JSON parser that does not round numbers, the matching serializer, and canonical JSON.

The gateway compares amounts and binds approvals to the arguments of a call. It must therefore reject texts that two
JSON parsers could interpret differently. Python's parser is not strict enough: it accepts duplicate members, ``NaN``
and lone surrogates, and rounds numbers to binary floats.

An approval is valid for the canonical JSON of the arguments. The format is RFC 8785 with one change: numbers keep their
exact decimal value. ``1``, ``1.0`` and ``1e0`` have the same canonical text. ``9007199254740993`` and
``9007199254740992`` have different ones. Unicode is not normalized. A missing context, null and ``{}`` have the same
canonical text.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from json.encoder import encode_basestring
from typing import NoReturn, TypeAlias

from toolgate_service.core.clock import wire
from toolgate_service.core.errors import FieldErrors

Json: TypeAlias = "bool | int | Decimal | str | list[Json] | dict[str, Json] | None"

MAX_DIGITS = 400
MAX_EXPONENT = 400
#: maximum number of values in one JSON text; arrays and objects count as values, member names do not
MAX_NODES = 5_000
#: maximum depth of a request body whose canonical form is computed as a whole
MAX_DEPTH = 100
#: maximum number of digits that are added to a JSON text when its numbers are written without exponents
MAX_GROWTH = 64 * 1024
#: minimum length of a value in bytes: one digit and a comma. A text of at most this many bytes per permitted value
#: cannot contain too many values, so its values are not counted.
_BYTES_PER_NODE = 2
#: length in bytes up to which a JSON text is not checked for growth. Numbers grow when they are written without an
#: exponent: at worst, the 6 bytes `1e400,` become 401 digits and a comma. The numbers of such a short text therefore
#: cannot grow by more than `MAX_GROWTH`.
_SMALL = 900


class InvalidJson(ValueError):
    """Error for a text that is not strict JSON. The error response contains the message."""


class TooManyValues(InvalidJson):
    """Error for a JSON text that contains too many values."""


def loads(raw: bytes, *, max_nodes: int = MAX_NODES) -> Json:
    """Parse a JSON text. Integers become ``int``, and other numbers become exact ``Decimal`` values.

    The values are counted before the text is parsed, so that a text with very many small values is rejected quickly.

    Raises:
        InvalidJson: The text is not UTF-8 or not JSON. Also for duplicate members, ``NaN`` and ``Infinity``, NUL
            characters, lone surrogates, too deep nesting, a number with more than 400 digits or an exponent beyond
            ±400, and numbers that together grow by more than 64 KiB when they are written without exponents.
        TooManyValues: The text contains more than `max_nodes` values.
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
    # In valid UTF-8 JSON, only a `\u` escape can produce NUL or a lone surrogate, so other texts need no check.
    if b"\\u" in raw:
        _refuse_bad_text(value)
    return value


def read_object(raw: bytes, *, max_nodes: int = MAX_NODES) -> dict[str, Json]:
    """Parse a request body that must be a JSON object.

    Raises:
        FieldErrors: The body is not strict JSON or not an object. The error names the field ``body``.
    """
    try:
        value = loads(raw, max_nodes=max_nodes)
    except InvalidJson as error:
        raise FieldErrors({"body": [str(error)]}) from None
    if not isinstance(value, dict):
        raise FieldErrors({"body": ["The body must be a JSON object"]})
    return value


def refuse_deep(value: dict[str, Json]) -> None:
    """Verify that a request body is not nested so deeply that `canonical` exceeds the recursion limit of Python.

    Raises:
        FieldErrors: The body is nested more than `MAX_DEPTH` levels deep. The error names the field ``body``.
    """
    if deeper_than(MAX_DEPTH, value):
        raise FieldErrors({"body": ["The body is nested too deeply"]})


def dumps(value: object, *, sort_keys: bool = False) -> str:
    """Serialize a value as compact JSON, without rounding numbers, and with timestamps in the format of the API.

    Numbers are written without exponents and superfluous zeros, so ``1``, ``1.0`` and ``1e0`` result in the same text.
    With `sort_keys`, members are sorted by UTF-16 code units, as in RFC 8785.

    Raises:
        TypeError: The value contains an object of a type that JSON cannot represent.
    """
    parts: list[str] = []
    _write(value, parts, sort_keys=sort_keys)
    return "".join(parts)


def limit_nodes(raw: bytes, most: int) -> None:
    """Reject a JSON text that contains more than `most` values, without parsing it.

    Invalid JSON is not detected.

    Raises:
        TooManyValues: The text contains more values. Arrays and objects count as values, member names do not.
    """
    if len(raw) <= _BYTES_PER_NODE * most:
        return
    if 1 + raw.count(b",") + raw.count(b"[") + raw.count(b"{") <= most:
        return
    # Remove the strings before counting, because commas and brackets in strings are not separators.
    unescaped = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A valid text has at most four quotation marks per value: two for the member name, and two for a string value. A
    # text with more quotation marks therefore has too many values, or is invalid.
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
        # Parse the text again with the decoder. Unlike the scanner, the decoder accepts leading white space, and
        # reports the position of invalid JSON.
        value = decoder.decode(text)
        return value
    rest = text[end:].lstrip(" \t\r\n")
    if rest:
        raise json.JSONDecodeError("Extra data", text, len(text) - len(rest))
    return value


def loads_own(text: str) -> Json:
    """Parse a JSON text that `dumps` wrote. Its numbers may have more digits than `loads` accepts."""
    value: Json = _OWN_DECODER.decode(text)
    return value


def deeper_than(levels: int, value: Json) -> bool:
    """Return whether arrays and objects are nested more than `levels` deep. The depth of ``{}`` is 1."""
    # Do not use recursion, because the decoder accepts nesting that is deeper than Python's recursion limit.
    containers = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        if not containers:
            return False
        containers = [
            item for container in containers for item in _items(container) if isinstance(item, (dict, list))
        ]
    return bool(containers)


def has_more_nodes(value: Json, most: int) -> bool:
    """Return whether a parsed JSON value contains more than `most` values. The value itself counts as one."""
    count, left = 1, [value]
    while left and count <= most:
        container = left.pop()
        if isinstance(container, dict | list):
            count += len(container)
            left += _items(container)
    return count > most


def has_whole_decimals(value: Json) -> bool:
    """Return whether an object or array contains a whole number with a decimal point or exponent, such as 1.0 or 1e2.

    The number may be nested at any depth. Numbers without a decimal point or exponent, such as 1, do not count.
    """
    containers = [value] if isinstance(value, dict | list) else []
    while containers:
        for item in _items(containers.pop()):
            if isinstance(item, Decimal):
                if item == item.to_integral_value():
                    return True
            elif isinstance(item, dict | list):
                containers.append(item)
    return False


def dumps_typed(value: Json) -> str:
    """Serialize a parsed JSON value in such a way that `loads_own` returns numbers of the same types.

    The text equals that of `canonical`, except that decimal numbers without a fraction end in ``.0``: ``1.0`` and
    ``1e0`` result in ``1.0``, and ``1`` in ``1``.
    """
    if isinstance(value, dict):
        members = (f"{encode_basestring(name)}:{dumps_typed(value[name])}" for name in _in_order(value))
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(dumps_typed, value))}]"
    if isinstance(value, Decimal):
        text = plain_number(value)
        if "." not in text:
            return f"{'-' if value.is_signed() and not value else ''}{text}.0"
        return text
    return _scalar(value)


def plain_number(number: Decimal) -> str:
    """Format a finite decimal number without exponent and superfluous zeros. Minus zero becomes ``0``."""
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in {"-0", ""} else text


def _write(value: object, parts: list[str], *, sort_keys: bool) -> None:
    # Check for strings first, because they are the most frequent values.
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
    raise TypeError(f"{type(value).__name__!r} cannot be represented in JSON")


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


def _in_order(value: Mapping[str, object]) -> list[str]:
    names = sorted(value)
    # For ASCII names, the order by code points equals the order by UTF-16 code units.
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
        raise InvalidJson(f"The exponent of a number is not between -{MAX_EXPONENT} and {MAX_EXPONENT}")
    return Decimal(text)


class _Numbers:
    """Parser for the numbers of one JSON text.

    Numbers with an exponent become longer when they are written out: 1e3 becomes 1000. The parser limits the total
    number of digits that are added in this way, so that a short text cannot become a very long one.
    """

    def __init__(self) -> None:
        self._left = MAX_GROWTH

    def decimal(self, text: str) -> Decimal:
        number = _decimal(text)
        # Limit the digits that are added: without an exponent, `1e400` and `1e-400` each have 400 zeros, so a short
        # text could become very long.
        if "e" in text or "E" in text:
            self._left -= abs(number.adjusted())
            if self._left < 0:
                raise InvalidJson(
                    f"Without exponents, the numbers of the body would be more than {MAX_GROWTH} digits longer; use smaller exponents"
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
    # Use `scan_once`, the function that `JSONDecoder.decode` calls, although the type stubs do not contain it.
    return decoder.scan_once, decoder  # type: ignore[attr-defined]  # missing in the type stubs


_OWN_DECODER = json.JSONDecoder(parse_float=Decimal)
_SMALL_READER = _reader(None)


def canonical(context: Mapping[str, object] | None) -> str:
    """Return the canonical JSON text of the context of a call, or ``{}`` for None."""
    return dumps(dict(context), sort_keys=True) if context else "{}"


def digest(canonical_text: str) -> str:
    """Return the SHA-256 digest of a canonical JSON text as hexadecimal digits."""
    return hashlib.sha256(canonical_text.encode()).hexdigest()
