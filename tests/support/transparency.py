"""Random transparency logs and their exports, written without the verifier, in the simplest way."""

import copy
import hashlib
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ORGANIZATION = "0199a3f2-0000-7000-8000-00000000000c"
ORIGIN = f"gate.example.test/tlog/{ORGANIZATION}/production"
TEXTS = ["stripe.refund", "mail.send", 'a"b\\c', "line\nbreak\x01", "größe.ändern", "x" * 300, "🙂" * 70, ""]
STATES = ["pending", "approved", "denied", "expired", "cancelled", "replaced", "consumed"]
NEXT = {"pending": STATES[1:6], "approved": ["consumed", "consumed", "expired", "cancelled"]}
PENDING = ["budget_id", "call_id", "created_at", "key_id", "permission_id", "replaces", "run_id"]
TERMS = [
    *("amount_required", "approvers", "makers", "max_amount", "required_approvals", "rule_id"),
    "separation_of_duties",
]
SET_BY = {
    "pending": PENDING,
    "approved": ["decided_at", "decided_by", "note"],
    "denied": ["decided_at", "decided_by", "note"],
    "replaced": ["decided_at", "decided_by", "note", "replaced_by"],
    "cancelled": ["cancel_reason", "cancelled_at"],
    "consumed": ["consumed_at", "consumed_call_id", "decision_id"],
    "expired": [],
}
#: columns that the digest of a state covers
OF_STATE = {
    state: [*PENDING, *([*TERMS, *SET_BY["approved"]] if state != "pending" else [])]
    + (
        []
        if state in {"pending", "approved"}
        else [*SET_BY["cancelled"], *SET_BY["consumed"], "expires_at", "grant_id", "replaced_by"]
    )
    for state in STATES
}


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def mth(leaves: Sequence[bytes]) -> bytes:
    """Return the Merkle tree hash, as RFC 6962, section 2.1, defines it."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return hashlib.sha256(b"\1" + mth(leaves[:k]) + mth(leaves[k:])).digest()


def inclusion_path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    """Return the inclusion proof, as RFC 6962, section 2.1.1, defines it."""
    if len(leaves) == 1:
        return []
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    if index < k:
        return [*inclusion_path(index, leaves[:k]), mth(leaves[k:])]
    return [*inclusion_path(index - k, leaves[k:]), mth(leaves[:k])]


def consistency_path(old: int, leaves: Sequence[bytes], *, whole: bool = True) -> list[bytes]:
    """Return the consistency proof, as RFC 6962, section 2.1.2, defines it."""
    if old == len(leaves):
        return [] if whole else [mth(leaves)]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    if old <= k:
        return [*consistency_path(old, leaves[:k], whole=whole), mth(leaves[k:])]
    return [*consistency_path(old - k, leaves[k:], whole=False), mth(leaves[:k])]


class Signer:
    """Key of a log or of a witness (type 4)."""

    def __init__(self, name: str, seed: bytes, kind: int = 1) -> None:
        self.name, self.kind, self.key = name, kind, Ed25519PrivateKey.from_private_bytes(seed)
        material = bytes([kind]) + self.key.public_key().public_bytes_raw()
        self.id = hashlib.sha256(name.encode() + b"\n" + material).digest()[:4]
        self.vkey = f"{name}+{self.id.hex()}+{b64encode(material).decode()}"

    def line(self, text: str, time: int = 0) -> str:
        message, prefix = text, b""
        if self.kind == 4:
            message, prefix = f"cosignature/v1\ntime {time}\n{text}", time.to_bytes(8, "big")
        signature = self.id + prefix + self.key.sign(message.encode())
        return f"— {self.name} {b64encode(signature).decode()}\n"

    def checkpoint(self, leaves: Sequence[bytes], *lines: str) -> str:
        text = f"{self.name}\n{len(leaves)}\n{b64encode(mth(leaves)).decode()}\n"
        return f"{text}\n{self.line(text)}{''.join(lines)}"


@dataclass
class Export:
    """Parts of an export, which a test may change before `lines`."""

    signer: Signer
    leaves: list[bytes]
    pending: list[bytes]
    rows: list[dict[str, Any]]
    exported_at: str
    origin: str = ORIGIN
    manifest: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    def copy(self) -> "Export":
        signer = self.signer
        self.signer = None  # type: ignore[assignment] # keys cannot be copied
        try:
            copied = copy.deepcopy(self)
        finally:
            self.signer = signer
        copied.signer = signer
        return copied

    def lines(self) -> list[bytes]:
        manifest = {
            "format": "toolgate.log-export/v1",
            "origin": self.origin,
            "vkey": self.signer.vkey,
            "organization_id": ORGANIZATION,
            "environment": "production",
            "exported_at": self.exported_at,
            "checkpoint": self.note or self.signer.checkpoint(self.leaves),
        } | self.manifest
        lines = [canonical(manifest).encode(), *self.leaves, canonical({"leaves": len(self.leaves)}).encode()]
        lines += [canonical({"pending": leaf.decode()}).encode() for leaf in self.pending]
        lines += [json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() for row in self.rows]
        return [line + b"\n" for line in [*lines, canonical({"rows": len(self.rows)}).encode()]]


class LogBuilder:
    """Builds a log with random rows of every kind."""

    def __init__(self, random: Random, signer: Signer | None = None) -> None:
        self.random = random
        self.signer = signer or Signer(ORIGIN, random.randbytes(32))
        self.now = datetime(2026, 11, 28, 11, tzinfo=UTC)
        self.leaves: list[bytes] = []
        self.times: list[datetime] = []
        #: (kind, id) → row line, and for approvals its columns
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}
        self.logged: dict[tuple[str, str], str] = {}
        self.open: dict[str, str] = {}
        self.decisions: list[str] = []
        self.earlier_rows: list[dict[str, Any]] = []
        self.removed: dict[str, str] = {}
        self.erased: set[tuple[str, str]] = set()

    def build(self, leaves: int) -> "LogBuilder":
        for _ in range(self.random.randrange(4) if leaves else 0):
            self._earlier()
        counts = Counter(row["kind"] for row in self.earlier_rows)
        if leaves:
            self._leaf("start", self._id(), earlier=dict(sorted(counts.items())))
        steps = [
            self._decision,
            self._entry,
            self._approval,
            self._advance,
            self._vote,
            self._audit,
            self._revision,
        ]
        while len(self.leaves) < leaves:
            self.random.choices([*steps, self._retain, self._erase], [8, 8, 3, 5, 1, 1, 1, 0.3, 1])[0]()
        return self

    def export(self, *, pending: bool = True) -> Export:
        seconds = self.random.choice([0, 5, 30])
        moment = self.now + timedelta(seconds=seconds)
        recent = sum(time >= moment - timedelta(seconds=55) for time in self.times)
        count = self.random.randint(0, min(recent, 20)) if pending else 0
        sealed = len(self.leaves) - count
        # A retention and an erasure count only when they are sealed.
        removing = (b'"kind":"retention"', b'"kind":"erasure"')
        sealed = max(
            [sealed, *(at + 1 for at, leaf in enumerate(self.leaves) if any(x in leaf for x in removing))]
        )
        rows = [copy.deepcopy(row) for row in [*self.rows.values(), *self.earlier_rows]]
        for row in rows:
            if isinstance(row["row"], dict):
                row["row"] = canonical(row["row"])
        self.random.shuffle(rows)
        return Export(self.signer, self.leaves[:sealed], self.leaves[sealed:], rows, self._wire(moment))

    def _wire(self, moment: datetime) -> str:
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _tick(self) -> str:
        self.now += timedelta(
            seconds=self.random.choice([0, 1, 20, 300]), microseconds=self.random.randrange(10**6)
        )
        return self._wire(self.now)

    def _id(self) -> str:
        digits = self.random.randbytes(16).hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def _text(self) -> str | None:
        return self.random.choice([None, *TEXTS])

    def _maybe(self, value: Any) -> Any:
        return self.random.choice([value, None])

    def _leaf(self, kind: str, identity: str, at: str | None = None, **members: Any) -> None:
        action = members.get("action")
        if action is not None and len(canonical(action).encode()) > 257:
            members["action"] = None
        members |= {"v": 1, "kind": kind, "id": identity}
        members["at"] = at or self._tick()
        self.leaves.append(
            canonical({name: each for name, each in members.items() if each is not None}).encode()
        )
        self.times.append(self.now)
        self.logged.setdefault((kind, identity), members["at"])

    def _row(
        self, kind: str, row: dict[str, Any], context: str | None, key: str | None = None
    ) -> dict[str, str]:
        """Add a row and return the digests for its leaf."""
        salt, extra = self.random.randbytes(16), self.random.randbytes(16)
        content = canonical(row)
        line = {"kind": kind, "salt": (salt + extra).hex(), "context": context, "row": content}
        self.rows[kind, key or row["id"]] = line
        digests = {"digest": hashlib.sha256(salt + content.encode()).hexdigest()}
        if kind == "decision":
            line |= {"context_digest": self.random.randbytes(32).hex(), "row": line.pop("row")}
            text = canonical({name: line[name] for name in ("context", "context_digest")})
            digests["context"] = hashlib.sha256(extra + text.encode()).hexdigest()
        elif context is not None:
            digests["context"] = hashlib.sha256(extra + context.encode()).hexdigest()
        if kind not in {"decision", "log_entry"}:
            line["salt"] = salt.hex()
            del line["context"]
        return digests

    def _context(self) -> str | None:
        arguments = {"amount": self.random.randrange(100), "text": self._text()}
        return self.random.choice([None, canonical(arguments)])

    def _decision_row(self) -> dict[str, Any]:
        agent = self._maybe(self._id())
        return {
            "action": self.random.choice(TEXTS),
            "agent_id": agent,
            "approval_id": self._maybe(self._id()),
            "call_id": self._text(),
            "created_at": self._tick(),
            "id": self._id(),
            "key_id": self._id(),
            "outcome": self.random.choice(["allowed", "allowed", "denied", "approval_required"]),
            "permission_id": self._maybe(self._id()),
            "policy_revision": self._maybe(self.random.randrange(1000)),
            "reason_code": self.random.choice(["allowed", "no_permission", "freeze"]),
            "requested_agent": None if agent else "unknown",
            "rule_id": self._maybe(self._id()),
            "run_id": self._text(),
        }

    def _decision(self) -> None:
        row = self._decision_row()
        digests = self._row("decision", row, self._context())
        self.decisions.append(row["id"])
        self._leaf(
            *("decision", row["id"], row["created_at"]),
            agent=row["agent_id"],
            action=row["action"],
            outcome=row["outcome"],
            reason=row["reason_code"],
            rev=row["policy_revision"],
            approval=row["approval_id"],
            **digests,
        )

    def _entry(self) -> None:
        decision = self.random.choice([None, "not an id", *self.decisions[-5:], *self.decisions[-5:]])
        approval = self.random.choice([None, "free text", self._id()])
        row = {
            "action": self.random.choice(TEXTS),
            "address_seen": self._maybe("192.0.2.1"),
            "agent_id": self._id(),
            "approval_id": approval,
            "call_id": self._text(),
            "created_at": self._tick(),
            "decision_id": decision,
            "id": self._id(),
            "ip_address": "192.0.2.1",
            "key_id": self._id(),
            "occurred_at": self._maybe(self._wire(self.now)),
            "run_id": self._text(),
            "status": self.random.choice(["success", "failed", "pending", "denied"]),
        }
        digests = self._row("log_entry", row, self._context())
        self._leaf(
            *("log_entry", row["id"], row["created_at"]),
            agent=row["agent_id"],
            action=row["action"],
            outcome=row["status"],
            decision=decision if decision in self.decisions else None,
            approval=approval if approval != "free text" else None,
            **digests,
        )

    def _vote(self) -> None:
        # An approver may replace a vote.
        former = [key[1].split(" ") for key in self.rows if key[0] == "vote" and self.random.random() < 0.2]
        approval, user = self.random.choice(
            [*former, *([each, self._id()] for each in self.open), [self._id()] * 2]
        )
        row = {
            "approval_id": approval,
            "created_at": self._tick(),
            "credential": self._maybe("session"),
            "decision": self.random.choice(["approved", "denied"]),
            "note": self._text(),
            "user_id": user,
        }
        digests = self._row("vote", row, None, f"{row['approval_id']} {row['user_id']}")
        self._leaf(
            "vote",
            row["approval_id"],
            row["created_at"],
            by=row["user_id"],
            outcome=row["decision"],
            **digests,
        )

    def _audit(self) -> None:
        row = {
            "changes": self._maybe({"a": [1, {"ä": None}], "b": "x\ny", "c": 1.5}),
            "created_at": self._tick(),
            "environment": self._maybe("production"),
            "id": self._id(),
            "ip_address": None,
            "kind": "agent.created",
            "resource_id": self._id(),
            "user_id": self._maybe(self._id()),
        }
        digests = self._row("audit_event", row, None)
        self._leaf(
            "audit_event", row["id"], row["created_at"], type=row["kind"], by=row["user_id"], **digests
        )

    def _revision(self) -> None:
        row: dict[str, Any] = {
            "changes": [],
            "created_at": self._tick(),
            "created_by": self._id(),
            "digest": "cd" * 32,
            "document": {"agents": [{"name": "refund-bot"}], "version": "toolgate.policy/v1"},
            "id": self._id(),
            "message": self._text(),
            "number": self.random.randrange(1000),
            "restores": None,
        }
        digests = self._row("policy_revision", row, None)
        self._leaf(
            *("policy_revision", row["id"], row["created_at"]),
            number=row["number"],
            by=row["created_by"],
            **digests,
        )

    def _approval(self) -> None:
        row: dict[str, Any] = dict.fromkeys(column for columns in OF_STATE.values() for column in columns)
        row |= {
            "action": self.random.choice(TEXTS),
            "agent_id": self._id(),
            "approvers": self._maybe([self._id()]),
            "call_id": "",
            "consumed_call_id": "",
            "context": self._context(),
            "created_at": self._tick(),
            "id": self._id(),
            "key_id": self._id(),
            "reason": self._text(),
            "required_approvals": 2,
            "separation_of_duties": True,
        }
        salt = self.random.randbytes(32).hex()
        self.rows["approval", row["id"]] = {"kind": "approval", "salt": salt, "row": row}
        self._enter(row["id"], "pending")

    def _advance(self) -> None:
        if not self.open:
            return
        identity = self.random.choice(list(self.open))
        if ("approval", identity) in self.rows:
            self._enter(identity, self.random.choice(NEXT[self.open[identity]]))
        else:
            del self.open[identity]

    def _enter(self, identity: str, state: str) -> None:
        line, at = self.rows["approval", identity], self._tick()
        row, salt = line["row"], bytes.fromhex(line["salt"])
        for column in SET_BY[state] if state != "pending" else ():
            row[column] = at if column.endswith("_at") else self._maybe(self._id())
        if state == "consumed":
            row["decision_id"] = self.random.choice([None, self._id(), *self.decisions[-3:]])
        row["status"] = state
        visible = canonical({name: row[name] for name in ("action", "agent_id", "context", "id", "reason")})
        shown = hashlib.sha256(salt[16:] + visible.encode()).hexdigest()
        content = canonical({name: row[name] for name in OF_STATE[state]})
        self._leaf(
            *("approval", identity, at),
            agent=row["agent_id"],
            action=row["action"],
            state=state,
            by=row["decided_by"] if state in {"approved", "denied", "replaced"} else None,
            decision=row["decision_id"],
            shown=shown,
            digest=hashlib.sha256(salt[:16] + content.encode()).hexdigest(),
        )
        self.open.pop(identity, None)
        if state in NEXT:
            self.open[identity] = state

    def _retain(self) -> None:
        of = self.random.choice(["context", "decision", "log_entry", "audit_event", "approval"])
        times = [json.loads(leaf)["at"] for leaf in self.leaves[:-1]] or [self._wire(self.now)]
        before = self.random.choice(times[: len(times) // 2 + 1])
        self._leaf("retention", self._id(), of=of, before=before)
        self.removed[of] = max(before, self.removed.get(of, ""))
        for (kind, identity), line in list(self.rows.items()):
            is_old = self.time_of(kind, identity) < before and self.random.random() < 0.8
            if is_old and of == "context" and kind == "decision" and line["context"] is not None:
                line["context"], line["salt"] = None, line["salt"][:32]
            elif is_old and kind == of:
                del self.rows[kind, identity]
                self.open.pop(identity, None)
                for vote in [
                    key for key in self.rows if kind == "approval" and key[1].startswith(f"{identity} ")
                ]:
                    del self.rows[vote]

    def time_of(self, kind: str, identity: str) -> str:
        """Return the time on which the retention of a row depends."""
        if kind == "vote":
            return self.logged.get(("approval", identity.partition(" ")[0]), "9")
        return self.logged[kind, identity]

    def _erase(self) -> None:
        rows = [key for key in self.rows if key[0] in {"decision", "log_entry"} or self._is_closed(key)]
        if not rows:
            return
        kind, identity = self.random.choice(rows)
        line = self.rows[kind, identity]
        line["salt"] = line["salt"][:32]
        if kind == "approval":
            line["row"] |= {"context": "{}", "reason": None}
        else:
            line |= {"context": None} | ({"context_digest": ""} if kind == "decision" else {})
        self.erased.add((kind, identity))
        self._leaf("erasure", identity, of=kind, by=self._id())

    def _is_closed(self, key: tuple[str, str]) -> bool:
        return key[0] == "approval" and key[1] not in self.open

    def _earlier(self) -> None:
        row = self._decision_row()
        line = {"kind": "decision", "salt": None, "context": self._context(), "context_digest": "ab" * 32}
        self.earlier_rows.append(line | {"row": canonical(row)})
