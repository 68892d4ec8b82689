"""What twenty clients were told, to be compared with what is there when all is over."""

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """What was acknowledged; all clients write into it, one at a time.

    Attributes:
        answers: how many answers had which status; 0 is none at all.
        entries: the log entries acknowledged: key to id.
        keys: every key that was sent.
        passes: the decision ids that let an approved call through, by approval.
        granted: actions whose permission stands, or may.
        revoked: actions whose permission's deletion was acknowledged.
        admitted: answers that were not refused for their rate, by organization and window.
        checked: checks of what was taken away.
        agents_made: agents acknowledged, in organizations that may have few.
        stored: entries acknowledged, in organizations that may have few.
        lies: what contradicts an acknowledgement, in words.
    """

    answers: Counter[int] = field(default_factory=Counter)
    entries: dict[str, str] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    passes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    granted: set[str] = field(default_factory=set)
    revoked: list[str] = field(default_factory=list)
    admitted: Counter[tuple[str, str]] = field(default_factory=Counter)
    checked: int = 0
    agents_made: int = 0
    stored: int = 0
    lies: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def heard(self, status: int) -> None:
        """Count an answer."""
        with self.lock:
            self.answers[status] += 1

    def acknowledged(self, key: str, entry_id: str) -> None:
        """Keep an acknowledged entry; told of two ids for one key, keep that."""
        with self.lock:
            before = self.entries.setdefault(key, entry_id)
            if before != entry_id:
                self.lies.append(f"the key {key!r} was acknowledged as {before} and as {entry_id}")

    def passed(self, approval_id: str, decision_id: str) -> None:
        """Keep that an approval let a check through."""
        with self.lock:
            self.passes[approval_id].add(decision_id)

    def counted(self, organization_id: str, window: str) -> None:
        """Count an answer that was within its rate."""
        with self.lock:
            self.admitted[organization_id, window] += 1

    def lie(self, what: str) -> None:
        """Keep a contradiction."""
        with self.lock:
            self.lies.append(what)
