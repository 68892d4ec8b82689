"""Comparison of the rows in an export with the leaves of its log."""

from binascii import unhexlify
from collections import Counter
from datetime import timedelta
from hashlib import sha256
from operator import itemgetter
from typing import Any, Final

from .formats import (
    COLUMNS,
    CONTEXTS,
    IS_ID,
    IS_TIME,
    LEAF_KIND,
    LEAVES,
    MAX_ACTION,
    MAX_LEAF,
    SET_BY,
    STATES,
    canonical,
    earlier,
    is_utf8,
    leaf_matcher,
    parse_json,
    parse_row,
    pick,
    plain,
    split_row,
)
from .notes import show
from .results import Result

#: hexadecimal digits of the salt of a row; those of the salt of its context follow
_SALT_DIGITS: Final = 32
#: age from which an allowed decision without a log entry is a gap
_UNUSED_AFTER: Final = timedelta(minutes=15)
#: age up to which a leaf may be pending
_MAX_PENDING_AGE: Final = timedelta(seconds=60)
# State of an approval → the member of its leaf and the column of its row that must agree.
_DECIDED = {
    **dict.fromkeys((b"approved", b"denied", b"replaced"), ("by", "decided_by")),
    b"consumed": ("decision", "decision_id"),
}
#: Values of columns of an approval before a state sets them; the others are null.
_UNSET = {"consumed_call_id": ""}


def _compared(kind: str) -> tuple[str, ...]:
    """Return the members of a leaf that are compared with a row, in the order of the row's columns."""
    digests = ("digest", "shown") if kind == "approval" else ("digest",)
    context = ("context",) if kind in CONTEXTS else ()
    return (*(member for _, member in COLUMNS[kind] if member), *context, *digests)


_COMPARED = {kind: _compared(kind) for kind in COLUMNS}
_PICK = {kind: pick(kind, *names) for kind, names in _COMPARED.items()}
_AT = {kind: pick(kind, "at") for kind in LEAVES}
# An approval has one leaf for each of its states, and a vote has the id of its approval.
_KEYS = {kind: {"vote": ("id", "by"), "approval": ("id", "state")}.get(kind, ("id",)) for kind in COLUMNS}
_LEAF_KEY = {kind: pick(kind, *names) for kind, names in _KEYS.items()}
_ROW_KEY = {
    kind: itemgetter(*(_COMPARED[kind].index(name) for name in names if name != "state"))
    for kind, names in _KEYS.items()
}


