"""Verification of an export: the leaves of a log, and the rows of the gateway's database."""

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Final

from .formats import parse_json
from .merkle import Tree
from .notes import Checkpoint, Key, VerificationError, open_checkpoint, show
from .results import Result
from .rows import Rows
from .state import State

FORMAT: Final = "toolgate.log-export/v1"
#: maximum bytes of a line in an export
MAX_LINE: Final = 64 * 1024 * 1024
#: codes of findings that keep the state file from being changed
CONFLICTS: Final = frozenset({"key", "origin", "root", "leaves", "fork", "rollback"})

_MARKS = (b'{"leaves":', b'{"pending":', b'{"rows":')
# A leaf never begins with its kind, because its members are sorted and every leaf has a time (`at`).
_AFTER_LEAVES = (*_MARKS, b'{"kind":')
_NEWLINE = ord("\n")
#: kind of line after the leaves → stages in which it is allowed, and the stage that follows
_STAGES = {"leaves": ((0,), 1), "pending": ((1,), 1), "row": ((1, 2), 2), "rows": ((1, 2), 3)}
#: size of the tree → code of the finding, expected root hash, source of the root hash
_Roots = dict[int, list[tuple[str, bytes, str]]]


@dataclass(frozen=True)
class _Manifest:
    origin: str
    vkey: str
    organization: str
    environment: str
    exported_at: bytes
    note: str
    #: latest checkpoint that witnesses cosigned; empty if there is none
    cosigned: str

    @classmethod
    def parse(cls, line: bytes) -> "_Manifest":
        """Return the manifest in the first line of an export.

        Raises:
            ValueError: it is malformed.
        """
        content = parse_json(line)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"expected the format {FORMAT}")
        names = ("origin", "vkey", "organization_id", "environment", "exported_at", "checkpoint", "cosigned")
        texts = [content.get(name, "" if name == "cosigned" else None) for name in names]
        for name, text in zip(names, texts, strict=True):
            if not isinstance(text, str) or not (text.isprintable() or name in {"checkpoint", "cosigned"}):
                raise ValueError(f"the value of {name!r} is missing or malformed")
        origin, vkey, organization, environment, exported_at, note, cosigned = map(str, texts)
        moment = datetime.fromisoformat(exported_at)
        if moment.tzinfo is None:
            raise ValueError("the time of the export has no time zone")
        if not origin.endswith(f"/tlog/{organization}/{environment}"):
            raise ValueError(
                "the origin of the log does not match the organization and environment of the export"
            )
        wire = moment.astimezone(UTC).isoformat(timespec="microseconds")
        return cls(
            origin, vkey, organization, environment, wire.replace("+00:00", "Z").encode(), note, cosigned
        )


def verify_export(
    lines: Iterable[bytes],
    *,
    key: Key | None = None,
    state: State | None = None,
    witnesses: Sequence[Key] = (),
    required: int = 0,
    published: str | None = None,
) -> Result:
    """Verify the lines of an export, each with its line break.

    Args:
        lines: the lines, each with at most `MAX_LINE` bytes.
        key: key of the log; None for the pinned key or, if there is none, the key in the export.
        state: checkpoints that were seen before; new ones are added if nothing contradicts them.
        witnesses: keys of witnesses.
        required: number of witnesses that must have cosigned the checkpoint.
        published: another signed checkpoint of the log. If it has more leaves than the export, the export does not
            confirm it, and `Result.unconfirmed` contains it.

    Raises:
        VerificationError: the state file cannot be written.
    """
    result, state, numbered = Result("export"), state or State(), enumerate(lines, 1)
    manifest = _open(result, next(numbered, (1, b""))[1], key, state)
    if manifest is None:
        return result
    key = Key.parse(result.key)
    try:
        checkpoint = result.checkpoint = open_checkpoint(manifest.note, key, witnesses)
        if manifest.cosigned:
            result.cosigned = open_checkpoint(manifest.cosigned, key, witnesses)
        other = open_checkpoint(published, key) if published is not None else None
    except VerificationError as error:
        result.find("checkpoint", str(error))
        return result
    result.check_witnesses(required)
    roots = _expected_roots(result, checkpoint, other, state.seen(key.name))
    if result.cosigned is not None:
        source = "the checkpoint with the witnesses' cosignatures"
        roots.setdefault(result.cosigned.size, []).append(("fork", result.cosigned.root, source))
        if result.cosigned.size > checkpoint.size:
            result.find("rollback", f"{source} has more leaves than the checkpoint of the export", 1)
    rows = Rows(result, manifest.environment)
    with _paused_collector():
        first = _add_leaves(result, numbered, rows, checkpoint.size, roots)
        _add_rows(result, chain([first], numbered), rows, result.counts["leaves"], manifest.exported_at)
        rows.finish()
    if result.counts["pending leaves"]:
        result.notes.append(
            f"{result.counts['pending leaves']} leaves are pending: no checkpoint covers them yet"
        )
    if not CONFLICTS & set(result.codes):
        confirmed = [other] if other is not None and other.size <= checkpoint.size else []
        state.add(key, [checkpoint, *confirmed])
    return result


