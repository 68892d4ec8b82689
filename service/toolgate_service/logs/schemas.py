"""Log entries in requests, responses and exported files.

This module validates the log entries in requests, defines the possible outcomes when they are stored, and serializes
entries as JSON, JSON lines and CSV. Cells of CSV files are protected against formula injection.
"""

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, Field

from toolgate_service.context import AuthContext
from toolgate_service.core import strict_json
from toolgate_service.core.clock import utcnow, wire
from toolgate_service.core.errors import plan_limit_detail
from toolgate_service.core.ids import new_id
from toolgate_service.core.plans import UNLIMITED, Plan
from toolgate_service.core.schemas import (
    EXAMPLE_AGENT_ID,
    EXAMPLE_ID,
    EXAMPLE_TIME,
    AgentId,
    CreatedAt,
    OrganizationId,
    ResourceId,
    example,
)
from toolgate_service.core.sdk_fields import SdkFields
from toolgate_service.db.models import TEST
from toolgate_service.logs.models import STATUSES, LogEntry
from toolgate_service.transparency.leaves import new_salts
from toolgate_service.webhooks.events import FEATURE


class LogEntryView(BaseModel):
    """Log entry in responses of the API and in webhook events."""

    model_config = example(
        id=EXAMPLE_ID,
        agent_id=EXAMPLE_AGENT_ID,
        agent_name="refund-bot",
        organization_id=EXAMPLE_ID,
        action="stripe.refund",
        status="success",
        context={"amount": 12.5},
        ip_address="203.0.113.7",
        created_at=EXAMPLE_TIME,
        occurred_at=None,
        decision_id=EXAMPLE_ID,
        approval_id=None,
        call_id=None,
        run_id="run-7",
    )

    id: ResourceId
    agent_id: AgentId
    agent_name: str = Field(description="Name of the agent.")
    organization_id: OrganizationId
    action: str = Field(description="Action of the call, such as `stripe.refund`.")
    status: str = Field(description="Outcome of the call: `success`, `failed`, `pending` or `denied`.")
    context: Mapping[str, Any] | None = Field(
        description="Details of the call; null if the client sent none."
    )
    ip_address: str | None = Field(description="IP address from which the call came, or null.")
    created_at: CreatedAt
    occurred_at: datetime | None = Field(
        description="Time at which the call happened, if the client sent it."
    )
    decision_id: str | None = Field(description="Id of the decision about the call, if the client sent it.")
    approval_id: str | None = Field(
        description="Id of the approval request that allowed the call, if the client sent it."
    )
    call_id: str | None = Field(description="Identifier of the call, chosen by the client.")
    run_id: str | None = Field(description="Identifier of the agent run, chosen by the client.")


#: estimated size in bytes of a stored log entry without its action and context; the size of an entry counts towards the
#: maximum size of a test environment's log
ROW_BYTES = 500


@dataclass(frozen=True, slots=True)
class NewEntry:
    """Validated log entry that is not stored yet.

    Attributes:
        acts_as: Id of the only agent for which the API key is valid; None for a key of the whole organization.
        context: Context of the call as canonical JSON; None if the client sent no context.
        ip_address: IP address that the client sent; if it sent none, the same as `address_seen`.
        address_seen: IP address from which the gateway received the request.
        fingerprint: SHA-256 digest of the values of the entry.
    """

    organization_id: str
    environment: str
    plan: str
    max_logs_per_month: int
    #: maximum size in bytes of all log entries of the environment; -1 means no limit
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
    #: True if the plan of the organization includes webhooks
    has_webhooks: bool = False

    @property
    def size(self) -> int:
        """Size of the entry in bytes, as it counts towards the maximum size of a test environment's log."""
        return entry_bytes(self.action, self.context)

    def values(self) -> tuple[str | None, ...]:
        """Return the values of the entry in the order of `COLUMNS`."""
        values: tuple[str | None, ...] = _VALUES(self)
        return values


