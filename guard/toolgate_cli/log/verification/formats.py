"""Formats of leaves and rows.

One regular expression per kind checks that a leaf is canonical JSON and extracts its members. This is several times
faster than parsing the leaf and serializing it again.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple, NoReturn

from .notes import show

Matcher = Callable[[bytes], "re.Match[bytes] | None"]

MAX_LEAF: Final = 1000
#: maximum bytes of an action in a leaf, as JSON without the quotes; a leaf has no action if the row's action is longer
MAX_ACTION: Final = 255

# A JSON string with only the escapes that JSON requires, without and with a group around its content.
_TEXT = rb'"%b[^"\\\x00-\x1f]*+(?:\\(?:["\\bfnrt]|u00(?:0[0-7bef]|1[0-9a-f]))[^"\\\x00-\x1f]*+)*+%b"'
_ANY_STRING, _STRING = _TEXT % (b"", b""), _TEXT % (b"(", b")")
_TIME = rb'"(\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z)"'
_INTEGER = rb"(0|[1-9][0-9]{0,17})"
_HASH = rb'"([0-9a-f]{64})"'
_SALT = rb'"([0-9a-f]{32}(?:[0-9a-f]{32})?)"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_MEMBERS = {
    **dict.fromkeys(("at", "before"), _TIME),
    **dict.fromkeys(("digest", "context", "shown"), _HASH),
    **dict.fromkeys(("number", "rev"), _INTEGER),
    "earlier": rb'(\{(?:"[a-z_]+":[1-9][0-9]{0,17},?)*+\})',
    "state": rb'"(pending|approved|denied|expired|cancelled|replaced|consumed)"',
}
_OUTCOMES = {
    "decision": rb'"(allowed|denied|approval_required)"',
    "log_entry": rb'"(success|failed|pending|denied)"',
    "vote": rb'"(approved|denied)"',
}
_OPTIONAL: Final = {
    "decision": "action? agent? approval? at context digest id outcome reason rev?",
    "log_entry": "action? agent approval? at context? decision? digest id outcome",
    "vote": "at by digest id outcome",
    "audit_event": "at by? digest id type",
    "policy_revision": "at by? digest id number",
    "approval": "action? agent at by? decision? digest id shown state",
    "start": "at earlier id",
    "retention": "at before id of",
    "erasure": "at by id of",
}
#: kind of leaf → its members, sorted, without those that all leaves of a log have in common
LEAVES: Final = {kind: tuple(names.replace("?", "").split()) for kind, names in _OPTIONAL.items()}
# Columns in the content of a row. A colon is followed by the member of the leaf that must be equal.
_COLUMNS = {
    "decision": "action:action agent_id:agent approval_id:approval call_id created_at:at id:id key_id outcome:outcome "
    " permission_id policy_revision:rev reason_code:reason requested_agent rule_id run_id",
    "log_entry": "action:action address_seen agent_id:agent approval_id:approval call_id created_at:at "
    "decision_id:decision id:id ip_address key_id occurred_at run_id status:outcome",
    "vote": "approval_id:id created_at credential decision:outcome note user_id:by",
    "audit_event": "changes created_at:at environment id:id ip_address kind:type resource_id user_id:by",
    "policy_revision": "changes created_at:at created_by:by digest document id:id message number:number restores",
    "approval": "action:action agent_id:agent context id:id reason status",
}
#: kind of row → its columns, each with the member of the leaf that must be equal, or an empty text
COLUMNS: Final = {
    kind: [(name, member) for name, _, member in (each.partition(":") for each in names.split())]
    for kind, names in _COLUMNS.items()
}
_ASKED = ("budget_id", "call_id", "created_at", "key_id", "permission_id", "replaces", "run_id")
_DECIDED = (
    *("amount_required", "approvers", "decided_at", "decided_by", "makers", "max_amount", "note"),
    *("required_approvals", "rule_id", "separation_of_duties"),
)
_ENDED = (
    *("cancel_reason", "cancelled_at", "consumed_at", "consumed_call_id", "decision_id", "expires_at"),
    *("grant_id", "replaced_by"),
)
#: state of an approval → columns that do not change once the state is reached; the leaf contains their digest
STATES: Final = {
    "pending": _ASKED,
    "approved": _ASKED + _DECIDED,
    **dict.fromkeys(("denied", "expired", "cancelled", "replaced", "consumed"), _ASKED + _DECIDED + _ENDED),
}
#: column of an approval that is empty until it has one of these states
SET_BY: Final = {
    **dict.fromkeys(("decided_by", "note"), frozenset({b"approved", b"denied", b"replaced"})),
    "decided_at": frozenset({b"approved", b"denied", b"replaced", b"consumed"}),
    "grant_id": frozenset({b"approved", b"denied", b"expired", b"cancelled", b"replaced", b"consumed"}),
    "replaced_by": frozenset({b"replaced"}),
    **dict.fromkeys(("cancel_reason", "cancelled_at"), frozenset({b"cancelled"})),
    **dict.fromkeys(("consumed_at", "consumed_call_id", "decision_id"), frozenset({b"consumed"})),
}
#: kinds whose rows may have a context beside their content
CONTEXTS: Final = ("decision", "log_entry")


def _compile(members: Iterable[tuple[str, bytes, bool]]) -> Matcher:
    *parts, last = (rb'(?:"%b":%b,)%b' % (n.encode(), p, b"?" if o else b"") for n, p, o in sorted(members))
    return re.compile(rb"\{" + b"".join(parts) + last.replace(b",)", b")") + rb"\}").fullmatch


def leaf_matcher(kind: str) -> Matcher:
    """Return a function that matches the leaves of a kind.

    The groups of the match are the members in `LEAVES`.
    """
    members = [("kind", canonical(kind), False)]
    for name in _OPTIONAL[kind].split():
        pattern = _OUTCOMES[kind] if name == "outcome" else _MEMBERS.get(name.rstrip("?"), _STRING)
        members.append((name.rstrip("?"), pattern, name.endswith("?")))
    return _compile([*members, ("v", b"1", False)])


def _line_matcher(kind: str) -> Matcher:
    """Return a function that matches the line of a row whose content has no escapes except those of quotation marks.

    The first groups are those of `split_row`; the others are the columns that the leaf contains, or None.
    """
    inner = rb'[^"\\\x00-\x1f]*+'
    text, integer = rb'(?:null|\\"(%b)\\")' % inner, rb"(?:null|%b)" % _INTEGER
    scalar = rb'(?:null|true|false|-?(?:0|[1-9][0-9]*+)|\\"%b\\")' % inner
    patterns = {"": scalar, "rev": integer}
    columns = (
        rb'\\"%b\\":%b' % (name.encode(), patterns.get(member, text)) for name, member in COLUMNS[kind]
    )
    context = rb"(null|%b)" % _ANY_STRING
    members = {
        "decision": rb',"context":(%b,"context_digest":"([0-9a-f]*)")' % context,
        "log_entry": rb',"context":(%b)()' % context,
    }.get(kind, b"()()()")
    salts = rb'"([0-9a-f]{32})([0-9a-f]{32})?"'
    row = rb'"(\{%b\})"' % b",".join(columns)
    return re.compile(
        rb'\{"kind":"%b","salt":%b%b,"row":%b\}' % (kind.encode(), salts, members, row)
    ).fullmatch


_LINES = {kind[:4].encode(): (kind, _line_matcher(kind)) for kind in ("decision", "log_entry", "vote")}
_KIND_PLACE = slice(len('{"kind":"'), len('{"kind":"') + 4)
LEAF_KIND: Final = re.compile(rb'"kind":"([a-z_]+)"').search
IS_TIME: Final = re.compile(_TIME.replace(b'"', b"")).fullmatch
IS_ID: Final = re.compile(rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}").fullmatch
_CANONICAL = re.compile(
    rb"(?:[{}\[\],:]|null|true|false|" + _NUMBER + rb"|" + _ANY_STRING + rb")*+"
).fullmatch
_IS_SALT = re.compile(_SALT.replace(b'"', b"")).fullmatch


def pick(kind: str, *names: str) -> Callable[[Sequence[Any]], Any]:
    """Return a function that returns members of a leaf: one value for one name, otherwise a tuple."""
    return itemgetter(*(LEAVES[kind].index(name) for name in names))


def canonical(value: Any) -> bytes:
    """Return a value as canonical JSON."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def plain(value: Any) -> bytes | None:
    """Return the canonical JSON of a string without its quotes, or of an integer; None for null.

    Raises:
        ValueError: the value has another type.
    """
    if isinstance(value, str):
        return canonical(value)[1:-1]
    if value is None or type(value) is int:
        return None if value is None else str(value).encode()
    raise ValueError(f"{show(value)} is neither a string nor an integer")


