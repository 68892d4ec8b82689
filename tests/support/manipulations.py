"""Manipulations of exports that a verifier must find if it has seen the checkpoint of the export before."""

import json
import os
from collections.abc import Callable
from random import Random
from typing import Any

from support.transparency import TERMS, Export, LogBuilder, Signer, canonical

#: changes an export, and returns false if the export has nothing that can be changed in this way
Manipulation = Callable[[Random, Export, LogBuilder], Any]
Lines = Callable[[Random, list[bytes]], list[bytes]]


def _changed(random: Random, value: Any) -> Any:
    """Return another value, mostly of the same type."""
    others = [None, "other", "", 7, "2026-11-28T11:00:00.123456Z", "0199a3f2-4b1c-7000-8000-000000000001"]
    if isinstance(value, str) and value:
        at = random.randrange(len(value))
        others += [value[:at] + random.choice('0aZ"\\é') + value[at + 1 :], value + " ", value[:-1]]
    if isinstance(value, int):
        others += [value + 1, str(value)]
    return random.choice([each for each in others if each != value])


def _logged_rows(export: Export) -> list[dict[str, Any]]:
    return [row for row in export.rows if row["salt"] is not None]


def _identity(row: dict[str, Any]) -> tuple[str, str]:
    content = json.loads(row["row"])
    return row["kind"], content["approval_id"] if row["kind"] == "vote" else content["id"]


def _is_removable(row: dict[str, Any], log: LogBuilder) -> bool:
    """Return whether a retention in the log allows that the row is missing."""
    kind, identity = _identity(row)
    if kind != "vote":
        return log.time_of(kind, identity) < log.removed.get(kind, "")
    return log.logged.get(("approval", identity), "") < log.removed.get("approval", "")


def edit_column(random: Random, export: Export, log: LogBuilder) -> Any:
    row = random.choice(_logged_rows(export))
    content = json.loads(row["row"])
    names = set(content)
    if row["kind"] == "approval" and content["status"] in {"pending", "approved"}:
        # Stricter terms may apply until a request is decided, and a temporary approval until it is closed.
        names -= {"grant_id", "expires_at", *(TERMS if content["status"] == "pending" else ())}
    name = random.choice(sorted(names))
    content[name] = _changed(random, content[name])
    row["row"] = canonical(content)


def edit_text(random: Random, export: Export, log: LogBuilder) -> Any:
    """Add white space, escapes or a duplicate name to the content of a row."""
    row = random.choice(_logged_rows(export))
    text = row["row"]
    row["row"] = random.choice(
        [text + " ", "{ " + text[1:], text[:-1] + ',"z":1}', '{"id":"x",' + text[1:], "NaN", "{}"]
    )


def edit_salt(random: Random, export: Export, log: LogBuilder) -> Any:
    row = random.choice(_logged_rows(export))
    # Nothing depends on the second half of the salt of a log entry without a context.
    digits = 32 if row["kind"] == "log_entry" and row["context"] is None else len(row["salt"])
    at, salt = random.randrange(digits), row["salt"]
    row["salt"] = salt[:at] + random.choice(sorted(set("0123456789abcdef") - {salt[at]})) + salt[at + 1 :]


def remove_salt(random: Random, export: Export, log: LogBuilder) -> Any:
    row = random.choice(_logged_rows(export))
    row["salt"] = random.choice([None, "", row["salt"][:31], row["salt"].replace(row["salt"][0], "g"), 5])


def edit_context(random: Random, export: Export, log: LogBuilder) -> Any:
    rows = [row for row in _logged_rows(export) if row.get("context") is not None]
    if not rows:
        return False
    row = random.choice(rows)
    row["context"] = _changed(random, row["context"]) or "null"
    return True


def edit_context_digest(random: Random, export: Export, log: LogBuilder) -> Any:
    # After a retention of contexts, nothing depends on the digest.
    rows = [row for row in _logged_rows(export) if row["kind"] == "decision" and len(row["salt"]) == 64]
    if not rows:
        return False
    row = random.choice(rows)
    row["context_digest"] = random.choice(["", "ab" * 32, row["context_digest"][1:], "x", None, 5, '"'])
    return True


def drop_context(random: Random, export: Export, log: LogBuilder) -> Any:
    """Remove a context, with or without its salt."""
    limit = log.removed.get("context", "")
    rows = [
        row
        for row in _logged_rows(export)
        if row.get("context") is not None
        and (row["kind"] != "decision" or log.time_of(*_identity(row)) >= limit)
    ]
    if not rows:
        return False
    row = random.choice(rows)
    row["context"], row["salt"] = None, random.choice([row["salt"], row["salt"][:32]])
    if row["kind"] == "decision":
        row["context_digest"] = random.choice([row["context_digest"], ""])
    return True