#: columns of `log_entries` whose values a `NewEntry` contains in the same form; the other columns are the id, the times
#: and the salts
COLUMNS = (
    "organization_id", "environment", "agent_id", "action", "status", "context", "ip_address", "address_seen",
    "decision_id", "approval_id", "call_id", "run_id", "key_id",
)  # fmt: skip
_VALUES = attrgetter(*COLUMNS)


@dataclass(frozen=True, slots=True)
class Stored:
    """Outcome of a log entry that was stored and committed to disk.

    Attributes:
        id: Id of the entry.
        created_at: Time at which the entry was stored.
        salt: Salts of the entry in the transparency log.
        body: Response body for the client.
    """

    id: str
    created_at: datetime
    salt: str
    body: bytes = b""

    @classmethod
    def at(cls, now: datetime) -> "Stored":
        """Return an outcome with a new id, new salts and the time `now`."""
        return cls(new_id(), now, new_salts())

    def with_body(self, body: bytes) -> "Stored":
        """Return a copy of the outcome with this response body."""
        return Stored(self.id, self.created_at, self.salt, body)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Outcome of a log entry that was not stored, because its idempotency key was used before.

    Attributes:
        body: Response to the first request with this key, byte for byte.
        mismatch: True if the first request had a different body.
    """

    body: bytes
    mismatch: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Outcome of a log entry that the gateway rejected.

    Attributes:
        status: HTTP status of the error response.
        detail: `detail` of the error response.
    """

    status: int
    detail: str | dict[str, object]

    @classmethod
    def key_of_other_agent(cls) -> "Refused":
        """Return the outcome for an idempotency key that another agent has used before."""
        return cls(400, {"Idempotency-Key": ["was used for another agent; choose another key"]})

    @classmethod
    def agent_not_found(cls) -> "Refused":
        """Return the outcome for a log entry of an agent that does not exist or was deleted."""
        return cls(404, "Agent not found")

    @classmethod
    def plan_limit(cls, used: int, limit: int, plan: str) -> "Refused":
        """Return the outcome for a log entry that would exceed the monthly limit of the plan."""
        return cls(403, plan_limit_detail("logs", used, limit, plan))

    @classmethod
    def test_log_full(cls, used: int, limit: int) -> "Refused":
        """Return the outcome for a log entry that would exceed the maximum size of the test environment's log."""
        message = (
            f"The test environment's log is full: {used}/{limit} bytes used; its entries are removed after seven days, "
            "and the operator may raise TOOLGATE_TEST_LOG_BYTES"
        )
        return cls(403, {"error": "test_log_full", "message": message, "limit_type": "test_log_bytes"})


Outcome: TypeAlias = Stored | Replayed | Refused


def entry_bytes(action: str, context: str | None) -> int:
    """Return the size of a log entry in bytes: the length of its action and context, plus `ROW_BYTES`.

    The size counts towards the maximum size of a test environment's log.
    """
    return ROW_BYTES + len(action) + len((context or "").encode())


def entry_answer(entry: NewEntry, stored: Stored) -> bytes:
    """Return the response body for a stored log entry: seven fields as JSON."""
    # Format the JSON directly, because serializing an object would take a fifth of the time for processing an entry.
    # Ids and statuses need no escaping, and the context is already JSON.
    return (
        f'{{"id":"{stored.id}","agent_id":"{entry.agent_id}","organization_id":"{entry.organization_id}",'
        f'"action":{strict_json.dumps(entry.action)},"status":"{entry.status}",'
        f'"created_at":"{wire(stored.created_at)}","context":{entry.context or "null"}}}'
    ).encode()


#: maximum number of log entries in one request to `/sdk/logs`
MAX_ENTRIES = 100