@contextmanager
def _paused_collector() -> Iterator[None]:
    """Pause the garbage collector, which would search millions of leaves for cycles; the verifier creates none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _open(result: Result, line: bytes, key: Key | None, state: State) -> _Manifest | None:
    """Return the manifest of an export, and set the key of the result."""
    try:
        manifest = _Manifest.parse(line)
        result.origin = manifest.origin
        pinned = state.pinned(manifest.origin)
        result.key = (key or Key.parse(pinned or manifest.vkey)).vkey
    except (ValueError, OverflowError, VerificationError) as error:
        result.find("manifest", f"the manifest of the export is malformed: {error}", 1)
        return None
    for owner, vkey in (("the export", manifest.vkey), ("the state file", pinned or result.key)):
        if vkey != result.key:
            result.find(
                "key",
                (f"{owner} contains the key {show(vkey)}, but the key {show(result.key)} is expected"),
                1,
            )
    former = state.former_origin(manifest.origin)
    if former is not None:
        result.find(
            "origin",
            f"the log of this organization and environment had another origin before, {show(former)}",
            1,
        )
    if key is None and pinned is None:
        result.notes.append(
            "the key was taken from the export; compare it with the key that the operator published"
        )
    return manifest


def _expected_roots(
    result: Result, checkpoint: Checkpoint, published: Checkpoint | None, seen: dict[int, bytes]
) -> _Roots:
    """Return the root hashes that the tree must have, by size."""
    roots: _Roots = {checkpoint.size: [("root", checkpoint.root, "the checkpoint of the export")]}
    for size, root in seen.items():
        roots.setdefault(size, []).append(("fork", root, "a checkpoint of an earlier verification"))
    newest = max(seen, default=0)
    if newest > checkpoint.size:
        text = (
            f"the checkpoint has only {checkpoint.size} leaves, but an earlier verification saw a checkpoint "
            f"with {newest} leaves"
        )
        result.find("rollback", text, 1)
    if published is not None and published.size > checkpoint.size:
        result.unconfirmed = published
    elif published is not None:
        source = "the checkpoint that the gateway publishes"
        roots.setdefault(published.size, []).append(("fork", published.root, source))
    result.counts["earlier checkpoints"] = len(seen)
    return roots


def _add_leaves(
    result: Result, lines: Iterator[tuple[int, bytes]], rows: Rows, size: int, roots: _Roots
) -> tuple[int, bytes]:
    """Compute the tree from the leaves, compare its roots, and return the first line that is not a leaf."""
    tree, number, line = Tree(), 1, b""
    _compare_roots(result, tree, roots)
    for number, line in lines:
        if line.startswith(_AFTER_LEAVES) or line[-1] != _NEWLINE:
            break
        leaf = line[:-1]
        tree.append(leaf)
        rows.add_leaf(leaf, number)
        if tree.size in roots:
            _compare_roots(result, tree, roots)
    else:
        number, line = number + 1, b""
    if tree.size != size:
        result.find("leaves", f"the export has {tree.size} leaves, but its checkpoint has {size}", number)
    result.counts["leaves"] = tree.size
    return number, line


def _compare_roots(result: Result, tree: Tree, roots: _Roots) -> None:
    for code, root, source in roots.get(tree.size, ()):
        if root != tree.root():
            result.find(code, f"the first {tree.size} leaves do not have the root hash of {source}")


def _add_rows(
    result: Result, lines: Iterable[tuple[int, bytes]], rows: Rows, leaves: int, exported_at: bytes
) -> None:
    """Read the lines after the leaves: their number, pending leaves, rows, and the number of rows."""
    stage = count = 0
    for number, line in lines:
        if not line or line[-1] != _NEWLINE:
            result.find("truncated", "the export ends within a line", number)
            continue
        text = line[:-1]
        try:
            if not line.startswith(_MARKS):
                stage, count = _enter(result, "row", stage, number), count + 1
                rows.add_row(text, number)
                continue
            ((name, value),) = parse_json(text).items()
            stage = _enter(result, name, stage, number)
            if name == "pending":
                rows.add_pending(value.encode(), number, exported_at)
            elif type(value) is not int or value != (leaves if name == "leaves" else count):
                result.find(
                    "count",
                    f"the export has {leaves} leaves and {count} rows, but its last line gives the number "
                    f"of {name} as {show(value)}",
                    number,
                )
        except (ValueError, AttributeError) as error:
            result.find("line", f"the line is malformed: {error}", number)
    if stage != _STAGES["rows"][1]:
        result.find("truncated", "the end of the export is missing: the line with the number of rows")


def _enter(result: Result, line: str, stage: int, number: int) -> int:
    """Return the stage after a line of this kind, and check the order of the lines."""
    allowed, following = _STAGES[line]
    if stage not in allowed:
        result.find("order", f"a line of the kind {line!r} is not allowed here", number)
        return max(stage, following)
    return following
