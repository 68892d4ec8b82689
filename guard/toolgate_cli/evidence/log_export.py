"""Content of an export of the transparency log that the evidence needs: deletions, freezes and counts of decisions.

The export is read line by line, because the log of an organization can be larger than the memory.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from toolgate_cli.client import GatewayError
from toolgate_cli.evidence.period import Period, format_time, read_created, read_time
from toolgate_cli.log.verification.export import MAX_LINE, verify_export
from toolgate_cli.log.verification.results import Result

#: kinds of rows that the gateway deletes after a retention period
_DELETED: Final = ("decision", "log_entry", "approval", "audit_event")
_CONTEXT: Final = "context"
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Manifest:
    """First line of an export."""

    origin: str
    vkey: str
    exported_at: datetime
    checkpoint: str


@dataclass(slots=True)
class Deletions:
    """Rows of the period that are not in the export.

    Attributes:
        rows: number of rows of the period that the gateway deleted at the end of their retention, by kind.
        before: time before which the gateway announced to delete rows of a kind; empty if there is no announcement.
        contexts: number of decisions of the period whose arguments were deleted.
        log_begin: time of the first leaf; rows from before it have no leaf.
        earlier: number of rows from before the log, by kind.
    """

    rows: Counter[str] = field(default_factory=Counter)
    before: dict[str, datetime] = field(default_factory=dict)
    contexts: int = 0
    log_begin: datetime | None = None
    earlier: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the deletions as values of JSON."""
        return {
            "deleted_rows": dict(self.rows),
            "retention_before": {kind: format_time(at) for kind, at in sorted(self.before.items())},
            "decisions_without_arguments": self.contexts,
            "log_begins_at": format_time(self.log_begin),
            "rows_from_before_the_log": self.earlier,
        }


