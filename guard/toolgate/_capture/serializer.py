"""Immutable copies of arguments, which can be written as JSON, and keyed digests of such copies.

An argument that cannot be written as JSON causes an error that contains its name. The type of a value
is read with `type()`, and its content with the methods of the built-in types. Otherwise a class that overrides `items`,
`__int__` or `__class__` could show the approver a value that differs from the value that the tool uses.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import hashlib
import hmac
import math
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import MemberDescriptorType
from typing import Any, Final, TypeAlias
from uuid import UUID

from toolgate._capture.jsontext import Json, dumps
from toolgate.errors import ConfigurationError

__all__ = [
    "Extended",
    "Fingerprinter",
    "Freezer",
    "Frozen",
    "Secret",
    "UnsupportedArgumentError",
    "canonical_text",
    "fields_of",
    "is_immutable",
    "plain",
    "same",
    "same_arguments",
]

Frozen: TypeAlias = "bool | int | float | Decimal | str | bytes | list[Frozen] | dict[str, Frozen] | Secret | Extended | Opaque | None"

# Option that omits an argument from the check; error messages recommend it for an argument that is not JSON.
_LEAVE_OUT: Final = "ignore="
_CURE: Final = f"pass plain data, or add the argument's name to {_LEAVE_OUT} and add the important values with a context= function"

_MAX_VALUES: Final = 1_000_000
_MAX_CHARACTERS: Final = 100_000_000
_MAX_DEPTH: Final = 100
# The gateway rejects numbers with more than 400 digits. An integer of fewer than 1,329 bits has at most 400 digits, so
# the digits of such an integer need not be counted.
_MAX_DIGITS: Final = 400
_MAX_BITS: Final = 1_329

_WORD: Final = object.__basicsize__ // 2
_SCALARS: Final = frozenset((bool, type(None)))
_CONTAINERS: Final = (dict, list, tuple, set, frozenset)
# Modules of standard types. The `__slots__` of these types are not copied as further attributes, because the slots
# contain only the value itself or a cached form of it.
_STANDARD: Final = frozenset(
    ("builtins", "collections", "datetime", "decimal", "enum", "pathlib", "pathlib._local", "uuid")
)
_WRITERS: Final[tuple[tuple[Any, Any], ...]] = (
    (dt.datetime, dt.datetime.isoformat),
    (dt.date, dt.date.isoformat),
    (dt.time, dt.time.isoformat),
    (dt.timedelta, dt.timedelta.__str__),
    (UUID, UUID.__str__),
    (PurePath, PurePath.__str__),
)
# Modules whose objects (IP addresses and URLs) are converted with `str`: the string contains the complete value.
_ADDRESSES: Final = frozenset(("ipaddress", "pydantic.networks"))
_IMMUTABLE: Final = frozenset(
    (str, int, float, bool, type(None), bytes, Decimal, UUID, dt.date, dt.timedelta)
)


@dataclasses.dataclass(frozen=True, slots=True)
class Secret:
    """Copy of a pydantic `Secret`, `SecretStr` or `SecretBytes` value; the gateway receives only its digest."""

    value: Frozen


@dataclasses.dataclass(frozen=True, slots=True)
class Extended:
    """Copy of a value with further attributes: an enumeration member, or an instance of a subclass of a built-in type.

    A number with too many digits for the gateway is also copied to an object of this class.

    Attributes:
        label: Full name of the class.
        value: The value without the attributes.
        more: The attributes by name.
    """

    label: str
    value: Frozen
    more: dict[str, Frozen]


@dataclasses.dataclass(frozen=True, slots=True)
class Opaque:
    """An object that cannot be written as JSON; `same_arguments` compares such objects by identity."""

    value: object = dataclasses.field(compare=False)
    identity: int


class UnsupportedArgumentError(ConfigurationError):
    """An argument cannot be written as JSON.

    Attributes:
        name: Name of the argument.
        problem: The problem, as the continuation of "argument 'x' …".
    """

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"argument {name!r} {problem}; {_CURE}")


class _UnsupportedError(Exception):
    """A value cannot be copied by `Freezer`; the message is the continuation of "argument 'x' …"."""


@dataclasses.dataclass(slots=True, eq=False)
class Freezer:
    """Creates immutable copies of one call's arguments; the size limits apply to all arguments together.

    Args:
        accepts_objects: True to accept objects that cannot be written as JSON; their copies are compared by identity.
            If False, such an object causes an error.
    """

    accepts_objects: bool = False
    _open: set[int] = dataclasses.field(default_factory=set[int], init=False)
    _values: int = dataclasses.field(default=_MAX_VALUES, init=False)
    _characters: int = dataclasses.field(default=_MAX_CHARACTERS, init=False)

    def arguments(self, arguments: Mapping[Any, Any]) -> dict[str, Frozen]:
        """Return immutable copies of the arguments by name; a name that is not a string is converted to a string.

        Raises:
            UnsupportedArgumentError: An argument is not JSON, contains itself, or is too large.
        """
        frozen: dict[str, Frozen] = {}
        for given, value in arguments.items():
            name = given if type(given) is str else self.name(given)
            if name in frozen:
                raise UnsupportedArgumentError(name, "is given twice, under names that are equal in JSON")
            try:
                frozen[name] = self._freeze(value)
            except _UnsupportedError as error:
                raise UnsupportedArgumentError(name, str(error)) from None
            except Exception as error:
                # Properties and methods of a subclass may raise any exception.
                raise UnsupportedArgumentError(
                    name, f"raises {type(error).__name__} when it is read"
                ) from error
            finally:
                self._open.clear()
        return frozen

    def name(self, given: object) -> str:
        """Convert a name that is not a string to a string.

        Raises:
            UnsupportedArgumentError: The name is not a number, a date or another single value.
        """
        try:
            return self._key(given)
        except Exception:  # noqa: BLE001 - the class of a name may raise anything when it is read
            raise UnsupportedArgumentError("context", f"has a name of type {_label(given)!r}") from None

    def _freeze(self, value: Any) -> Frozen:
        kind = type(value)
        if kind is str:
            self._spend(len(value))
            return value  # type: ignore[no-any-return]  # `value` is a str here
        if kind in _SCALARS:
            return value  # type: ignore[no-any-return]  # `value` is a bool or None here
        if kind is int and value.bit_length() < _MAX_BITS:
            return value  # type: ignore[no-any-return]  # `value` is an int here
        if kind is int or kind is float or kind is Decimal:
            return _number(value)
        if kind in _CONTAINERS:
            return self._container(value, kind)
        return self._other(value, kind)

    def _other(self, value: Any, kind: type) -> Frozen:
        if issubclass(kind, Enum):
            attributes = {name: item for name, item in _attributes(value).items() if not _is_reserved(name)}
            return self._extended(value, self._freeze(value._value_), attributes)
        if issubclass(kind, str):
            return self._extended(value, self._text(str.__str__(value)), _attributes(value))
        if issubclass(kind, (int, float, Decimal)):
            base: Any = next(each for each in (int, float, Decimal) if issubclass(kind, each))
            number = Decimal(value) if base is Decimal else getattr(base, f"__{base.__name__}__")(value)
            return self._extended(value, _number(number), _attributes(value))
        if issubclass(kind, (bytes, bytearray)):
            base = bytes if issubclass(kind, bytes) else bytearray
            data = bytes(base.__getitem__(value, slice(None)))
            self._spend(len(data))
            return self._extended(value, data, _attributes(value))
        for base, write in _WRITERS:
            if issubclass(kind, base):
                return self._extended(value, self._text(_written(value, base, write)), _attributes(value))
        for base in _CONTAINERS:
            if issubclass(kind, base):
                return self._extended(value, self._container(value, base), _attributes(value))
        if (fields := fields_of(value)) is not None:
            return self._fields(value, kind, fields)
        return self._special(value, kind)

    def _special(self, value: Any, kind: type) -> Frozen:
        if (pydantic := sys.modules.get("pydantic")) is not None and issubclass(
            kind, (pydantic.Secret, pydantic.SecretStr, pydantic.SecretBytes)
        ):
            return Secret(self._freeze(pydantic.SecretStr.get_secret_value(value)))
        if kind.__module__ in _ADDRESSES:
            return self._text(str(value))
        if self.accepts_objects:
            return Opaque(value, id(value))
        verb = "contains a value" if self._open else "is"
        raise _UnsupportedError(f"{verb} of type {_label(value)!r}, which cannot be written as JSON")

    def _extended(self, value: object, frozen: Frozen, attributes: Mapping[str, Any]) -> Frozen:
        if not attributes:
            return frozen
        more = self._members(value, attributes.items(), len(attributes))
        return Extended(_label(value), frozen, more)

    def _fields(self, value: object, kind: Any, fields: dict[str, Any]) -> Frozen:
        if getattr(kind, "__pydantic_root_model__", False) and set(fields) == {"root"}:
            return self._freeze(fields["root"])
        return self._members(value, fields.items(), len(fields))

    def _container(self, value: Any, base: Any) -> Frozen:
        if base is dict:
            return self._members(value, dict.items(value), dict.__len__(value))
        self._enter(value, base.__len__(value))
        # The items are copied to a list first, because iterating over `value` itself could fail if other code changes
        # `value` during the loop.
        items = [self._freeze(item) for item in list(base.__iter__(value))]
        self._open.discard(id(value))
        return items if base in {list, tuple} else sorted(items, key=canonical_text)

    def _members(self, value: object, items: Iterable[tuple[Any, Any]], length: int) -> dict[str, Frozen]:
        self._enter(value, length)
        members: dict[str, Frozen] = {}
        for key, item in list(items):
            name = self._text(key) if type(key) is str else self._key(key)
            if name in members:
                raise _UnsupportedError("has two keys that are equal in JSON, such as 1 and '1'")
            members[name] = self._freeze(item)
        self._open.discard(id(value))
        return members

    def _key(self, key: object) -> str:
        frozen = self._freeze(key)
        if isinstance(frozen, str):
            return frozen
        if frozen is None or isinstance(frozen, (bool, int, float, Decimal)):
            return dumps(frozen)
        raise _UnsupportedError(f"has a key of type {_label(key)!r}")

    def _enter(self, value: object, length: int) -> None:
        if id(value) in self._open:
            raise _UnsupportedError("contains itself")
        if len(self._open) >= _MAX_DEPTH:
            raise _UnsupportedError(f"is nested more than {_MAX_DEPTH} levels deep")
        self._values -= length + 1
        if self._values < 0:
            raise _UnsupportedError(f"makes the call contain more than {_MAX_VALUES:,} values")
        self._open.add(id(value))

    def _text(self, value: str) -> str:
        self._spend(len(value))
        return value

    def _spend(self, count: int) -> None:
        self._characters -= count
        if self._characters < 0:
            raise _UnsupportedError(f"makes the call contain more than {_MAX_CHARACTERS:,} characters")


def _number(value: Any) -> int | float | Decimal | str | Extended:
    kind = type(value)
    if kind is int:
        if value.bit_length() < _MAX_BITS:
            return value  # type: ignore[no-any-return]  # `value` is an int here
    elif kind is float:
        if math.isfinite(value):
            return value  # type: ignore[no-any-return]  # `value` is a float here
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    else:
        _, digits, exponent = value.as_tuple()
        if isinstance(exponent, str):
            return "NaN" if value.is_nan() else "Infinity" if value > 0 else "-Infinity"
        if max(len(digits), abs(exponent), abs(value.adjusted())) <= _MAX_DIGITS:
            return value  # type: ignore[no-any-return]  # `value` is a Decimal here
    digits_of_it = hex(value) if kind is int else str(value)
    return Extended(_label(value), f"a number of more than {_MAX_DIGITS} digits", {"digits": digits_of_it})


def _written(value: Any, base: Any, write: Any) -> str:
    """Return a date, time, duration, UUID or path as text."""
    text: str = write(value)
    kind = type(value)
    if kind is not base and kind.__module__ not in _STANDARD:
        own = value.isoformat() if hasattr(base, "isoformat") else str(value)
        if own != text:
            # A subclass may have a greater precision, such as nanoseconds. Its digits are missing from the text of the
            # base class, so the approver would not see them.
            raise _UnsupportedError(
                f"contains a value of type {_label(value)!r}, whose conversion to text is custom code"
            )
    return text


def fields_of(value: object) -> dict[str, Any] | None:
    """Return all attributes that a dataclass or pydantic model stores, by name, or None for any other object.

    The attributes are read from the object's storage, because a model's own serializers may omit or replace values that
    the tool reads. The result is also None if a base class stores further values elsewhere, as an exception does with
    its arguments.
    """
    kind: Any = type(value)
    model = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    if not dataclasses.is_dataclass(kind) and (model is None or not issubclass(kind, model)):
        return None
    words = len(_slots(kind)) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    if kind.__itemsize__ or kind.__basicsize__ > object.__basicsize__ + _WORD * words:
        return None
    found = _attributes(value)
    for name in ("__pydantic_extra__", "__pydantic_private__"):
        found.update(found.pop(name, None) or {})
    found.pop("__pydantic_fields_set__", None)
    return found


def _attributes(value: object) -> dict[str, Any]:
    """Return the attributes that are stored in an instance, without calling properties or `__getattr__`."""
    kind: Any = type(value)
    found: dict[str, Any] = {}
    for name in _slots(kind):
        try:
            found[name] = object.__getattribute__(value, name)
        except AttributeError:
            # No value has been assigned to this slot.
            continue
    own = kind.__dictoffset__ and object.__getattribute__(value, "__dict__")
    # Some subclasses of dict use themselves as their `__dict__`. Their items are copied as items and not as attributes.
    if isinstance(own, dict) and own is not value:
        found.update((name, item) for name, item in dict.items(own) if type(name) is str)
    return found


@functools.lru_cache(maxsize=1024)
def _slots(kind: Any) -> tuple[str, ...]:
    owners = [each for each in kind.__mro__ if each.__module__ not in _STANDARD]
    return tuple(
        name for each in owners for name, item in vars(each).items() if type(item) is MemberDescriptorType
    )


def _is_reserved(name: str) -> bool:
    return name.startswith("_") and name.endswith("_")


def _label(value: object) -> str:
    """Return the full name of a value's class."""
    try:
        label = f"{type(value).__module__}.{type(value).__qualname__}"
    except Exception:  # noqa: BLE001 - a metaclass may raise anything when the name is read
        return "?"
    return label if label.isprintable() else "?"


