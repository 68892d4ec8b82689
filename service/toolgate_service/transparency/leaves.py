"""Leaves of the transparency log: their format, and the salted digests of the rows that they describe.

A leaf is canonical JSON of less than 1,000 bytes. It contains ids, times and outcomes of a row, and salted digests of
the complete row. The salts are stored in the row. The leaf and all proofs remain valid after the row is deleted, or
after its context and the salt of the context are erased. Without the salt, the deleted content cannot be found by
trying values.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring
from typing import NamedTuple, TypeAlias

from pydantic_core import to_json

from toolgate_service.core.clock import wire
from toolgate_service.core.ids import is_id

DECISION = "decision"
LOG_ENTRY = "log_entry"
APPROVAL = "approval"
VOTE = "vote"
AUDIT_EVENT = "audit_event"
POLICY_REVISION = "policy_revision"
START = "start"
RETENTION = "retention"
ERASURE = "erasure"
#: value of the member `of` in a `retention` leaf that announces the deletion of the contexts of decisions
CONTEXT = "context"

#: number of hexadecimal digits of one salt
SALT_DIGITS = 32
#: maximum number of bytes of an action in a leaf, as a JSON string; leaves do not contain longer actions
MAX_ACTION = 257

Value: TypeAlias = str | int | bool | datetime | Decimal | None
#: value of a member of a leaf
Member: TypeAlias = str | int | Mapping[str, int] | None

#: columns that the row digest of a leaf covers, by kind of leaf
COLUMNS: Mapping[str, tuple[str, ...]] = {
    DECISION: (
        "action", "agent_id", "approval_id", "call_id", "created_at", "id", "key_id", "outcome", "permission_id",
        "policy_revision", "reason_code", "requested_agent", "rule_id", "run_id",
    ),
    LOG_ENTRY: (
        "action", "address_seen", "agent_id", "approval_id", "call_id", "created_at", "decision_id", "id", "ip_address",
        "key_id", "occurred_at", "run_id", "status",
    ),
    VOTE: ("approval_id", "created_at", "credential", "decision", "note", "user_id"),
    AUDIT_EVENT: (
        "changes", "created_at", "environment", "id", "ip_address", "kind", "resource_id", "user_id",
    ),
    POLICY_REVISION: (
        "changes", "created_at", "created_by", "digest", "document", "id", "message", "number", "restores",
    ),
}  # fmt: skip

_ASKED = ("budget_id", "call_id", "created_at", "key_id", "permission_id", "replaces", "run_id")
# These columns can still change while a request is pending: a further check of the same call can tighten the terms of
# the request, and the decision of an approver sets the other columns.
_DECIDED = (
    "amount_required", "approvers", "decided_at", "decided_by", "makers", "max_amount", "note", "required_approvals",
    "rule_id", "separation_of_duties",
)  # fmt: skip
_ENDED = (
    "cancel_reason", "cancelled_at", "consumed_at", "consumed_call_id", "decision_id", "expires_at", "grant_id",
    "replaced_by",
)  # fmt: skip
#: columns that the digest in the leaf of an approval request covers, by the state of the request: the columns that no
#: longer change after the request has reached this state
APPROVAL_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "pending": _ASKED,
    "approved": tuple(sorted(_ASKED + _DECIDED)),
    **dict.fromkeys(
        ("denied", "expired", "cancelled", "replaced", "consumed"), tuple(sorted(_ASKED + _DECIDED + _ENDED))
    ),
}
#: columns of an approval request that its approvers see
SHOWN_COLUMNS = ("action", "agent_id", "context", "id", "reason")
#: all columns of an approval request in an export
EXPORTED_APPROVAL = tuple(sorted({*SHOWN_COLUMNS, "status", *APPROVAL_COLUMNS["consumed"]}))

#: size in bytes of the big-endian length prefix of each leaf in a chunk and in an entry bundle
_LENGTH_BYTES = 2


class Leaf(NamedTuple):
    """Leaf that has no position in a log yet, and the environment whose log it belongs to."""

    organization_id: str
    environment: str
    at: datetime
    data: bytes


def new_salts() -> str:
    """Return the value of the column `salt` for a row with a context: a row salt and a context salt."""
    return os.urandom(SALT_DIGITS).hex()


def new_salt() -> str:
    """Return the value of the column `salt` for a row without a context."""
    return os.urandom(SALT_DIGITS // 2).hex()


def write_object(columns: Iterable[str], values: Iterable[Value]) -> bytes:
    """Return the canonical JSON of a row. `columns` must be sorted."""
    # Use the encoder of pydantic, because it takes a third of the time of `json`, and each check and each log entry
    # writes two objects.
    texts = [wire(value) if isinstance(value, datetime) else value for value in values]
    return to_json(dict(zip(columns, texts, strict=True)))


@lru_cache(maxsize=1024)
def _sorted(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(names))


@lru_cache(maxsize=1024)
def is_short(action: str) -> bool:
    """Return whether an action is short enough to be part of a leaf."""
    return len(encode_basestring(action).encode()) <= MAX_ACTION


def salted(salt: str, text: bytes) -> str:
    """Return the SHA-256 digest of a salt, given in hexadecimal digits, and a text."""
    return sha256(bytes.fromhex(salt) + text).hexdigest()


def row_digest(kind: str, values: Iterable[Value], salt: str) -> str:
    """Return the digest of a row, salted with the first half of `salt`. `values` has the order of `COLUMNS[kind]`."""
    return salted(salt[:SALT_DIGITS], write_object(COLUMNS[kind], values))


def context_digest(context: bytes, salt: str) -> str:
    """Return the digest of a context, salted with the second half of `salt`."""
    return salted(salt[SALT_DIGITS:], context)


def build_leaf(kind: str, organization_id: str, environment: str, at: datetime, **members: Member) -> Leaf:
    """Return a leaf with these members. Members that are None, and an action that is too long, are omitted."""
    action = members.get("action")
    if isinstance(action, str) and not is_short(action):
        members["action"] = None
    members |= {"v": 1, "kind": kind, "at": wire(at)}
    names = _sorted(tuple(members))
    data = to_json({name: members[name] for name in names if members[name] is not None})
    return Leaf(organization_id, environment, at, data)


def reference(text: str | None) -> str | None:
    """Return the text if it has the format of an id; otherwise None. The text may come from a client."""
    return text if text is not None and is_id(text) else None


def pack(leaves: Iterable[bytes]) -> bytes:
    """Concatenate leaves to an entry bundle: the length of each leaf in two bytes, then the leaf."""
    return b"".join([len(leaf).to_bytes(_LENGTH_BYTES) + leaf for leaf in leaves])


def unpack(data: bytes) -> Iterator[bytes]:
    """Yield the leaves that `pack` has concatenated."""
    position = 0
    while position < len(data):
        start = position + _LENGTH_BYTES
        position = start + int.from_bytes(data[position:start])
        yield data[start:position]