@dataclass(slots=True)
class FreezeEffect:
    """Decisions under a freeze, from which its time to effect follows.

    Attributes:
        begin: time at which the freeze was created.
        end: time at which it was lifted, or at which the log was exported.
        agent_id: agent whose calls it denies; None for all agents.
        action: action, or prefix and ``*``, that it denies; None for all actions.
        is_complete: false if decisions under the freeze may have been deleted.
    """

    begin: datetime
    end: datetime
    agent_id: str | None
    action: str | None
    is_complete: bool
    last_allowed: datetime | None = None
    first_refused: datetime | None = None
    refused: int = 0
    allowed: list[datetime] = field(default_factory=list)

    def add(self, row: dict[str, Any], at: datetime) -> None:
        """Count a decision if the freeze covers it."""
        # The gateway stores the times of decisions in milliseconds, rounded down.
        if not self.begin - _MILLISECOND < at < self.end or not self._covers(row):
            return
        if row.get("outcome") == "allowed":
            self.allowed.append(at)
            self.last_allowed = max(at, self.last_allowed or at)
        elif row.get("reason_code") == "frozen":
            self.refused += 1
            self.first_refused = min(at, self.first_refused or at)

    def _covers(self, row: dict[str, Any]) -> bool:
        if self.agent_id is not None and row.get("agent_id") != self.agent_id:
            return False
        action = str(row.get("action"))
        if self.action is None:
            return True
        return action.startswith(self.action[:-1]) if self.action.endswith("*") else action == self.action

    def to_json(self) -> dict[str, Any]:
        """Return the measured values as values of JSON; seconds are counted from the creation of the freeze."""
        first = self.first_refused
        return {
            "seconds_to_effect": self.seconds,
            "seconds_to_first_refusal": None if first is None else self._since(first),
            "last_allowed_at": format_time(self.last_allowed) or None,
            "first_refused_at": format_time(first) or None,
            "refused": self.refused,
            "allowed": len(self.allowed),
            "allowed_after_first_refusal": sum(first is not None and at > first for at in self.allowed),
            "is_complete": self.is_complete,
        }

    @property
    def seconds(self) -> float | None:
        """Seconds until the last allowed decision; 0 if no call was allowed; None if no call was decided."""
        if self.last_allowed is not None:
            return self._since(self.last_allowed)
        return None if self.first_refused is None else 0.0

    def _since(self, moment: datetime) -> float:
        return round(max(0.0, (moment - self.begin).total_seconds()), 6)


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of an export.

    Raises:
        GatewayError: the first line is not the manifest of an export.
    """
    with path.open("rb") as file:
        raw = _parse(file.readline(MAX_LINE))
    exported, texts = (
        read_time(raw, "exported_at"),
        [raw.get(key) for key in ("origin", "vkey", "checkpoint")],
    )
    if exported is None or not all(isinstance(text, str) for text in texts):
        raise GatewayError("the gateway sent an invalid export of the log: no manifest")
    origin, vkey, checkpoint = map(str, texts)
    return Manifest(origin, vkey, exported, checkpoint)


def verify(path: Path) -> Result:
    """Verify an export as `toolgate log verify` does, with the key that it contains."""
    with path.open("rb") as file:
        return verify_export(_lines(file))


def find_deletions(path: Path, period: Period) -> Deletions:
    """Return which rows of the period the gateway has deleted, according to the leaves of the export."""
    found = Deletions()
    for leaf in _leaves(path):
        kind, of = leaf.get("kind"), str(leaf.get("of"))
        if kind == "start":
            found.log_begin = read_time(leaf, "at")
            found.earlier = dict(leaf.get("earlier") or {})
        elif kind == "retention" and (before := read_time(leaf, "before")) is not None:
            found.before[of] = max(before, found.before.get(of, before))
    affected = {kind for kind in _DELETED if found.before.get(kind, period.begin) > period.begin}
    missing = {
        (str(leaf["kind"]), str(leaf.get("id")))
        for leaf in (_leaves(path) if affected else ())
        if leaf.get("kind") in affected
        and leaf.get("state", "pending") == "pending"
        and period.contains(read_time(leaf, "at"))
    }
    for kind, row, line in read_rows(path):
        if missing and kind in affected:
            missing.discard((kind, str(row.get("id"))))
        if kind == "decision" and line.get("context") is None and period.contains(read_created(row)):
            found.contexts += 1
    found.rows = Counter(kind for kind, _ in missing)
    return found


def measure_freezes(path: Path, freezes: Sequence[FreezeEffect]) -> None:
    """Count the decisions of an export under freezes."""
    if not freezes:
        return
    for kind, row, _ in read_rows(path):
        if kind == "decision":
            at = read_created(row)
            for freeze in freezes:
                freeze.add(row, at)


def count_decisions(path: Path, period: Period) -> dict[str, dict[str, int]]:
    """Return the numbers of decisions of the period by outcome and reason code, and of log entries by status."""
    counts: dict[str, Counter[str]] = {"decisions": Counter(), "log_entries": Counter()}
    for kind, row, _ in read_rows(path):
        if kind == "decision" and period.contains(read_created(row)):
            counts["decisions"][f"{row.get('outcome')}: {row.get('reason_code')}"] += 1
        elif kind == "log_entry" and period.contains(read_created(row)):
            counts["log_entries"][str(row.get("status"))] += 1
    return {name: dict(sorted(found.items())) for name, found in counts.items()}


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield the kind and the columns of each row of an export, and the line that contains the row.

    Raises:
        GatewayError: a line is not JSON.
    """
    with path.open("rb") as file:
        for line in _lines(file):
            # Leaves have no member `row`. The text is searched first, because parsing takes longer.
            if b'"row":' in line:
                content = _parse(line)
                if isinstance(content.get("row"), str) and isinstance(content.get("kind"), str):
                    yield content["kind"], _parse(content["row"].encode()), content


def _leaves(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the sealed leaves of an export."""
    with path.open("rb") as file:
        next(_lines(file), None)
        for line in _lines(file):
            leaf = _parse(line)
            if "leaves" in leaf:
                return
            yield leaf


def _lines(file: BufferedReader) -> Iterator[bytes]:
    while line := file.readline(MAX_LINE):
        yield line


def _parse(line: bytes) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise GatewayError("the gateway sent an invalid export of the log: a line is not a JSON object")
    return content