class Rows:
    """Leaves of an export, and the comparison of its rows with them; add all leaves before the first row."""

    def __init__(self, result: Result, environment: str) -> None:
        self.result = result
        self._environment = environment
        self._grammars = {kind.encode(): (kind, leaf_matcher(kind)) for kind in LEAVES}
        #: kind → key → (position of the leaf, its members); approvals have one leaf per state
        self._leaves: dict[str, dict[Any, tuple[int, tuple[bytes, ...]]]] = {kind: {} for kind in COLUMNS}
        self._states: dict[bytes, list[bytes]] = {}
        self._done = bytearray()
        self._removed: dict[bytes, bytes] = {}
        self._erased: set[tuple[bytes, bytes]] = set()
        self._start = b""
        self._is_sealed = True
        self._earlier: Counter[str] = Counter()
        self._unlogged: set[tuple[str, Any]] = set()
        #: time of the leaf that was added last
        self.last = b""

    def add_leaf(self, leaf: bytes, line: int) -> None:
        """Add a leaf."""
        position, found = len(self._done), LEAF_KIND(leaf)
        self._done.append(0)
        kind, grammar = self._grammars.get(found[1] if found else b"", ("", None))
        match = grammar(leaf) if grammar else None
        if match is None or len(leaf) >= MAX_LEAF or not (leaf.isascii() or is_utf8(leaf)):
            return self.result.find(
                "leaf", f"leaf {position} is not a valid leaf of this log: {show(leaf)}", line
            )
        members = match.groups()
        self.last = _AT[kind](members)
        if (kind == "start") != (position == 0):
            self.result.find(
                "start",
                f"leaf {position} is of the kind {kind}; leaf 0, and no other leaf, must be of the kind start",
                line,
            )
        if kind not in COLUMNS:
            return self._add_event(kind, members, position, line)
        key = _LEAF_KEY[kind](members)
        if kind == "approval":
            self._states.setdefault(key[0], []).append(key[1])
        former = self._leaves[kind].get(key)
        self._leaves[kind][key] = position, members
        if former is not None and kind == "vote":
            # An approver who approved and then denies replaces the vote.
            self._done[former[0]] = 1
        elif former is not None:
            text = f"leaf {position} repeats the {kind} {_name(key)} of leaf {former[0]}"
            self.result.find("duplicate", text, line)
        return None

    def _add_event(self, kind: str, members: tuple[bytes, ...], position: int, line: int) -> None:
        self._done[position] = 1
        event = dict(zip(LEAVES[kind], members, strict=True))
        if kind == "start":
            self._start = event["at"]
            try:
                self._earlier.update(parse_json(event["earlier"], is_sorted=True))
            except ValueError:
                self.result.find(
                    "leaf",
                    (
                        f"leaf {position} contains malformed counts of the rows that are older than the transparency log"
                    ),
                    line,
                )
        elif not self._is_sealed:
            # A pending leaf is not signed: it must not excuse a row that is missing.
            self.result.notes.append(
                f"the {kind} in leaf {position} is ignored, because no signed checkpoint covers this leaf yet"
            )
        elif kind == "retention":
            self._removed[event["of"]] = max(event["before"], self._removed.get(event["of"], b""))
            if event["before"] > event["at"]:
                self.result.find(
                    "retention",
                    (f"leaf {position} announces the removal of rows that are newer than the leaf"),
                    line,
                )
        else:
            self._erased.add((event["of"], event["id"]))

    def add_pending(self, leaf: bytes, line: int, exported_at: bytes) -> None:
        """Add a leaf that is committed, but not sealed yet."""
        self.result.counts["pending leaves"] += 1
        self.last = b""
        self._is_sealed = False
        self.add_leaf(leaf, line)
        if self.last < earlier(exported_at, _MAX_PENDING_AGE):
            self.result.find(
                "pending",
                (
                    f"the pending leaf {len(self._done) - 1} is too old; a signed checkpoint should cover it by "
                    "now"
                ),
                line,
            )

    def add_row(self, text: bytes, line: int) -> None:
        """Compare a row with its leaf.

        Raises:
            ValueError: the line is malformed.
        """
        row = split_row(text)
        kind, salt = row.kind, row.salt
        if kind not in COLUMNS:
            raise ValueError(f"unknown kind {show(kind)}")
        if (kind == "decision") != (row.context_digest is not None):
            raise ValueError(
                "a decision must contain the digest of a context, and a row of another kind must not contain "
                "one"
            )
        self.result.counts[kind] += 1
        columns = row.columns
        if columns is None:
            fields = parse_row(kind, row.content)
            columns = tuple(plain(fields[column]) for column, member in COLUMNS[kind] if member)
            if kind == "approval":
                return self._add_approval(columns, salt, fields, line)
            if kind == "audit_event" and (fields["environment"] or "production") != self._environment:
                raise ValueError("the row belongs to another environment")
        key = _ROW_KEY[kind](columns)
        leaf = self._leaves[kind].get(key)
        if leaf is None or salt is None or self._done[leaf[0]]:
            return self._add_unmatched(kind, key, leaf, salt, row.content, line)
        self._done[leaf[0]] = 1
        if kind in CONTEXTS:
            # A retention of the contexts of decisions also removes the salt.
            is_salted = row.salted is not None and not (kind == "decision" and len(salt) == _SALT_DIGITS)
            columns += (_digest(salt[_SALT_DIGITS:], row.salted or b"") if is_salted else None,)
        elif row.has_context:
            raise ValueError("rows of this kind must not contain the field 'context'")
        columns += (_digest(salt[:_SALT_DIGITS], row.content),)
        if columns != _PICK[kind](leaf[1]) or (self._erased and (kind.encode(), key) in self._erased):
            has_rest = row.has_context or bool(row.context_digest)
            self._explain(
                kind, key, leaf, columns, salt, line, has_context=row.has_context, has_rest=has_rest
            )
        return None

    def _add_unmatched(
        self, kind: str, key: Any, leaf: Any, salt: bytes | None, row: bytes, line: int
    ) -> None:
        """Check a row that has no leaf, has no salt, or occurs twice."""
        what = f"the {kind} {_name(key)}"
        if leaf is not None and salt is None:
            self.result.find("salt", f"{what} has a leaf, but its row contains no salt", line)
            self._done[leaf[0]] = 1
        elif leaf is not None or (kind, key) in self._unlogged:
            self.result.find("duplicate", f"{what} occurs twice", line)
        else:
            created = str(parse_json(row)["created_at"]).encode()
            self._unlogged.add((kind, key))
            self._earlier[kind] -= 1
            self.result.counts["rows older than the transparency log"] += 1
            if salt is not None or not IS_TIME(created) or created >= self._start or self._earlier[kind] < 0:
                self.result.find(
                    "no_leaf", f"{what} has no leaf, although it is not older than the log", line
                )

    def _explain(
        self,
        kind: str,
        key: Any,
        leaf: Any,
        columns: Any,
        salt: bytes,
        line: int,
        *,
        has_context: bool,
        has_rest: bool,
    ) -> None:
        """Add findings about the differences between a row and its leaf.

        An erasure and a retention remove the context from the row; only an erasure removes the rest, such as its digest.
        """
        position, members = leaf
        what = f"the {kind} {_name(key)}"
        is_erased = (kind.encode(), key) in self._erased
        if is_erased and (has_rest or len(salt) > _SALT_DIGITS):
            self.result.find(
                "erasure",
                (f"{what} still contains the context or the salt, which the log records as erased"),
                line,
            )
        for name, logged, found in zip(_COMPARED[kind], _PICK[kind](members), columns, strict=True):
            if logged == found:
                continue
            if name == "context" and found is None and not has_context:
                limit = self._removed.get(b"context", b"") if kind == "decision" else b""
                if is_erased or _AT[kind](members) < limit:
                    self.result.counts["erased contexts"] += 1
                else:
                    self.result.find(
                        "context", f"{what} lost its context without an erasure in the log", line
                    )
            elif name in {"context", "digest", "shown"}:
                subject = {
                    "context": "its context",
                    "digest": "its content",
                    "shown": "the content that was shown",
                }
                text = f"{what} was changed: {subject[name]} or salt does not match leaf {position}"
                self.result.find(name, text, line)
            elif not _may_be_absent(kind, name, logged, found):
                text = f"{what} has {name} {show(found)}, but leaf {position} has {show(logged)}"
                self.result.find("member", text, line)

    def _add_approval(self, columns: Any, salt: bytes | None, fields: dict[str, Any], line: int) -> None:
        """Compare an approval with the leaf of each of its states."""
        key = _ROW_KEY["approval"](columns)
        states = self._states.get(key, [])
        leaves = [self._leaves["approval"][key, state] for state in states]
        if not states or salt is None or self._done[leaves[0][0]]:
            row = canonical(fields)
            return self._add_unmatched("approval", key, leaves[0] if leaves else None, salt, row, line)
        if plain(fields["status"]) != states[-1]:
            text = f"is {show(fields['status'])}, but its last leaf has the state {show(states[-1])}"
            self.result.find("state", f"the approval {_name(key)} {text}", line)
        if states[0] == b"pending":
            self._check_future_states(key, states, fields, line)
        visible = canonical(
            {name: fields[name] for name in ("action", "agent_id", "context", "id", "reason")}
        )
        shown = _digest(salt[_SALT_DIGITS:], visible)
        is_empty = fields["context"] == "{}" and fields["reason"] is None
        is_erased = is_empty and (b"approval", key) in self._erased
        self.result.counts["erased contexts"] += is_erased
        for state, leaf in zip(states, leaves, strict=True):
            self._done[leaf[0]] = 1
            members = dict(zip(LEAVES["approval"], leaf[1], strict=True))
            digest = _digest(
                salt[:_SALT_DIGITS], canonical({name: fields[name] for name in STATES[state.decode()]})
            )
            found = (*columns, digest, members["shown"] if is_erased else shown)
            self._explain(
                *("approval", key, leaf, found, salt, line), has_context=not is_empty, has_rest=not is_empty
            )
            name, column = _DECIDED.get(state, ("", ""))
            if name and members[name] != plain(fields[column]):
                text = f"has {column} {show(fields[column])}, but leaf {leaf[0]} has {show(members[name])}"
                self.result.find("member", f"the approval {_name(key)} {text}", line)
        return None

    def _check_future_states(self, key: Any, states: list[bytes], fields: dict[str, Any], line: int) -> None:
        """Check that the columns that only later states set are empty."""
        for column, setters in SET_BY.items():
            if fields[column] != _UNSET.get(column) and not setters.intersection(states):
                text = f"has {column} {show(fields[column])}, but no leaf has the state that sets it"
                self.result.find("state", f"the approval {_name(key)} {text}", line)

    def finish(self) -> None:
        """Find missing rows and gaps, after all rows were added."""
        for kind, leaves in self._leaves.items():
            self.result.counts[f"leaves: {kind}"] += len(leaves)
            for key, (position, members) in leaves.items():
                if self._done[position]:
                    continue
                if self._is_removed(kind, key, _AT[kind](members)):
                    self.result.counts["rows removed by retention"] += 1
                else:
                    self.result.find(
                        "missing_row", f"the row of leaf {position} is missing: {kind} {_name(key)}"
                    )
        for removed, before in sorted(self._removed.items()):
            self.result.notes.append(
                f"the log announces that rows of the kind {removed.decode()} from before {before.decode()} may be removed"
            )
        self._find_gaps()

    def _is_removed(self, kind: str, key: Any, time: bytes) -> bool:
        """Return whether a retention in the log removed a row."""
        if kind not in {"approval", "vote"}:
            return time < self._removed.get(kind.encode(), b"")
        # A vote is removed with its approval, which is removed by the time of its first state.
        limit = self._removed.get(b"approval", b"")
        first = self._leaves["approval"].get((key[0], b"pending"))
        return _AT["approval"](first[1]) < limit if first else bool(limit)

    def _find_gaps(self) -> None:
        decisions, entries = self._leaves["decision"], self._leaves["log_entry"]
        decision_of, outcome_of = pick("log_entry", "decision"), pick("decision", "outcome")
        named = {decision_of(members) for _, members in entries.values()}
        limit = earlier(self.last, _UNUSED_AFTER)
        for key, (_, members) in decisions.items():
            if outcome_of(members) == b"allowed" and key not in named and _AT["decision"](members) < limit:
                text = f"no log entry refers to the allowed decision {_name(key)}"
                self.result.gap("allowed_without_entry", key, text)
        for key, (_, members) in entries.items():
            if decision_of(members) not in decisions:
                text = f"the log entry {_name(key)} does not refer to a decision in the log"
                self.result.gap("entry_without_decision", key, text)
        decision_of = pick("approval", "decision")
        for key, (_, members) in self._leaves["approval"].items():
            if key[1] == b"consumed" and decision_of(members) not in decisions:
                text = f"the consumed approval {_name(key)} does not refer to a decision in the log"
                self.result.gap("consumed_without_decision", key[0], text)


def _digest(salt: bytes, content: bytes) -> bytes:
    return sha256(unhexlify(salt) + content).hexdigest().encode()


def _may_be_absent(kind: str, name: str, logged: bytes | None, found: bytes | None) -> bool:
    """Return whether a leaf may lack a member although the row has a value."""
    if logged is not None or found is None:
        return False
    if name == "action":
        return len(found) > MAX_ACTION
    return kind == "log_entry" and name in {"decision", "approval"} and not IS_ID(found)


def _name(key: Any) -> str:
    return show(key[0] if isinstance(key, tuple) else key)
