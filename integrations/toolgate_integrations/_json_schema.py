"""Defaults of JSON schemas, which are added to the arguments of a tool call before its check."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["SchemaDefaultError", "complete_arguments", "with_defaults"]

_DEEPEST: Final = 64


def with_defaults(
    value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a copy of an object with the schema's defaults for missing properties.

    Defaults are also added to nested objects and to the items of arrays. `$ref` is followed inside the document, and
    `allOf` is applied. `anyOf` and `oneOf` are applied only if they have a single choice besides null; with several
    choices it is unknown which one the tool applies.

    Args:
        value: The object; it is not changed.
        schema: The schema of the object.
        root: The document that `$ref` refers to; None if it is the schema itself.
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
    """Return `(False, default)` for a property whose schema has a default, else `(True, None)`."""
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
    """Return the nested schemas that apply to every value: those of `allOf`, and the only choice of `anyOf` or `oneOf`.

    A choice that allows only null is not counted.
    """
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
    """Return the schema that `$ref` refers to inside the root document, or None if the reference cannot be resolved."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


# Maximum nesting depth of a schema. Schemas of tool arguments are never that deep; the limit also ends the recursion if
# a `$ref` refers to itself.
_MOST_LEVELS: Final = 64
_MOST_VALUES: Final = 10_000
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class SchemaDefaultError(ValueError):
    """The defaults of a schema cannot be added to the arguments; the message contains the location and the reason."""