def drop_shown_context(random: Random, export: Export, log: LogBuilder) -> Any:
    rows = [
        row for row in _logged_rows(export) if row["kind"] == "approval" and json.loads(row["row"])["context"]
    ]
    if not rows:
        return False
    row = random.choice(rows)
    row["row"] = canonical(json.loads(row["row"]) | {"context": None})
    row["salt"] = random.choice([row["salt"], row["salt"][:32]])
    return True


def add_context(random: Random, export: Export, log: LogBuilder) -> Any:
    rows = [row for row in _logged_rows(export) if row.get("context") is None and row["kind"] != "approval"]
    if not rows:
        return False
    random.choice(rows)["context"] = random.choice(["{}", "", '{"a":1}'])
    return True


def drop_row(random: Random, export: Export, log: LogBuilder) -> Any:
    rows = [row for row in _logged_rows(export) if not _is_removable(row, log)]
    if not rows:
        return False
    export.rows.remove(random.choice(rows))
    return True


def duplicate_row(random: Random, export: Export, log: LogBuilder) -> Any:
    export.rows.insert(random.randint(0, len(export.rows)), dict(random.choice(export.rows)))


def swap_rows(random: Random, export: Export, log: LogBuilder) -> Any:
    """Exchange the contents or the salts of two rows."""
    first, second = random.sample(_logged_rows(export), 2)
    name = random.choice(["row", "salt", "kind"])
    if first[name] == second[name]:
        return False
    first[name], second[name] = second[name], first[name]
    return True


def swap_ids(random: Random, export: Export, log: LogBuilder) -> Any:
    """Exchange the ids of two rows, so that each of them refers to the leaf of the other."""
    first, second = random.sample(_logged_rows(export), 2)
    if first["kind"] != second["kind"] or first["kind"] == "vote":
        return False
    one, two = json.loads(first["row"]), json.loads(second["row"])
    one["id"], two["id"] = two["id"], one["id"]
    first["row"], second["row"] = canonical(one), canonical(two)
    return True


def change_state(random: Random, export: Export, log: LogBuilder) -> Any:
    rows = [row for row in _logged_rows(export) if row["kind"] == "approval"]
    if not rows:
        return False
    row = random.choice(rows)
    content = json.loads(row["row"])
    others = {"pending", "approved", "denied", "expired", "cancelled", "consumed"} - {content["status"]}
    content["status"] = random.choice(sorted(others))
    row["row"] = canonical(content)
    return True


def forge_row(random: Random, export: Export, log: LogBuilder) -> Any:
    """Add a row that has no leaf, as a row from before the log or with a salt."""
    row = dict(random.choice(_logged_rows(export)))
    content = json.loads(row["row"])
    identity = "0199a3f2-4b1c-7000-8000-000000000001"
    content |= {
        "approval_id" if row["kind"] == "vote" else "id": identity,
        "created_at": "2026-01-01T00:00:00.000000Z",
    }
    row |= {"row": canonical(content), "salt": random.choice([None, row["salt"]])}
    export.rows.append(row)


def edit_leaf(random: Random, export: Export, log: LogBuilder) -> Any:
    at = random.randrange(len(export.leaves))
    leaf = json.loads(export.leaves[at])
    name = random.choice(sorted(leaf))
    leaf[name] = _changed(random, leaf[name])
    export.leaves[at] = canonical(leaf).encode()


def edit_leaf_text(random: Random, export: Export, log: LogBuilder) -> Any:
    at = random.randrange(len(export.leaves))
    leaf = export.leaves[at]
    export.leaves[at] = random.choice([
        leaf.replace(b",", b", ", 1), leaf[:-1] + b',"v":1}', b'{"action":"x",' + leaf[1:], b"[" * 100_000, b"",
        leaf[:-2] + b"NaN}", leaf[:-2] + b"9" * 5000 + b"}", leaf[:-1] + b',"x":"\\ud800"}', leaf + b"\xff", leaf + b"\r",
    ])  # fmt: skip


def drop_leaf(random: Random, export: Export, log: LogBuilder) -> Any:
    del export.leaves[random.randrange(len(export.leaves))]


def duplicate_leaf(random: Random, export: Export, log: LogBuilder) -> Any:
    export.leaves.insert(random.randint(0, len(export.leaves)), random.choice(export.leaves))


def swap_leaves(random: Random, export: Export, log: LogBuilder) -> Any:
    one, two = random.sample(range(len(export.leaves)), 2)
    export.leaves[one], export.leaves[two] = export.leaves[two], export.leaves[one]


