"""Merge of the gateway's policy into the content of a policy file.

The content of the file stays where it has the same meaning: the order of agents, permissions, rules and budgets, and fields
that are missing because they have their default. The defaults are in the JSON Schema of policy documents.
"""

import json
from collections.abc import Collection, Hashable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from toolgate_cli.policy.edits import same

SCHEMA_FILE: Final = Path(__file__).with_name("policy.schema.json")
#: first line of new files, with which editors validate and complete them
HEADER: Final = "# yaml-language-server: $schema={address}\n"
VERSION: Final = "toolgate.policy/v1"

#: lists of the document and the name of their items in a plan
RESOURCES: Final = {"agents": "agent", "permissions": "permission", "rules": "rule", "budgets": "budget"}
#: definitions of these items in the JSON Schema
_DEFINITIONS: Final = {
    "agent": "PolicyAgent",
    "permission": "NewPermission",
    "rule": "NewRule",
    "budget": "NewBudget",
}
#: lists whose order has no meaning
_SETS: Final = frozenset({"agents", "actions", "approvers"})
_MISSING: Final = object()

Fields = Mapping[str, Any]
#: resources of a plan that differ, as pairs of the kind and the name
Changed = Collection[tuple[str, str]]


@cache
def load_schema() -> dict[str, Any]:
    """Return the JSON Schema of policy documents."""
    schema: dict[str, Any] = json.loads(SCHEMA_FILE.read_text())
    return schema


def header() -> str:
    """Return the first line of new policy files."""
    return HEADER.format(address=load_schema()["$id"])


def identity(item: Any) -> Hashable:
    """Return the value by which an item of a list is found in the other version of the list."""
    if not isinstance(item, dict):
        return item if isinstance(item, Hashable) else repr(item)
    if "action" in item and "name" not in item:
        return str(item["action"])
    return str(item.get("id") or item.get("name"))


def without_defaults(policy: dict[str, Any]) -> dict[str, Any]:
    """Return a policy without the fields that have their default, for a new file."""
    return _Merge(load_schema(), None).compact(policy, load_schema())


def is_default(resource: str, field: str, value: Any) -> bool:
    """Return whether a value is the default of a field of an agent, a permission, a rule or a budget."""
    definition = load_schema()["$defs"][_DEFINITIONS[resource]]
    return same(value, definition["properties"].get(field, {}).get("default", _MISSING))


def merge_policy(old: dict[str, Any], new: dict[str, Any], changed: Changed | None = None) -> dict[str, Any]:
    """Return the content of a policy file after an update to the policy `new`.

    Args:
        old: Content of the file.
        new: Policy of the gateway.
        changed: Resources that differ; the others stay the same. None if it is unknown which resources differ.
    """
    return _Merge(load_schema(), changed).object(old, new, load_schema(), "")