def unescape(text: bytes) -> bytes:
    """Return the content of a valid JSON string without escapes."""
    # Most escapes are those of quotation marks. Every other escape leaves a backslash behind.
    content = text.replace(b'\\"', b'"')
    return str(json.loads(b'"%b"' % text)).encode() if b"\\" in content else content


def earlier(time: bytes, duration: timedelta) -> bytes:
    """Return a time minus a duration; times in the form of the log sort as texts."""
    try:
        moved = datetime.fromisoformat(time.decode()) - duration
    except (ValueError, OverflowError):
        return time
    return moved.isoformat(timespec="microseconds").replace("+00:00", "Z").encode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has two members with the same name")
    return members


def _ascending(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if any(one[0] >= two[0] for one, two in pairwise(pairs)):
        raise ValueError("the names of an object's members are not sorted")
    return dict(pairs)


def _reject(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse_json(text: bytes, *, is_sorted: bool = False) -> Any:
    """Parse JSON strictly.

    Raises:
        ValueError: the text is not UTF-8 or not JSON, is nested too deeply, or contains an object with duplicate names
            or, if `is_sorted` is true, with names that are not sorted.
    """
    try:
        hook = _ascending if is_sorted else _unique
        return json.loads(text.decode(), object_pairs_hook=hook, parse_constant=_reject)
    except RecursionError:
        raise ValueError("the JSON value is nested too deeply") from None


def parse_row(kind: str, row: bytes) -> dict[str, Any]:
    """Parse the content of a row.

    Raises:
        ValueError: it is not canonical JSON, or its columns are not those of the kind.
    """
    fields = parse_json(row, is_sorted=True)
    states = {column for columns in STATES.values() for column in columns} if kind == "approval" else ()
    if not isinstance(fields, dict) or set(fields) != {name for name, _ in COLUMNS[kind]}.union(states):
        raise ValueError(f"the columns of the row are not the columns of the kind {kind}")
    if not _CANONICAL(row):
        raise ValueError("the content of the row is not canonical JSON")
    return fields


class RowLine(NamedTuple):
    """Line of a row.

    Attributes:
        salted: the text whose digest is the member `context` of the leaf; None if the row has no context.
        has_context: whether the context is not null.
        context_digest: for a decision, the digest of the context that rules and approvals use, else None.
        content: the columns of the row as canonical JSON.
        columns: the columns that the leaf contains, as they are written there; None if the content was not parsed.
    """

    kind: str
    salt: bytes | None
    salted: bytes | None
    has_context: bool
    context_digest: bytes | None
    content: bytes
    columns: tuple[bytes | None, ...] | None


def split_row(line: bytes) -> RowLine:
    """Parse the line of a row.

    Raises:
        ValueError: the line is malformed.
    """
    kind, matcher = _LINES.get(line[_KIND_PLACE], ("", None))
    found = matcher(line) if matcher else None
    if found is None or not (line.isascii() or is_utf8(line)):
        return _parse_line(line)
    salt, context_salt, members, context, digest, content, *columns = found.groups()
    has_context = context not in {b"", b"null"}
    # The members of a line that matches are canonical JSON.
    salted: bytes | None = b'{"context":%b}' % members
    if kind != "decision":
        salted = unescape(context[1:-1]) if has_context else None
    salts = salt + context_salt if context_salt else salt
    rest = digest if kind == "decision" else None
    # The content of such a line contains backslashes only before quotation marks.
    return RowLine(kind, salts, salted, has_context, rest, content.translate(None, b"\\"), tuple(columns))


def _parse_line(line: bytes) -> RowLine:
    members = parse_json(line)
    if not isinstance(members, dict) or set(members) - {"context", "context_digest"} != {
        "kind",
        "salt",
        "row",
    }:
        raise ValueError("expected the members kind, salt, context and row")
    kind, content = (_encode(members[name]) for name in ("kind", "row"))
    salt, context, digest = (
        None if members.get(name) is None else _encode(members[name])
        for name in ("salt", "context", "context_digest")
    )
    if salt is not None and not _IS_SALT(salt):
        raise ValueError("the salt is malformed")
    salted = context
    if digest is not None:
        salted = canonical({name: members.get(name) for name in ("context", "context_digest")})
    return RowLine(kind.decode(), salt, salted, context is not None, digest, content, None)


def _encode(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    raise ValueError(f"{show(value)} is not a string")


def is_utf8(text: bytes) -> bool:
    """Return whether bytes are valid UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
