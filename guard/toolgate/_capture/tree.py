"""The digest of a value of any size and depth, made without recursion and without its repr."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import ModuleType
from typing import Any, Final
from uuid import UUID

from toolgate._capture.plain import binary, moment, names_of, number
from toolgate._capture.state import added, enum_attributes, extra, qualified, state

__all__ = ["MOST_OBJECTS", "TreeDigest"]

_PLAIN: Final = frozenset((str, int, bool, type(None), float))
_TOLD_BY_TEXT: Final = (dt.date, dt.time, dt.timedelta, UUID, PurePath)
MOST_OBJECTS: Final = 10_000
_MOST_BYTES: Final = 2**53 - 1

Node = tuple[bytes, int]


class _Frame:
    """A container whose members are being digested."""

    __slots__ = ("found", "ident", "left", "tag", "width")

    def __init__(self, ident: int, tag: str, members: list[object], width: int) -> None:
        self.ident = ident
        self.tag = tag
        self.left = members[::-1]
        # Members in groups of so many are sorted by their digests; 0 keeps the order.
        self.width = width
        self.found: list[Node] = []


class TreeDigest:
    """Digests values; what occurs in several places is digested once.

    Args:
        hides: Says which keys are secrets' names.
        unrepeatable: Makes the digest of a value that cannot be read, 32 bytes.

    Attributes:
        is_cut: Whether there were more objects than are digested.
        secret: Whether a secret's name was met: its value is not remembered.
    """

    def __init__(self, hides: Callable[[str], bool] | None, unrepeatable: Callable[[], bytes]) -> None:
        self._hides = hides
        self._unrepeatable = unrepeatable
        self._done: dict[int, Node] = {}
        self._open: dict[int, int] = {}
        # An id is another object's as soon as the first is gone.
        self._kept: list[object] = []
        self._objects = 0
        self.is_cut = False
        self.secret = False

    def of(self, value: object) -> Node:
        """The SHA-256 of `value` and how many bytes it stands for."""
        root = _Frame(0, "", [value], 0)
        frames = [root]
        try:
            while len(frames) > 1 or root.left:
                frame = frames[-1]
                if not frame.left:
                    frames.pop()
                    frames[-1].found.append(self._finish(frame))
                    continue
                entered = self._enter(frame.left.pop())
                if isinstance(entered, _Frame):
                    frames.append(entered)
                else:
                    frame.found.append(entered)
        finally:
            for frame in frames:
                self._open.pop(frame.ident, None)
        return root.found[0]

    def _enter(self, value: object) -> Node | _Frame:
        if type(value) in _PLAIN:
            return _leaf("plain", _json(value))
        try:
            return self._compound(value)
        except Exception:  # noqa: BLE001 - other people's classes may do anything when read
            return self._never()

    def _never(self) -> Node:
        return self._unrepeatable(), 0

    def _compound(self, value: object) -> Node | _Frame:
        ident = id(value)
        if ident in self._done:
            return self._done[ident]
        if ident in self._open:
            # Numbered by when it was entered: two different ends of a loop must differ.
            return _leaf("loop", str(self._open[ident]).encode())
        self._kept.append(value)
        made = self._leaf_of(value) or self._container(value)
        if isinstance(made, _Frame):
            self._open[ident] = len(self._kept)
        else:
            self._done[ident] = made
        return made

    def _leaf_of(self, value: Any) -> Node | None:
        kind = type(value)
        if issubclass(kind, (str, int, float, Decimal, Fraction)) and not issubclass(kind, Enum):
            if extra(value):
                return None
            text = str.__str__(value) if issubclass(kind, str) else repr(number(value))
            return _leaf(kind.__qualname__, text.encode("utf-8", "surrogatepass"))
        if issubclass(kind, (bytes, bytearray, memoryview)):
            return _leaf("bytes", binary(value))
        if issubclass(kind, _TOLD_BY_TEXT):
            if added(value):
                return None
            return _leaf(qualified(kind), moment(value).encode("utf-8", "surrogatepass"))
        if issubclass(kind, (type, ModuleType)):
            return _leaf("named", qualified(value).encode("utf-8", "surrogatepass"))
        if kind in {list, tuple} and _PLAIN.issuperset(map(type, value)):
            return _leaf("list", _json(list(value)))
        return None

    def _container(self, value: Any) -> Node | _Frame:
        kind, ident = type(value), id(value)
        if kind is dict:
            return self._mapping(ident, "dict", value)
        if kind in {list, tuple}:
            return _Frame(ident, "list", list(value), 0)
        if kind in {set, frozenset}:
            return _Frame(ident, "set", list(value), 1)
        self._objects += 1
        # What is reachable from a client or a session may be the whole process.
        if self._objects > MOST_OBJECTS:
            self.is_cut = True
            return self._never()
        parts = _parts(value)
        return self._never() if parts is None else self._mapping(ident, qualified(kind), parts)

    def _mapping(self, ident: int, tag: str, members: dict[Any, Any]) -> _Frame:
        names = names_of(members)
        if self._hides is not None and not self.secret:
            self.secret = any(map(self._hides, (name for name in members if type(name) is str)))
        flat = [part for name in names for part in (name, members[name])]
        return _Frame(ident, tag, flat, 2)

    def _finish(self, frame: _Frame) -> Node:
        self._open.pop(frame.ident, None)
        digests = [digest for digest, _ in frame.found]
        if frame.width:
            step = frame.width
            digests = sorted(b"".join(digests[at : at + step]) for at in range(0, len(digests), step))
        size = min(sum(size for _, size in frame.found) + len(frame.found) + 1, _MOST_BYTES)
        text = f"{frame.tag}\0{len(digests)}\0".encode("utf-8", "surrogatepass")
        node = hashlib.sha256(text + b"".join(digests)).digest(), size
        self._done[frame.ident] = node
        return node


def _parts(value: Any) -> dict[str, Any] | None:
    kind = type(value)
    if issubclass(kind, Enum):
        return {"value": value._value_, **enum_attributes(value)}
    own: Any = None
    if issubclass(kind, dict):
        # Keys may lie about being equal: pairs cannot.
        own = [list(pair) for pair in dict.items(value)]
    elif issubclass(kind, (list, tuple, set, frozenset)):
        read: Any = next(each for each in (list, tuple, set, frozenset) if issubclass(kind, each))
        own = (frozenset if read in {set, frozenset} else list)(read.__iter__(value))
    elif issubclass(kind, (str, int, float, Decimal, Fraction)):
        own = str.__str__(value) if issubclass(kind, str) else number(value)
    elif issubclass(kind, _TOLD_BY_TEXT):
        return {"": moment(value), **added(value)}
    else:
        return state(value)
    return {"": own, **extra(value)}


def _leaf(tag: str, data: bytes) -> Node:
    head = f"={tag}\0".encode("utf-8", "surrogatepass")
    return hashlib.sha256(head + data).digest(), len(data)


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":")).encode()
    except ValueError:
        # Python writes no integers of more than 4,300 digits in decimal.
        items = value if isinstance(value, list) else [value]
        return ",".join(hex(item) if type(item) is int else json.dumps(item) for item in items).encode()
