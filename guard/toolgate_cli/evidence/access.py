"""Access review: who may do what at the end of the period.

The API returns the current state. If something was changed after the end of the period, the audit events since then are
undone. Values that the audit events do not contain are listed as unknown.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from toolgate_cli.agents import AGENTS_PATH
from toolgate_cli.evidence.period import format_time, read_created
from toolgate_cli.evidence.records import Reader

Item = dict[str, Any]
Items = dict[str, Item]

TEAM_PATH: Final = "/api/team"
#: rights of the roles, as `docs/operate/accounts.md` describes them
ROLES: Final = {
    "admin": "everything",
    "member": "manages agents, decides approval requests, freezes",
    "viewer": "only reads",
}
#: kinds of resources whose audit events contain the new values of the changed fields
_REPLAYED: Final = {"agent": "agents", "permission": "permissions", "rule": "rules", "budget": "budgets"}
#: prefixes of the types of audit events that change who may do what
_ACCESS: Final = (
    *("agent.", "permission.", "rule.", "budget.", "team."),
    "organization.networks_changed",
)
#: fields that the review contains; others, such as the masked API key, are left out
_FIELDS: Final = {
    "users": ("id", "email", "role", "created_at"),
    "invitations": ("id", "email", "role", "invited_by", "created_at", "expires_at"),
    # Gateways from before advisory keys do not return `advisory`.
    "keys": ("id", "agent_id", "advisory", "created_by", "created_at"),
    "organization": ("id", "name", "slug", "is_active", "created_at"),
}


@dataclass(slots=True)
class Review:
    """Access at a time.

    Attributes:
        at: the time.
        sections: users, agents, permissions, keys, rules and budgets by id.
        networks: networks from which clients may use API keys; None if they are unknown.
        later: audit events since `at` that changed the access, oldest first.
    """

    at: datetime
    sections: dict[str, Items]
    networks: list[str] | None
    later: list[Item] = field(default_factory=list)
    organization: Item = field(default_factory=dict)
    invitations: list[Item] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the review as values of JSON."""
        return {
            "at": format_time(self.at),
            "undone_changes": len(self.later),
            "organization": self.organization,
            "roles": ROLES,
            **{name: list(items.values()) for name, items in self.sections.items()},
            "allowed_networks": self.networks,
            "open_invitations_at_collection": self.invitations,
        }

    @property
    def unknown(self) -> int:
        """Number of values that the audit events do not contain."""
        items = [item for section in self.sections.values() for item in section.values()]
        return sum(len(item.get("unknown", ())) for item in items) + (self.networks is None)


def is_access_event(event: Mapping[str, Any]) -> bool:
    """Return whether an audit event changed who may do what."""
    return str(event.get("type")).startswith(_ACCESS)


def read_access(reader: Reader, at: datetime) -> Review:
    """Return the current access of an environment, without secrets."""
    team, organization = reader.get(TEAM_PATH), reader.get("/api/organization")
    agents = list(reader.rows(AGENTS_PATH))
    permissions: Items = {}
    keys: Items = {}
    for agent in agents:
        path = f"{AGENTS_PATH}/{agent['id']}"
        permissions |= _by_id(reader.rows(f"{path}/permissions"))
        # The stored login has the scope `cli`, for which the gateway masks keys. The masked key is left out too.
        found = reader.client.get(f"{path}/keys", {"environment": reader.environment})
        keys |= {key["id"]: _select(key, "keys") for key in found}
    sections = {
        "users": {user["id"]: _select(user, "users") for user in team["users"]},
        "agents": _by_id(agents),
        "permissions": permissions,
        "keys": keys,
        "rules": _by_id(reader.rows("/api/rules")),
        "budgets": _by_id(reader.rows("/api/budgets")),
    }
    networks = list(reader.get("/api/organization/allowed-networks")["networks"])
    review = Review(at, sections, networks, organization=_select(organization, "organization"))
    review.invitations = [_select(one, "invitations") for one in team.get("invitations") or ()]
    return review


def undo_changes(review: Review, events: Sequence[Item]) -> None:
    """Change a review of the current access to the access at its time.

    Args:
        review: the current access.
        events: all audit events, oldest first.
    """
    relevant = [event for event in events if is_access_event(event)]
    review.later = [event for event in relevant if read_created(event) >= review.at]
    history = _History([event for event in relevant if read_created(event) < review.at])
    for event in reversed(review.later):
        _undo(review, history, event)
    for event in review.later:
        _restore_fields(review, history, event)


