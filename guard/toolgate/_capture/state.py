"""What an object of any class consists of, read without running its code."""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import functools
import io
import re
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterable
from datetime import timezone
from typing import Any, Final

__all__ = ["added", "enum_attributes", "extra", "has_fixed_zone", "qualified", "state"]

_WORD: Final = object.__basicsize__ // 2
# Their repr is everything they are, and it is Python's own.
_TOLD_BY_REPR: Final = (range, slice, complex, timezone, types.GenericAlias, type(...), type(NotImplemented))
_BUILT_IN: Final = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_THEIR_HOMES: Final = frozenset(("datetime", "pathlib", "uuid", "builtins"))
_VIEWS: Final[tuple[type, ...]] = (type({}.keys()), type({}.values()), type({}.items()))


def qualified(kind: Any) -> str:
    """The full name of a class, function or method."""
    name = getattr(kind, "__qualname__", None) or type(kind).__qualname__
    return f"{getattr(kind, '__module__', None)}.{name}"


def state(value: object) -> dict[str, Any] | None:
    """The parts of `value` by name, or None where not all of it can be read.

    Never consumes an iterator and calls no method that a class of the caller's has defined.
    """
    kind: Any = type(value)
    for known, read in _READERS:
        if issubclass(kind, known):
            return {**read(value), **_attributes(value)}
    if kind in _TOLD_BY_REPR or (kind.__module__, kind.__qualname__) == ("zoneinfo", "ZoneInfo"):
        return {"repr": repr(value)}
    if _hides_nothing(kind):
        return _attributes(value)
    return _buffer(value)


def extra(value: object) -> dict[str, Any]:
    """The attributes an instance of a built-in class's subclass has beside its built-in value."""
    found = _attributes(value)
    for name in ("_numerator", "_denominator"):
        found.pop(name, None)
    # Some dictionaries are their own attributes.
    return {} if _present(value, ("__dict__",)).get("__dict__") is value else found


def enum_attributes(value: object) -> dict[str, Any]:
    """Return the attributes that an enum member has beside its name and value."""
    attributes = _present(value, ("__dict__",)).get("__dict__")
    found = dict.items(attributes) if isinstance(attributes, dict) else ()
    return {name: item for name, item in found if not (name.startswith("_") and name.endswith("_"))}


def has_fixed_zone(value: Any) -> bool:
    """Return whether the zone of a `datetime` or `time` can never give another offset for it."""
    zone = value.tzinfo
    known = getattr(sys.modules.get("zoneinfo"), "ZoneInfo", timezone)
    return zone is None or type(zone) in {timezone, known}


def added(value: object) -> dict[str, Any]:
    """What an instance of somebody's subclass of an identifier, a path or a moment has beside it.

    Their own slots are no part of that: some only keep what was worked out before.
    """
    kind = type(value)
    if kind.__module__.partition(".")[0] in _THEIR_HOMES:
        return {}
    names = [
        name for each in kind.__mro__ if each.__module__ not in _THEIR_HOMES for name in _own_slots(each)
    ]
    found = _present(value, names)
    attributes = _present(value, ("__dict__",)).get("__dict__")
    if isinstance(attributes, dict):
        found.update((name, item) for name, item in dict.items(attributes) if isinstance(name, str))
    return found


def _own_slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _attributes(value: object) -> dict[str, Any]:
    kind: Any = type(value)
    found: dict[str, Any] = {}
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        found = _present(value, names)
    found.update(_present(value, _slots(kind)))
    attributes = _present(value, ("__dict__",)).get("__dict__")
    if isinstance(attributes, dict):
        found.update((name, item) for name, item in dict.items(attributes) if isinstance(name, str))
    for name in ("__pydantic_extra__", "__pydantic_private__"):
        if name in found:
            more = found.pop(name)
            found.update(more if isinstance(more, dict) else {})
    found.pop("__pydantic_fields_set__", None)
    return found