def canonical_text(value: Frozen) -> str:
    """Return JSON text for a value that `Freezer` copied. Different values have different texts."""
    return dumps(plain(value), canonical=True)


def plain(value: Frozen) -> Json:
    """Convert a copy that `Freezer` made to JSON. Different values have different JSON.

    Names that begin with `$` get a second `$`, to distinguish them from names that this function adds, such as
    `$bytes`.
    """
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {f"${name}" if name.startswith("$") else name: plain(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return {"$bytes": hashlib.sha256(value).hexdigest()}
    if isinstance(value, Secret):
        return {"$secret": plain(value.value)}
    if isinstance(value, Extended):
        return {"$object": value.label, "$value": plain(value.value), "$more": plain(value.more)}
    if isinstance(value, Opaque):
        return {"$identity": value.identity}
    return value


def same(one: Frozen, other: Frozen) -> bool:
    """Return True if two values that `Freezer` copied have the same JSON text; the texts of 1, 1.0 and True differ."""
    return canonical_text(one) == canonical_text(other)


def same_arguments(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if two calls have the same arguments as JSON; objects that are not JSON are compared by identity.

    Raises:
        UnsupportedArgumentError: An argument contains itself, or is too large.
    """
    first, second = (Freezer(accepts_objects=True).arguments(each) for each in (one, other))
    return same(first, second)


def is_immutable(value: object) -> bool:
    """Return True if no other code can change `value`."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return True
    if issubclass(kind, Enum):
        # An enum member is shared by all code in the process, which may set its attributes, or change its value if the
        # value is mutable, such as a list.
        has_more = any(not _is_reserved(name) for name in _attributes(value))
        return not has_more and is_immutable(value._value_)  # type: ignore[attr-defined]  # every enum has `_value_`
    if kind is dt.datetime or kind is dt.time:
        zone = value.tzinfo  # type: ignore[attr-defined]  # datetime and time have `tzinfo`
        known = (getattr(sys.modules.get("zoneinfo"), "ZoneInfo", None), dt.timezone, type(None))
        return type(zone) in known or type(zone).__module__ == "pydantic_core._pydantic_core"
    if kind is tuple or kind is frozenset:
        return all(map(is_immutable, value))  # type: ignore[call-overload]  # `value` is a tuple or frozenset here
    return False


_INFO: Final = b"toolgate capture v1"


class Fingerprinter:
    """Computes keyed digests; equal values have equal digests in all processes that use the same API key.

    Args:
        api_key: API key. The key of the digests is derived from it by HKDF-SHA256 (RFC 5869, no salt). A reader of the
            log does not have this key, and so cannot find a secret by comparing digests of guessed values with the
            digests in the log.
    """

    def __init__(self, api_key: str) -> None:
        extracted = hmac.digest(bytes(32), api_key.encode(), hashlib.sha256)
        self._key = hmac.digest(extracted, _INFO + b"\x01", hashlib.sha256)

    def text(self, value: str) -> dict[str, Json]:
        """Return the digest of a text."""
        # Without "surrogatepass", encoding a string with lone surrogates would raise an error.
        return self._digest(b"text", value.encode("utf-8", "surrogatepass"))

    def binary(self, value: bytes) -> dict[str, Json]:
        """Return the digest of bytes."""
        return self._digest(b"bytes", value)

    def json(self, value: Json) -> dict[str, Json]:
        """Return the digest of a JSON value. For a string, `text` returns the same digest."""
        if isinstance(value, str):
            return self.text(value)
        return self._digest(b"json", dumps(value, canonical=True).encode("utf-8", "surrogatepass"))

    def frozen(self, value: Frozen) -> dict[str, Json]:
        """Return the digest of an argument that `Freezer` copied."""
        return self.binary(value) if isinstance(value, bytes) else self.json(plain(value))

    def label(self, value: str) -> str:
        """Return a digest that replaces a name. It begins with a single `$`, unlike all names of arguments."""
        return f"${self.text(value)['$digest']}"

    def _digest(self, kind: bytes, value: bytes) -> dict[str, Json]:
        # The kind is part of the digest, so that the digests of b"1", "1" and 1 differ.
        digest = hmac.new(self._key, kind + b"\x00" + value, hashlib.sha256).hexdigest()
        return {"$digest": f"hmac-sha256:{digest}", "bytes": len(value)}
