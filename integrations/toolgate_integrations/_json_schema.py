"""Defaults of a JSON schema, filled into an object."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["with_defaults"]

_DEEPEST: Final = 64


def with_defaults(
    value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the object with the defaults of the properties that it lacks.

    Nested objects and the items of arrays are filled in too; `$ref` is followed inside the schema, and `allOf` is
    applied. Of `anyOf` and `oneOf` only a single object schema, beside null, is applied: otherwise which one the tool
    chooses is not known.

    Args:
        value: The object; it is not changed.
        schema: The schema of the object.
        root: The document that references are looked up in; None is the schema itself.
    """
    filled = _filled(value, schema, schema if root is None else root, 0)
    return filled if isinstance(filled, dict) else value


def _filled(value: Any, schema: object, root: Mapping[str, Any], depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return value
    target = _target(schema, root)
    if target is not None:
        value = _filled(value, target, root, depth + 1)
    for each in _applied(schema):
        value = _filled(value, each, root, depth + 1)
    if isinstance(value, dict):
        return _with_properties(value, schema, root, depth)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, Mapping):
        return [_filled(each, items, root, depth + 1) for each in value]
    return value


def _with_properties(
    value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return value
    found = dict(value)
    for name, each in properties.items():
        if name not in found:
            missing, default = _default(each, root, depth)
            if missing:
                continue
            found[name] = default
        found[name] = _filled(found[name], each, root, depth + 1)
    return found


def _default(schema: object, root: Mapping[str, Any], depth: int) -> tuple[bool, Any]:
    """Whether a property has no default, and its default."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return True, None
    if "default" in schema:
        return False, copy.deepcopy(schema["default"])
    for each in (_target(schema, root), *_applied(schema)):
        missing, default = _default(each, root, depth + 1)
        if not missing:
            return False, default
    return True, None


def _applied(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas that certainly apply beside this one."""
    found = list(schema["allOf"]) if isinstance(schema.get("allOf"), list) else []
    for name in ("anyOf", "oneOf"):
        choices = schema.get(name)
        if isinstance(choices, list):
            objects = [each for each in choices if not _is_null(each)]
            found += objects if len(objects) == 1 else []
    return found


def _is_null(schema: object) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _target(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """The schema that `$ref` names inside the root; None for none, and for one elsewhere."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
