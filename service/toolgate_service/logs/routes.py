"""Routes of the activity log. `POST /sdk/log` and `/sdk/logs` are plain ASGI endpoints; `/api/logs` uses FastAPI."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query

from toolgate_service.context import AuthContext
from toolgate_service.core import strict_json
from toolgate_service.core.errors import REQUIRED, ApiError, Detail, FieldErrors, not_found
from toolgate_service.core.plans import Plan
from toolgate_service.core.schemas import Moment
from toolgate_service.core.sdk_fields import SdkFields, idempotency_key
from toolgate_service.core.strict_json import Json, TooManyValues, read_object
from toolgate_service.core.telemetry import span_of_entry
from toolgate_service.gateway import Gateway
from toolgate_service.http.asgi import Handler, PlainRequest, PlainResponse
from toolgate_service.http.dependencies import (
    ActionFilter,
    AgentFilter,
    AnyCaller,
    EnvironmentName,
    GatewayDep,
    PageDep,
    authenticate_api_key,
    load_context,
    refuse_advisory,
)
from toolgate_service.http.openapi import NOT_FOUND, PLAN_LIMIT, TEST_LOG_FULL, operation
from toolgate_service.http.responses import NO_STORE, Reply, Stream
from toolgate_service.http.strict_route import StrictRoute
from toolgate_service.logs.repository import Filters, list_entries
from toolgate_service.logs.schemas import (
    FORMATS,
    MAX_ENTRIES,
    Format,
    LogEntryView,
    NewEntry,
    Outcome,
    Refused,
    Replayed,
    Stored,
    download_headers,
    probe_entry,
    read_entry,
)
from toolgate_service.logs.service import export_entries

router = APIRouter(prefix="/api/logs", tags=["logs"], route_class=StrictRoute)


# The function is async, although it awaits nothing, because FastAPI runs synchronous dependencies in a thread.
async def _filters(
    agent_id: AgentFilter = None,
    status: Annotated[
        Literal["success", "failed", "pending", "denied"] | None,
        Query(description="Return only entries with this status."),
    ] = None,
    action: ActionFilter = None,
) -> Filters:
    return Filters(agent_id, status, action)


FiltersDep: TypeAlias = Annotated[Filters, Depends(_filters)]


@router.get("", response_model=list[LogEntryView], summary="List log entries")
async def list_logs(
    caller: AnyCaller,
    gateway: GatewayDep,
    filters: FiltersDep,
    page: PageDep,
    environment: EnvironmentName = "production",
) -> Reply:
    """Return log entries, newest first, page by page.

    Entries older than the retention period of the plan are deleted.
    """
    async with gateway.database.reading() as session:
        found = await list_entries(session, caller, environment, filters, page)
    return Reply(found.rows, headers=page.headers(found))


@router.get(
    "/export",
    response_model=None,
    responses={
        200: {
            "description": "The file.",
            "content": {form.media_type: {"schema": {"type": "string"}} for form in FORMATS.values()},
        }
    },
    summary="Export log entries as a file",
)
async def export_logs(
    caller: AnyCaller,
    gateway: GatewayDep,
    filters: FiltersDep,
    form: Annotated[
        Format, Query(alias="format", description="Format of the file: `jsonl` (JSON lines) or `csv`.")
    ] = "jsonl",
    begins: Annotated[
        Moment | None,
        Query(
            alias="from",
            description="Return only entries created at or after this time (ISO 8601; without an offset, UTC).",
        ),
    ] = None,
    ends: Annotated[
        Moment | None,
        Query(
            alias="to",
            description="Return only entries created before this time (ISO 8601; without an offset, UTC).",
        ),
    ] = None,
    environment: EnvironmentName = "production",
) -> Stream:
    """Return log entries as a file, newest first; `from` is inclusive, `to` exclusive.

    The response is streamed and has no page limit. In CSV files, cells that a spreadsheet could take for a formula
    begin with an apostrophe. The response is 400 if `to` is not later than `from`.
    """
    if begins is not None and ends is not None and ends <= begins:
        raise FieldErrors({"to": ["must be later than the parameter from"]})
    filters = replace(filters, begins=begins, ends=ends)
    headers = NO_STORE | download_headers(environment, form)
    parts = export_entries(gateway, caller.organization_id, environment, filters, form)
    return Stream(parts, FORMATS[form].media_type, headers)


def log_endpoint(gateway: Gateway) -> Handler:
    """Return the handler of `POST /sdk/log`."""

    async def log(received: PlainRequest) -> PlainResponse:
        caller = await authenticate_api_key(received.scope, gateway, "actions")
        refuse_advisory(caller)
        auth, peer = caller.context, received.peer
        key = idempotency_key(received.header(b"idempotency-key"))
        plan = gateway.plans[auth.plan]
        cap = gateway.settings.test_log_bytes

        def read(raw: bytes) -> tuple[dict[str, Json], NewEntry]:
            body = read_object(raw)
            return body, read_entry(SdkFields(body), auth, plan, peer, key, test_log_bytes=cap)

        try:
            raw = await received.read()
            body, entry = await gateway.parser.run(len(raw), partial(read, raw))
        except FieldErrors as error:
            return await _replay_response(gateway, auth, plan, peer, key, error)
        if auth.key_agent_id not in {None, entry.agent_id}:
            raise not_found("Agent")
        auth = await load_context(gateway, caller, entry.agent_id)
        # Send an entry with an idempotency key to the writer even if the agent does not exist: the writer may return a
        # stored response from before the agent was deleted.
        if auth.agent_id is None and entry.idempotency_key is None:
            raise not_found("Agent")
        with span_of_entry(body):
            return response_for(await gateway.log_writer.append(entry))

    return log


async def _replay_response(
    gateway: Gateway, auth: AuthContext, plan: Plan, peer: str | None, key: str | None, error: FieldErrors
) -> PlainResponse:
    # For a used idempotency key, return the stored response, even if the new body is invalid. A client with the API key
    # of a single agent receives the error instead: it must not see responses to other agents, and an invalid body does
    # not identify the agent.
    if key is None or auth.key_agent_id is not None:
        raise error
    outcome = await gateway.log_writer.append(probe_entry(auth, plan, peer, key))
    if isinstance(outcome, Refused):
        raise error
    return response_for(outcome)


def response_for(outcome: Outcome) -> PlainResponse:
    """Return the HTTP response for the outcome of storing a log entry.

    Raises:
        ApiError: The entry was rejected.
    """
    match outcome:
        case Stored(body=answer):
            return PlainResponse(answer)
        case Replayed(body=answer, mismatch=mismatch):
            headers = {b"idempotency-replayed": b"true"}
            if mismatch:
                headers[b"idempotency-mismatch"] = b"true"
            return PlainResponse(answer, headers=headers)
        case Refused(status=status, detail=detail):
            raise ApiError(status, detail)


#: maximum number of JSON values in a request with many entries; each entry may have `strict_json.MAX_NODES` values
MAX_NODES = 25_000

#: outcome of storing an entry, or the error that prevented it
Result: TypeAlias = Outcome | ApiError


@dataclass(frozen=True, slots=True)
class ReplayProbe:
    """Invalid entry with an idempotency key. If the key was used before, the stored response is returned.

    Attributes:
        entry: Placeholder entry, with which the writer looks up the key.
        problem: The validation error, which is returned if the key was not used before.
    """

    entry: NewEntry
    problem: FieldErrors


#: an entry of a request after validation: a valid entry, an invalid entry with an idempotency key, or an error
ParsedEntry: TypeAlias = NewEntry | ReplayProbe | ApiError


def logs_endpoint(gateway: Gateway) -> Handler:
    """Return the handler of `POST /sdk/logs`."""

    async def logs(received: PlainRequest) -> PlainResponse:
        caller = await authenticate_api_key(received.scope, gateway, "actions")
        refuse_advisory(caller)
        raw, peer = await received.read(), received.peer

        def read() -> tuple[Sequence[Json], Sequence[ParsedEntry]]:
            found = _entries(_members(raw))
            return found, [_read(one, caller.context, gateway, peer) for one in found]

        raw_entries, entries = await gateway.parser.run(len(raw), read)
        results = await _append_all(gateway, entries, raw_entries)
        return PlainResponse(b'{"results":[%s]}' % b",".join(map(_serialize_result, results)))

    return logs


def _members(raw: bytes) -> Mapping[str, Json]:
    try:
        strict_json.limit_nodes(raw, MAX_NODES)
    except TooManyValues as error:
        # Respond with 413 as for a body with too many bytes, because the client must react in the same way: send fewer
        # entries per request.
        raise ApiError(413, f"{error}; send fewer entries in one request") from None
    return read_object(raw, max_nodes=MAX_NODES)


def _entries(body: Mapping[str, Json]) -> Sequence[Json]:
    entries = body.get("entries")
    if entries is None:
        raise FieldErrors({"entries": [REQUIRED]})
    if not isinstance(entries, list):
        raise FieldErrors({"entries": ["must be a list"]})
    if len(entries) > MAX_ENTRIES:
        raise FieldErrors({"entries": [f"must contain at most {MAX_ENTRIES} entries, not {len(entries)}"]})
    return entries


def _read(raw: Json, auth: AuthContext, gateway: Gateway, peer: str | None) -> ParsedEntry:
    if not isinstance(raw, dict):
        return FieldErrors({"entry": ["must be an object"]})
    fields, plan = SdkFields(raw), gateway.plans[auth.plan]
    key = fields.reference("idempotency_key")
    if strict_json.has_more_nodes(raw, strict_json.MAX_NODES):
        return FieldErrors({"entry": [f"must not contain more than {strict_json.MAX_NODES} JSON values"]})
    try:
        cap = gateway.settings.test_log_bytes
        entry = read_entry(fields, auth, plan, peer, key, test_log_bytes=cap)
    except FieldErrors as error:
        # Do not look up the stored response for a client with the API key of a single agent: it must not see responses
        # to other agents.
        if key is None or auth.key_agent_id is not None:
            return error
        return ReplayProbe(probe_entry(auth, plan, peer, key), error)
    return entry if auth.key_agent_id in {None, entry.agent_id} else not_found("Agent")


async def _append_all(
    gateway: Gateway, entries: Sequence[ParsedEntry], raw_entries: Sequence[Json]
) -> list[Result]:
    """Store entries and return one result for each, in order.

    Raises:
        ApiError: 503, the writer could not process any of the entries that it received.
    """

    async def append(one: NewEntry | ReplayProbe, raw: Json) -> Result:
        try:
            with span_of_entry(raw):
                return await gateway.log_writer.append(one.entry if isinstance(one, ReplayProbe) else one)
        except ApiError as error:
            return error

    # Append all entries concurrently, so that the writer can commit them in one transaction, in the order of the
    # request.
    storable = [
        (one, raw) for one, raw in zip(entries, raw_entries, strict=True) if not isinstance(one, ApiError)
    ]
    outcomes = await asyncio.gather(*[append(one, raw) for one, raw in storable])
    failures = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
    if failures and len(failures) == len(storable):
        # Nothing was stored, so the whole request fails, and the client may retry it.
        raise failures[0]
    found = iter(outcomes)
    return [one if isinstance(one, ApiError) else _without_probe(one, next(found)) for one in entries]


def _without_probe(one: NewEntry | ReplayProbe, result: Result) -> Result:
    return one.problem if isinstance(one, ReplayProbe) and isinstance(result, Refused) else result


def _serialize_result(result: Result) -> bytes:
    match result:
        case Stored(body=entry):
            return b'{"status":200,"entry":%s}' % entry
        case Replayed(body=entry, mismatch=mismatch):
            more = b',"mismatch":true' if mismatch else b""
            return b'{"status":200,"entry":%s,"replayed":true%s}' % (entry, more)
        case Refused(status=status, detail=detail):
            return _refusal(status, detail)
        case ApiError(status_code=status, detail=detail):
            return _refusal(status, detail)


def _refusal(status: int, detail: Detail) -> bytes:
    return strict_json.dumps({"status": status, "detail": detail}).encode()


LOG = operation(
    "log",
    "Store a log entry",
    "Store the outcome of a call in the activity log. The entry is on disk before the gateway responds.\n\n"
    "With the header `Idempotency-Key`, a repeated request within 24 hours returns the original response and stores "
    "nothing. The response is 404 if the agent does not exist, and 403 if the plan's number of log entries per month or "
    "the size of the test environment's log is reached.",
    body="NewLogEntry",
    answer="LogEntry",
    ok="The entry is stored.",
    headers=("Idempotency-Replayed", "Idempotency-Mismatch"),
    refusals=(NOT_FOUND, PLAN_LIMIT, TEST_LOG_FULL),
)

LOGS = operation(
    "logMany",
    "Store several log entries",
    f"Store the outcomes of at most {MAX_ENTRIES} calls in the activity log, with a separate result for each entry.\n\n"
    "The request counts as one request against the rate limit, and each stored entry counts against the plan's number "
    "of log entries per month. The response is 200 even if entries are rejected: examine `results`.",
    body="NewLogEntries",
    answer="LogResults",
    ok="The request was processed. `results` contains the result of each entry.",
    headers=(),
    parameters=(),
)