class _History:
    """Audit events from before the time of the review."""

    def __init__(self, events: Sequence[Item]) -> None:
        self._states: dict[str, Item] = defaultdict(dict)
        self._ended: set[str] = set()
        self._keys: dict[str, Item] = {}
        self.networks: list[str] | None = None
        for event in events:
            self._add(event)

    def _add(self, event: Item) -> None:
        resource, changes = str(event.get("resource_id")), event.get("changes") or {}
        kind, _, operation = str(event.get("type")).partition(".")
        if operation == "networks_changed":
            self.networks = list(changes.get("networks") or ())
        elif operation == "key_created":
            advisory = changes.get("advisory") is True
            made: Item = {"agent_id": resource, "advisory": advisory, "created_by": event.get("user_id")}
            self._keys[str(changes.get("key"))] = made | {"created_at": event.get("created_at")}
        elif operation == "key_deleted":
            self._keys.pop(str(changes.get("key")), None)
        elif kind in _REPLAYED and operation in {"created", "updated", "deleted"}:
            if operation == "created":
                started: Item = {"status": "active"} if kind == "agent" else {}
                started |= {"created_by": event.get("user_id"), "created_at": event.get("created_at")}
                self._states[resource] |= started
            self._states[resource] |= changes
            if operation == "deleted":
                self._ended.add(resource)

    def state(self, resource: str) -> Item:
        """Return the known values of a resource."""
        return dict(self._states.get(resource, {}))

    def permissions(self, agent_id: str) -> Iterator[tuple[str, Item]]:
        """Yield the known permissions of an agent."""
        for resource, state in self._states.items():
            if state.get("agent_id") == agent_id and "action" in state and resource not in self._ended:
                yield resource, dict(state)

    def keys(self, agent_id: str) -> Iterator[tuple[str, Item]]:
        """Yield the known API keys of an agent."""
        yield from ((key, made) for key, made in self._keys.items() if made["agent_id"] == agent_id)

    def key(self, key_id: str) -> Item:
        """Return the known values of an API key."""
        return dict(self._keys.get(key_id, {}))


def _undo(review: Review, history: _History, event: Item) -> None:
    """Undo the creation or the deletion of an item, or the change of a role."""
    resource, changes = str(event.get("resource_id")), event.get("changes") or {}
    sections = review.sections
    kind, _, operation = str(event.get("type")).partition(".")
    if kind == "team":
        _undo_team(sections["users"], operation, resource, changes)
    elif operation == "key_created":
        sections["keys"].pop(str(changes.get("key")), None)
    elif operation == "key_deleted":
        key = str(changes.get("key"))
        sections["keys"][key] = _known(key, {"agent_id": resource} | history.key(key), ("created_at",))
    elif operation == "networks_changed":
        review.networks = history.networks
    elif kind in _REPLAYED and operation == "created":
        sections[_REPLAYED[kind]].pop(resource, None)
    elif kind in _REPLAYED and operation == "deleted":
        state = changes | history.state(resource)
        sections[_REPLAYED[kind]][resource] = _known(resource, state, ("created_at",))
        if kind == "agent":
            # The deletion of an agent deletes its permissions and keys, without further audit events.
            sections["permissions"] |= {
                one: _known(one, found) for one, found in history.permissions(resource)
            }
            sections["keys"] |= {one: _known(one, found) for one, found in history.keys(resource)}


def _undo_team(users: Items, operation: str, user_id: str, changes: Mapping[str, Any]) -> None:
    if operation == "joined":
        users.pop(user_id, None)
    elif operation == "removed":
        state = {"email": changes.get("email"), "role": changes.get("role")}
        users[user_id] = _known(user_id, state, ("created_at",))
    elif operation == "role_changed" and user_id in users:
        users[user_id] |= {"role": changes.get("before")}


def _restore_fields(review: Review, history: _History, event: Item) -> None:
    """Set the fields that an update changed to their values from before."""
    kind, _, operation = str(event.get("type")).partition(".")
    items = review.sections.get(_REPLAYED.get(kind, ""), {})
    item = items.get(str(event.get("resource_id")))
    if operation != "updated" or item is None:
        return
    state = history.state(str(event.get("resource_id")))
    for name in event.get("changes") or {}:
        if name in state:
            item[name] = state[name]
        elif name not in item.get("unknown", ()):
            item[name] = None
            item["unknown"] = [*item.get("unknown", ()), name]


def _known(item_id: str, values: Mapping[str, Any], expected: Sequence[str] = ()) -> Item:
    unknown = [name for name in expected if name not in values]
    return {"id": item_id, **values} | ({"unknown": unknown} if unknown else {})


def _select(raw: Mapping[str, Any], section: str) -> Item:
    return {name: raw.get(name) for name in _FIELDS[section]}


def _by_id(rows: Any) -> Items:
    return {row["id"]: dict(row) for row in rows}