def _present(value: object, names: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        # Past __getattr__ and __getattribute__, which may do anything.
        with contextlib.suppress(AttributeError):
            found[name] = object.__getattribute__(value, name)
    return found


@functools.lru_cache(maxsize=1024)
def _slots(kind: type) -> tuple[str, ...]:
    names = copyreg._slotnames(kind)  # type: ignore[attr-defined]  # noqa: SLF001 - what pickle itself uses
    return tuple(sorted(set(names)))


@functools.lru_cache(maxsize=1024)
def _hides_nothing(kind: type) -> bool:
    # As pickle decides it: an instance that is larger than its attributes holds what only C can see.
    size = object.__basicsize__ + _WORD * len(_slots(kind))
    size += _WORD * ((kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0))
    return kind.__itemsize__ == 0 and kind.__basicsize__ <= size


def _buffer(value: Any) -> dict[str, Any] | None:
    for module, name, read in _LOADED_READERS:
        known = getattr(sys.modules.get(module), name, None)
        if known is not None and issubclass(type(value), known):
            found = read(value)
            return None if found is None else {**found, **_attributes(value)}
    if isinstance(value, _VIEWS):
        views: Any = value
        return {"items": list(views)}
    # Arrays of numbers; what holds objects refuses to be looked at this way.
    if not _exports_memory(type(value)):
        return None
    view = memoryview(value)
    if "O" in view.format or "P" in view.format:
        return None
    return {"format": view.format, "shape": view.shape, "data": view.tobytes()}


def _exports_memory(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in {"array", "numpy"} and kind.__name__ in {"array", "ndarray"}


def _memory(value: Any) -> dict[str, Any] | None:
    """Return the memory of a value of ctypes, unless it points to other memory."""
    view = memoryview(value)
    if _POINTER.search(_FIELD_NAME.sub("", view.format)):
        return None
    return {"format": view.format, "shape": view.shape, "data": view.tobytes()}


def _element(value: Any) -> dict[str, Any]:
    return {
        "tag": value.tag,
        "attrib": dict(value.attrib),
        "text": value.text,
        "tail": value.tail,
        "items": list(value),
    }


def _function(value: Any) -> dict[str, Any]:
    cells = value.__closure__ or ()
    return {
        "function": qualified(value),
        "code": value.__code__,
        "defaults": value.__defaults__,
        "kwdefaults": value.__kwdefaults__,
        "closure": [cell.cell_contents for cell in cells if cell != types.CellType()],
    }


def _code(value: Any) -> dict[str, Any]:
    parts = ("co_qualname", "co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_flags")
    return {part: getattr(value, part) for part in parts}


def _partial(value: Any) -> dict[str, Any]:
    return {"func": value.func, "args": value.args, "keywords": value.keywords}


def _method(value: Any) -> dict[str, Any]:
    return {"method": value.__func__, "of": value.__self__}


def _built_in(value: Any) -> dict[str, Any]:
    owner = getattr(value, "__self__", None)
    return {"function": qualified(value), "of": None if isinstance(owner, types.ModuleType) else owner}


_READERS: Final[tuple[tuple[Any, Any], ...]] = (
    (types.FunctionType, _function),
    (types.MethodType, _method),
    (types.CodeType, _code),
    (_BUILT_IN, _built_in),
    (functools.partial, _partial),
    (deque, lambda value: {"items": list(deque.__iter__(value)), "maxlen": value.maxlen}),
    (io.BytesIO, lambda value: {"data": io.BytesIO.getvalue(value), "at": io.BytesIO.tell(value)}),
    (io.StringIO, lambda value: {"data": io.StringIO.getvalue(value), "at": io.StringIO.tell(value)}),
    (re.Pattern, lambda value: {"pattern": value.pattern, "flags": value.flags}),
    (OSError, lambda value: {"args": value.args, "files": (value.filename, value.filename2)}),
    (BaseException, lambda value: {"args": value.args}),
    (weakref.ref, lambda value: {"of": weakref.ref.__call__(value)}),
)
# Classes of modules that are not imported for this: only a program that has loaded one has its instances.
_LOADED_READERS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("_ctypes", "_SimpleCData", _memory),
    ("_ctypes", "Structure", _memory),
    ("_ctypes", "Union", _memory),
    ("_ctypes", "Array", _memory),
    ("xml.etree.ElementTree", "Element", _element),
    ("lxml.etree", "_Element", _element),
)
_FIELD_NAME: Final = re.compile(":[^:]*:")
_POINTER: Final = re.compile("[PzZOX&]")
