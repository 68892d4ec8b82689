"""Result of a verification, as JSON and as text."""

import json
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from .notes import Checkpoint, show

#: maximum findings, and maximum gaps, that a result contains as texts; all of them are counted
MAX_LISTED: Final = 1000


@dataclass
class Result:
    """Result of a verification: findings, gaps (calls without a record, and the reverse), notes and counts."""

    kind: str
    origin: str = ""
    key: str = ""
    checkpoint: Checkpoint | None = None
    unconfirmed: Checkpoint | None = None
    #: latest checkpoint that witnesses cosigned, if the export contains one
    cosigned: Checkpoint | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    gaps: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    leaf: Any = None

    def find(self, code: str, message: str, line: int | None = None) -> None:
        """Add a finding."""
        self._add(self.findings, "findings", code, {"code": code, "message": message, "line": line})

    def gap(self, code: str, row: bytes, message: str) -> None:
        """Add a gap about a row."""
        self._add(self.gaps, "gaps", code, {"code": code, "id": row.decode(), "message": message})

    @property
    def witnessed(self) -> Checkpoint | None:
        """Verified checkpoint with the most cosignatures; None if no given witness has cosigned one."""
        found = [one for one in (self.checkpoint, self.cosigned) if one is not None and one.witnesses]
        return max(found, key=lambda one: len(one.witnesses), default=None)

    def check_witnesses(self, required: int) -> None:
        """Add a finding if fewer witnesses than required have cosigned the checkpoint."""
        count = len(self.witnessed.witnesses) if self.witnessed else 0
        if count < required:
            self.find(
                "witnesses",
                f"{count} of the given witnesses have cosigned the checkpoint; {required} are required",
            )

    def _add(self, texts: list[dict[str, Any]], total: str, code: str, entry: dict[str, Any]) -> None:
        self.counts[total] += 1
        self.codes[code] += 1
        if len(texts) < MAX_LISTED:
            texts.append(entry)

    def exit_code(self, *, fail_on_gaps: bool = False) -> int:
        """Return 0 if there is no finding, otherwise 1."""
        return 1 if self.findings or (fail_on_gaps and self.gaps) else 0

    def to_json(self) -> dict[str, Any]:
        """Return the result as values of JSON."""
        seen, witnessed = self.checkpoint, self.witnessed
        return {
            "verified": not self.findings,
            "kind": self.kind,
            "origin": self.origin,
            "key": self.key,
            "checkpoint": seen and {"size": seen.size, "root": b64encode(seen.root).decode()},
            "witnesses": [
                {"name": name, "time": at, "size": witnessed.size} for name, at in witnessed.witnesses.items()
            ]
            if witnessed
            else [],
            "leaf": self.leaf,
            "counts": dict(self.counts),
            "codes": dict(self.codes),
            "findings": self.findings,
            "gaps": self.gaps,
            "notes": self.notes,
        }

    def report(self) -> str:
        """Return the result as text."""
        found, gaps = self.counts["findings"], self.counts["gaps"]
        lines = [
            f"NOT VERIFIED: {found:,} finding{'s' if found > 1 else ''}"
            if found
            else f"verified: {self.kind}"
        ]
        lines += [f"  log          {show(self.origin)}", f"  key          {show(self.key)}"]
        if self.checkpoint is not None:
            lines.append(f"  checkpoint   {self.checkpoint.size:,} leaves, root {self.checkpoint.root.hex()}")
        if self.witnessed is not None:
            lines += [
                f"  witness      {show(name)}, {self.witnessed.size:,} leaves"
                for name in self.witnessed.witnesses
            ]
        if self.leaf is not None:
            lines.append(f"  leaf         {json.dumps(self.leaf)}")
        lines += [
            f"  {name:40} {n:,}"
            for name, n in sorted(self.counts.items())
            if name not in {"findings", "gaps"}
        ]
        lines += [f"note: {note}" for note in self.notes]
        for name, total, entries in (("finding", found, self.findings), ("gap", gaps, self.gaps)):
            for each in entries:
                at = f"line {each['line']}: " if each.get("line") else ""
                lines.append(f"{name}: {at}{each['message']} [{each['code']}]")
            if total > len(entries):
                lines.append(f"{total - len(entries):,} more {name}s are not listed")
        return "\n".join(lines)