def complete_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy of `arguments` with the defaults of `schema` for missing members.

    Defaults are taken from `properties`, at any depth, through `$ref`, `allOf` and the items of arrays. `anyOf` and
    `oneOf` are followed if exactly one of their choices can apply to the value.

    Raises:
        SchemaDefaultError: A default does not match its own schema, two defaults of one member differ, or a `$ref`
            cannot be resolved.
    """
    filled: dict[str, Any] = copy.deepcopy(dict(arguments))
    _Filler(schema).fill(schema, filled, "", 0)
    return filled


class _Filler:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MOST_VALUES

    def fill(self, schema: object, value: Any, path: str, level: int) -> None:
        self._left -= 1
        if level > _MOST_LEVELS or self._left < 0:
            raise SchemaDefaultError(f"the input schema is nested too deep at {path or 'its root'!r}")
        if isinstance(value, dict):
            # Defaults are added before the members are visited, because a default may be an object whose members have
            # defaults too.
            self._add(schema, value, path, level)
            for each in self._applying(schema, value, path, level):
                for name, inner in _mapping(each, "properties", path).items():
                    if name in value:
                        self.fill(inner, value[name], _within(path, name), level + 1)
                self._fill_others(each, value, path, level)
        elif isinstance(value, list):
            for each in self._applying(schema, value, path, level):
                prefix = each.get("prefixItems")
                first = prefix if isinstance(prefix, list) else []
                for index, item in enumerate(value):
                    inner = first[index] if index < len(first) else each.get("items")
                    if isinstance(inner, dict):
                        self.fill(inner, item, f"{path}[{index}]", level + 1)

    def _fill_others(self, schema: Mapping[str, Any], value: dict[str, Any], path: str, level: int) -> None:
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            for name in value.keys() - _mapping(schema, "properties", path).keys():
                self.fill(others, value[name], _within(path, name), level + 1)

    def _add(self, schema: object, value: dict[str, Any], path: str, level: int) -> None:
        """Add the defaults of missing members to an object.

        Raises:
            SchemaDefaultError: Two parts of the schema have different defaults for the same member.
        """
        added: dict[str, Any] = {}
        for each in self._applying(schema, value, path, level):
            for name, inner in _mapping(each, "properties", path).items():
                if name in value:
                    continue
                where = _within(path, name)
                for default in self._defaults(inner, where, level + 1):
                    if name in added and not _equal(added[name], default):
                        raise SchemaDefaultError(f"the input schema has two different defaults for {where!r}")
                    added[name] = copy.deepcopy(default)
        value.update(added)

    def _defaults(self, schema: object, path: str, level: int) -> Iterator[Any]:
        if level > _MOST_LEVELS:
            raise SchemaDefaultError(f"the input schema is nested too deep at {path!r}")
        if not isinstance(schema, dict):
            return
        # A default beside `$ref` or `allOf` has precedence over the defaults in the schemas that they refer to.
        if "default" in schema:
            self._check(schema, schema["default"], path, level)
            yield schema["default"]
            return
        if "$ref" in schema:
            yield from self._defaults(self._resolved(schema["$ref"], path), path, level + 1)
        for each in _list(schema, "allOf", path):
            yield from self._defaults(each, path, level + 1)

    def _check(self, schema: object, default: Any, path: str, level: int) -> None:
        """Raise `SchemaDefaultError` if a default does not match the schema that contains it."""
        for each in self._applying(schema, default, path, level):
            if "type" in each and not _is_of(each["type"], default, path):
                raise SchemaDefaultError(
                    f"the default of {path!r} in the input schema is {_short(default)}, which does not have "
                    f"its type {each['type']!r}"
                )
            if isinstance(each.get("enum"), list) and not any(_equal(default, one) for one in each["enum"]):
                raise SchemaDefaultError(
                    f"the default of {path!r} in the input schema is {_short(default)}, which is not one of "
                    "the values in its 'enum'"
                )
        for key in ("anyOf", "oneOf"):
            choices = _list(schema, key, path) if isinstance(schema, dict) else []
            if choices and not any(self._allows(each, default, path, level + 1) for each in choices):
                raise SchemaDefaultError(
                    f"the default of {path!r} in the input schema is {_short(default)}, which is not valid "
                    f"for any schema in its {key!r}"
                )

    def _applying(self, schema: object, value: Any, path: str, level: int) -> Iterator[Mapping[str, Any]]:
        """Yield a schema and its parts that apply to a value: targets of `$ref`, `allOf`, and unambiguous choices."""
        if level > _MOST_LEVELS:
            raise SchemaDefaultError(f"the input schema is nested too deep at {path or 'its root'!r}")
        if not isinstance(schema, dict):
            return
        yield schema
        if "$ref" in schema:
            yield from self._applying(self._resolved(schema["$ref"], path), value, path, level + 1)
        for each in _list(schema, "allOf", path):
            yield from self._applying(each, value, path, level + 1)
        for key in ("anyOf", "oneOf"):
            fitting = [
                each for each in _list(schema, key, path) if self._allows(each, value, path, level + 1)
            ]
            if len(fitting) == 1:
                yield from self._applying(fitting[0], value, path, level + 1)

    def _allows(self, schema: object, value: Any, path: str, level: int) -> bool:
        """Return whether a choice of `anyOf` or `oneOf` can apply to a value.

        Only types, constants, `enum` and required members are compared.
        """
        if not isinstance(schema, dict):
            return schema is not False
        if level > _MOST_LEVELS:
            raise SchemaDefaultError(f"the input schema is nested too deep at {path!r}")
        if "$ref" in schema and not self._allows(
            self._resolved(schema["$ref"], path), value, path, level + 1
        ):
            return False
        if "type" in schema and not _is_of(schema["type"], value, path):
            return False
        if "const" in schema and not _equal(schema["const"], value):
            return False
        if isinstance(schema.get("enum"), list) and not any(_equal(one, value) for one in schema["enum"]):
            return False
        if isinstance(value, dict):
            if any(name not in value for name in _list(schema, "required", path)):
                return False
            members = _mapping(schema, "properties", path)
            return all(
                self._allows(inner, value[name], _within(path, name), level + 1)
                for name, inner in members.items()
                if name in value
            )
        return all(self._allows(each, value, path, level + 1) for each in _list(schema, "allOf", path))

    def _resolved(self, reference: object, path: str) -> object:
        problem = SchemaDefaultError(
            f"the input schema refers to {_short(reference)} at {path or 'its root'!r}, but does not contain it"
        )
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise problem
        found: Any = self._root
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise problem
            found = found[name]
        return found


def _mapping(schema: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    found = schema.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SchemaDefaultError(
            f"{key!r} of {path or 'the input schema'!r} is {_short(found)}, not an object"
        )
    return found


def _list(schema: Mapping[str, Any], key: str, path: str) -> list[Any]:
    found = schema.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise SchemaDefaultError(
            f"{key!r} of {path or 'the input schema'!r} is {_short(found)}, not an array"
        )
    return found


def _is_of(types: object, value: Any, path: str) -> bool:
    names = types if isinstance(types, list) else [types]
    for name in names:
        if not isinstance(name, str) or name not in _TYPES:
            raise SchemaDefaultError(
                f"the type of {path!r} in the input schema is {_short(types)}, which is unknown"
            )
        if not isinstance(value, _TYPES[name]) or (isinstance(value, bool) and name != "boolean"):
            continue
        if name == "integer" and isinstance(value, float) and not value.is_integer():
            continue
        return True
    return False


def _equal(one: Any, other: Any) -> bool:
    return _exact(one) == _exact(other)


def _exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"  # noqa: PLR2004 - maximum length of a value in an error message


def _within(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