def read_entry(
    fields: SdkFields,
    auth: AuthContext,
    plan: Plan,
    peer: str | None,
    key: str | None,
    *,
    test_log_bytes: int,
) -> NewEntry:
    """Validate the fields of a log entry in a request.

    `peer` is the IP address of the client, `key` the idempotency key, if there is one. `test_log_bytes` is the maximum
    size of a test environment's log in bytes.

    Raises:
        FieldErrors: Fields are missing or invalid. The error lists all of these fields.
    """
    context = fields.context("context")
    agent_id, action = fields.text("agent_id"), fields.action("action")
    status = fields.choice("status", STATUSES)
    address, occurred_at = fields.address("ip_address"), fields.moment("occurred_at")
    decision_id, approval_id = fields.reference("decision_id"), fields.reference("approval_id")
    call_id, run_id = fields.reference("call_id"), fields.reference("run_id")
    fields.finish()
    canonical = None if context is None else fields.canonical
    happened = None if occurred_at is None else wire(occurred_at)
    values = (
        agent_id,
        action,
        status,
        canonical,
        address,
        happened,
        decision_id,
        approval_id,
        call_id,
        run_id,
    )
    return NewEntry(
        organization_id=auth.organization_id,
        environment=auth.environment,
        plan=auth.plan,
        max_logs_per_month=plan.max_logs_per_month,
        max_log_bytes=test_log_bytes if auth.environment == TEST else UNLIMITED,
        key_id=auth.key_id,
        acts_as=auth.key_agent_id,
        agent_id=agent_id,
        action=action,
        status=status,
        context=canonical,
        ip_address=address or peer,
        address_seen=peer,
        occurred_at=occurred_at,
        decision_id=decision_id,
        approval_id=approval_id,
        call_id=call_id,
        run_id=run_id,
        idempotency_key=key,
        fingerprint=_fingerprint(values),
        has_webhooks=FEATURE in plan.features,
    )


def probe_entry(auth: AuthContext, plan: Plan, peer: str | None, key: str) -> NewEntry:
    """Return a placeholder entry, with which the writer finds the stored response for an idempotency key.

    The writer never stores this entry, because it has no agent.
    """
    return NewEntry(
        organization_id=auth.organization_id,
        environment=auth.environment,
        plan=auth.plan,
        max_logs_per_month=plan.max_logs_per_month,
        max_log_bytes=UNLIMITED,
        key_id=auth.key_id,
        acts_as=auth.key_agent_id,
        agent_id="",
        action="",
        status="",
        context=None,
        ip_address=peer,
        address_seen=peer,
        occurred_at=None,
        decision_id=None,
        approval_id=None,
        call_id=None,
        run_id=None,
        idempotency_key=key,
        fingerprint="",
    )


def _fingerprint(values: Iterable[str | None]) -> str:
    # Compute the digest from the parsed values, so that an entry has the same fingerprint in `/sdk/log` and in
    # `/sdk/logs`. NUL is a safe separator, because no value contains it. An empty text stands only for a missing value,
    # because no value that a client sends is empty.
    return hashlib.sha256("\0".join(part or "" for part in values).encode()).hexdigest()


Format: TypeAlias = Literal["jsonl", "csv"]
#: log entry and the name of its agent
NamedEntry: TypeAlias = tuple[LogEntry, str]

EXPORTED_COLUMNS = (
    "id", "organization_id", "agent_id", "agent_name", "action", "status", "ip_address", "created_at", "occurred_at",
    "decision_id", "approval_id", "call_id", "run_id", "context",
)  # fmt: skip

#: characters that begin a formula in a spreadsheet, including their full-width forms
_SIGN = r"[=+\-@\uff1d\uff0b\uff0d\uff20]"
#: characters that a spreadsheet may ignore before a formula: white space, control characters, quotes, zero-width
#: characters
_SKIPPED = r"\s\"\x00-\x1f\x7f\u0085\u00ad\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
#: characters that begin a new cell or row in programs that use a delimiter other than the comma
_BREAKS = r";,|\t\r\n\x0b\x0c\x1c-\x1e\u0085\u2028\u2029"