class _Merge:
    def __init__(self, schema: Fields, changed: Changed | None) -> None:
        self._definitions = schema["$defs"]
        self._changed = changed

    def object(self, old: Fields, new: Fields, schema: Fields, owner: str) -> dict[str, Any]:
        """Merge two objects; `owner` is the name of the agent that contains them."""
        merged: dict[str, Any] = {}
        for name, before in old.items():
            after = new.get(name, self._default(schema, name))
            if name == "id" and not after:
                # The gateway leaves out the ids of agents that their names identify.
                merged[name] = before
            elif name in RESOURCES and _are_items(before, after):
                merged[name] = self._items(name, before, after or [], self._items_schema(schema, name), owner)
            elif isinstance(before, dict) and isinstance(after, dict):
                merged[name] = self.object(before, after, self._object_schema(schema, name), owner)
            elif after is not None and after is not _MISSING:
                merged[name] = _merge_member(name, before, after)
            elif before is None:
                merged[name] = None
        added = {name: value for name, value in new.items() if name not in old}
        for name in {*RESOURCES} & {*added}:
            if _are_items(added[name], []):
                added[name] = self._items(name, [], added[name], self._items_schema(schema, name), owner)
        return merged | self.compact(added, schema)

    def compact(self, value: Fields, schema: Fields) -> dict[str, Any]:
        """Return an object without the members that have their default."""
        compacted: dict[str, Any] = {}
        for name, member in value.items():
            if same(member, self._default(schema, name)) or (member is None and name == "id"):
                continue
            if name in RESOURCES and _are_items(member, []):
                items = self._items_schema(schema, name)
                compacted[name] = [self.compact(item, items) for item in member]
            elif isinstance(member, dict):
                compacted[name] = self.compact(member, self._object_schema(schema, name))
            else:
                compacted[name] = member
        return compacted

    def _items(self, name: str, old: list[Any], new: list[Any], schema: Fields, owner: str) -> list[Any]:
        left = list(new)
        merged = []
        for before in old:
            after = next((one for one in left if _is_counterpart(before, one)), None)
            if after is not None:
                left.remove(after)
                merged.append(self._item(name, before, after, schema, owner))
            elif not self._has_changed(RESOURCES[name], _name_of(before, owner)):
                merged.append(before)
        added = [item for item in left if self._has_changed(RESOURCES[name], _name_of(item, owner))]
        return [*merged, *(self.compact(item, schema) for item in added)]

    def _item(self, name: str, before: Fields, after: Fields, schema: Fields, owner: str) -> Fields:
        own = _name_of(before, owner)
        if name == "agents":
            merged = self.object(before, after, schema, own)
            if self._has_changed("agent", own):
                return merged
            # Only the permissions of the agent can differ.
            kept = {field: value for field, value in before.items() if field != "permissions"}
            return {
                field: kept.get(field, value)
                for field, value in merged.items()
                if field in before or field == "permissions"
            }
        if not self._has_changed(RESOURCES[name], own):
            return before
        return self.object(before, after, schema, owner)

    def _has_changed(self, resource: str, name: str) -> bool:
        return self._changed is None or (resource, name) in self._changed

    def _default(self, schema: Fields, name: str) -> Any:
        member = schema.get("properties", {}).get(name, {})
        if name in RESOURCES and self._items_schema(schema, name):
            return []
        return member.get("default", _MISSING)

    def _items_schema(self, schema: Fields, name: str) -> Fields:
        items = schema.get("properties", {}).get(name, {}).get("items", {})
        return self._resolve(items) if "$ref" in items else {}

    def _object_schema(self, schema: Fields, name: str) -> Fields:
        member = schema.get("properties", {}).get(name, {})
        options = [member, *member.get("anyOf", ())]
        return next((self._resolve(one) for one in options if "$ref" in one), {})

    def _resolve(self, reference: Fields) -> Fields:
        found: Fields = self._definitions[reference["$ref"].rpartition("/")[2]]
        return found


def _are_items(before: Any, after: Any) -> bool:
    return (
        isinstance(before, list)
        and isinstance(after, list)
        and all(isinstance(one, dict) for one in (*before, *after))
    )


def _name_of(item: Fields, owner: str) -> str:
    """Return the name of an item in a plan; the name of a permission begins with that of its agent `owner`."""
    return str(item["name"]) if "name" in item else f"{owner} {item.get('action')}"


def _is_counterpart(before: Fields, after: Fields) -> bool:
    if before.get("id") and after.get("id"):
        return bool(before["id"] == after["id"])
    name = "name" if "name" in before else "action"
    return name in before and before[name] == after.get(name)


def _merge_member(name: str, before: Any, after: Any) -> Any:
    if name not in _SETS or not isinstance(before, list) or not isinstance(after, list):
        return before if same(before, after) else after
    # The order of the list has no meaning, and neither has the case of e-mail addresses.
    new = {_key(name, one): one for one in after}
    old = {_key(name, one): one for one in before}
    if old.keys() == new.keys():
        return before
    return [one for key, one in old.items() if key in new] + [
        one for key, one in new.items() if key not in old
    ]


def _key(name: str, value: Any) -> str:
    return str(value).lower() if name == "approvers" else str(value)