def insert_leaf(random: Random, export: Export, log: LogBuilder) -> Any:
    """Forge a retention or an erasure, and remove what it excuses."""
    row = random.choice(_logged_rows(export))
    kind, identity = _identity(row)
    members = {"v": 1, "at": export.exported_at}
    if row.get("context") is not None and random.random() < 0.5:
        row |= {"context": None, "salt": row["salt"][:32]} | (
            {"context_digest": ""} if kind == "decision" else {}
        )
        members |= {"kind": "erasure", "id": identity, "of": kind, "by": identity}
    else:
        export.rows.remove(row)
        of = "approval" if kind == "vote" else kind
        members |= {"kind": "retention", "id": identity, "of": of, "before": export.exported_at}
    leaf = canonical(members).encode()
    where = random.choice([export.leaves, export.pending])
    if where is export.pending and _is_removable(row, log):
        return False
    # At the end of the leaves, a forged leaf with a valid signature is a new leaf of the log.
    at = random.randrange(1, len(where)) if where is export.leaves else random.randint(0, len(where))
    where.insert(at, leaf)
    return True


def drop_pending(random: Random, export: Export, log: LogBuilder) -> Any:
    if not export.pending:
        return False
    del export.pending[random.randrange(len(export.pending))]
    return True


def delay_pending(random: Random, export: Export, log: LogBuilder) -> Any:
    if not export.pending:
        return False
    export.exported_at = "2027-01-01T00:00:00.000000Z"
    return True


def edit_manifest(random: Random, export: Export, log: LogBuilder) -> Any:
    name = random.choice(["format", "origin", "vkey", "organization_id", "environment", "checkpoint"])
    export.manifest[name] = random.choice(
        [None, "", 5, "other", "0199a3f2-0000-7000-8000-00000000000d", "test"]
    )


def edit_note(random: Random, export: Export, log: LogBuilder) -> Any:
    note = export.signer.checkpoint(export.leaves)
    at = random.randrange(len(note) - 1)
    export.note = note[:at] + random.choice(sorted(set("0aZ=+/\n ") - {note[at]})) + note[at + 1 :]


def use_other_key(random: Random, export: Export, log: LogBuilder) -> Any:
    export.signer = Signer(export.origin, os.urandom(32) if random.random() < 0.5 else random.randbytes(32))


def use_other_origin(random: Random, export: Export, log: LogBuilder) -> Any:
    export.origin = export.origin.replace("gate.", "other.")
    export.signer = Signer(export.origin, random.randbytes(32))


def replay(random: Random, export: Export, log: LogBuilder) -> Any:
    """Replace the export by one of an earlier checkpoint."""
    size = random.randrange(len(export.leaves))
    earlier = {json.loads(leaf)["id"] for leaf in export.leaves[:size]}
    export.leaves, export.pending = export.leaves[:size], []
    export.rows = [row for row in export.rows if row["salt"] is None or _identity(row)[1] in earlier]


MANIPULATIONS: dict[str, Manipulation] = {
    each.__name__: each
    for each in (
        *(
            edit_column,
            edit_text,
            edit_salt,
            remove_salt,
            edit_context,
            edit_context_digest,
            drop_context,
            drop_shown_context,
            add_context,
        ),
        *(
            drop_row,
            duplicate_row,
            swap_rows,
            swap_ids,
            change_state,
            forge_row,
            edit_leaf,
            edit_leaf_text,
            drop_leaf,
        ),
        *(duplicate_leaf, swap_leaves, insert_leaf, drop_pending, delay_pending, edit_manifest, edit_note),
        *(use_other_key, use_other_origin, replay),
    )
}
#: manipulations after which the operator signs the log again with the right key
FORKS = (edit_leaf, drop_leaf, duplicate_leaf, swap_leaves, insert_leaf)


def truncate(random: Random, lines: list[bytes]) -> list[bytes]:
    content = b"".join(lines)
    return content[: random.randrange(len(content))].splitlines(keepends=True)


def drop_line(random: Random, lines: list[bytes]) -> list[bytes]:
    at = random.randrange(len(lines))
    return [*lines[:at], *lines[at + 1 :]]


def repeat_line(random: Random, lines: list[bytes]) -> list[bytes]:
    at = random.randrange(len(lines))
    return [*lines[: at + 1], *lines[at:]]


def edit_count(random: Random, lines: list[bytes]) -> list[bytes]:
    at = (
        next(at for at, line in enumerate(lines) if line.startswith(b'{"leaves"'))
        if random.random() < 0.5
        else -1
    )
    value = random.choice([b"0", b"1e999", b"-1", b"true", b"null", b"NaN", b"9" * 5000, b"1.0"])
    changed = lines[at].partition(b":")[0] + b":" + value + b"}\n"
    lines[at] = changed if changed != lines[at] else b"\n"
    return lines


def add_line(random: Random, lines: list[bytes]) -> list[bytes]:
    junk = [
        b"\n",
        b"{}\n",
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
        b'{"kind":"x"}\n',
        b"null\n",
        b'{"rows":0}\n',
        b"x" * 99_999,
    ]
    lines.insert(random.randint(0, len(lines)), random.choice(junk))
    return lines


LINES: dict[str, Lines] = {
    each.__name__: each for each in (truncate, drop_line, repeat_line, edit_count, add_line)
}