_START = re.compile(rf"[\t\r]|[{_SKIPPED}]*+{_SIGN}")
# The quantifiers are possessive, so that the expressions do not backtrack and the time stays linear in the length of
# the text.
_RUN = re.compile(rf"([{_SKIPPED}{_BREAKS}]++)({_SIGN})?")
_RUN_IN_STRING = re.compile(
    rf"(\A(?:[{_SKIPPED}{_BREAKS}]|\\[nrt\"])*+|(?:[{_SKIPPED}{_BREAKS}]|\\[nrt\"])++)({_SIGN})?"
)
_LAST_BREAK = re.compile(rf"[{_BREAKS}](?=[^{_BREAKS}]*+\Z)")
_BREAK_IN_STRING = re.compile(rf"[{_BREAKS}]|\\[nrt]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')


class FileFormat(NamedTuple):
    """Format of an exported file.

    Attributes:
        media_type: Media type of the file.
        header: Bytes at the start of the file.
        write: Function that serializes log entries.
    """

    media_type: str
    header: bytes
    write: Callable[[Iterable[NamedEntry]], bytes]


def download_headers(environment: str, form: Format, exported: str = "logs") -> dict[str, str]:
    """Return the header `Content-Disposition`, with which browsers save an exported log as a file.

    `exported` is the part of the file name that names the log: `logs` or `decisions`.
    """
    name = f"toolgate-{exported}-{environment}-{utcnow():%Y-%m-%d}.{form}"
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def text_cell(text: str) -> str:
    """Insert an apostrophe before each character of a text that could begin a formula in a spreadsheet.

    Some programs read CSV files with ``;``, ``|`` or tabs as delimiters. For these programs, the quotes around a cell
    do not protect its content. Characters after such delimiters therefore get an apostrophe too.
    """
    guarded = _RUN.sub(_with_apostrophe, text)
    return f"'{guarded}" if _START.match(guarded) else guarded


def json_cell(text: str) -> str:
    """Return the JSON of a context with escape sequences for characters that could begin a formula in a spreadsheet.

    The value of the JSON does not change.
    """
    return _STRING.sub(lambda found: f'"{_RUN_IN_STRING.sub(_escaped, found[0][1:-1])}"', text)


def _with_apostrophe(found: re.Match[str]) -> str:
    run, sign = found.groups()
    last = _LAST_BREAK.search(run) if sign else None
    return found[0] if last is None else f"{run[: last.end()]}'{run[last.end() :]}{sign}"


def _escaped(found: re.Match[str]) -> str:
    run, sign = found.groups()
    begins = found.start() == 0 or _BREAK_IN_STRING.search(run)
    return f"{run}\\u{ord(sign):04x}" if sign and begins else found[0]


def _jsonl(entries: Iterable[NamedEntry]) -> bytes:
    return "".join(map(_json_line, entries)).encode()


def _json_line(named: NamedEntry) -> str:
    entry, agent_name = named
    fields = {
        name: getattr(entry, name) for name in EXPORTED_COLUMNS if name not in {"agent_name", "context"}
    }
    written = strict_json.dumps(fields | {"agent_name": agent_name})
    # Insert the stored context unchanged, because it is already JSON, with the numbers as the client sent them.
    return f'{written[:-1]},"context":{entry.context or "null"}}}\n'


def _csv(entries: Iterable[NamedEntry]) -> bytes:
    return csv_rows(
        [
            _cell(name, agent_name if name == "agent_name" else getattr(entry, name))
            for name in EXPORTED_COLUMNS
        ]
        for entry, agent_name in entries
    )


def _cell(name: str, value: str | datetime | None) -> str:
    if isinstance(value, datetime):
        return wire(value)
    return json_cell(value or "") if name == "context" else text_cell(value or "")


def csv_rows(rows: Iterable[Iterable[str]]) -> bytes:
    """Return the lines of a CSV file. The cells must already be protected against formula injection."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


FORMATS: Mapping[Format, FileFormat] = MappingProxyType(
    {
        "jsonl": FileFormat("application/jsonl", b"", _jsonl),
        "csv": FileFormat("text/csv", csv_rows([EXPORTED_COLUMNS]), _csv),
    }
)
