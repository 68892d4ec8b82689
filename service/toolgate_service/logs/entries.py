"""A log entry on its way to disk, and what may become of it (decisions §6)."""

from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import TypeAlias

from toolgate_service import exact_json
from toolgate_service.clock import wire
from toolgate_service.errors import plan_limit_detail
from toolgate_service.ids import new_id

#: an entry's other columns and its place in the indexes
ROW_BYTES = 500


@dataclass(frozen=True, slots=True)
class NewEntry:
    """A validated entry. `context` is its canonical text."""

    organization_id: str
    environment: str
    plan: str
    max_logs_per_month: int
    #: how much its environment may hold; -1 for any amount
    max_log_bytes: int
    key_id: str
    acts_as: str | None
    agent_id: str
    action: str
    status: str
    context: str | None
    ip_address: str | None
    address_seen: str | None
    occurred_at: datetime | None
    decision_id: str | None
    approval_id: str | None
    call_id: str | None
    run_id: str | None
    idempotency_key: str | None
    fingerprint: str
    #: whether the plan has webhooks
    tells: bool = False

    @property
    def size(self) -> int:
        """How many bytes it counts for."""
        return entry_bytes(self.action, self.context)

    def values(self) -> tuple[str | None, ...]:
        """Return what stands in `COLUMNS`, in their order."""
        values: tuple[str | None, ...] = _VALUES(self)
        return values


#: what an entry brings along of its row; the rest is its id and its moments
COLUMNS = (
    "organization_id", "environment", "agent_id", "action", "status", "context", "ip_address", "address_seen",
    "decision_id", "approval_id", "call_id", "run_id", "key_id",
)  # fmt: skip
_VALUES = attrgetter(*COLUMNS)


@dataclass(frozen=True, slots=True)
class Stored:
    """The entry is on disk."""

    id: str
    created_at: datetime
    body: bytes = b""

    @classmethod
    def at(cls, now: datetime) -> "Stored":
        """Give an entry its id and its moment."""
        return cls(new_id(), now)

    def with_body(self, body: bytes) -> "Stored":
        """Return the same with its answer."""
        return Stored(self.id, self.created_at, body)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The key was used before: the original answer, byte for byte."""

    body: bytes
    mismatch: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was stored."""

    status: int
    detail: str | dict[str, object]

    @classmethod
    def key_of_another(cls) -> "Refused":
        """The idempotency key was used for another agent than the one that the API key acts as."""
        return cls(400, {"Idempotency-Key": ["was used for another agent; choose another"]})

    @classmethod
    def agent_not_found(cls) -> "Refused":
        """The agent does not exist, or no longer."""
        return cls(404, "Agent not found")

    @classmethod
    def plan_limit(cls, used: int, limit: int, plan: str) -> "Refused":
        """The month is full."""
        return cls(403, plan_limit_detail("logs", used, limit, plan))

    @classmethod
    def test_log_full(cls, held: int, limit: int) -> "Refused":
        """The test environment holds as much as it may (decisions §8)."""
        message = (
            f"The test environment's log is full: {held}/{limit} bytes used; its entries are removed after seven days, "
            "and the operator may raise TOOLGATE_TEST_LOG_BYTES"
        )
        return cls(403, {"error": "test_log_full", "message": message, "limit_type": "test_log_bytes"})


Outcome: TypeAlias = Stored | Replayed | Refused


def entry_bytes(action: str, context: str | None) -> int:
    """Return how many bytes an entry of the test environment counts for: its texts, and a row's worth."""
    return ROW_BYTES + len(action) + len((context or "").encode())


def entry_answer(entry: NewEntry, stored: Stored) -> bytes:
    """Write the answer of spec §4: the seven fields of a log entry."""
    # By hand: as an object it would take a fifth of what an entry costs. Identifiers and statuses need no escaping, and the
    # context is JSON already.
    return (
        f'{{"id":"{stored.id}","agent_id":"{entry.agent_id}","organization_id":"{entry.organization_id}",'
        f'"action":{exact_json.dumps(entry.action)},"status":"{entry.status}",'
        f'"created_at":"{wire(stored.created_at)}","context":{entry.context or "null"}}}'
    ).encode()
