"""POST /sdk/logs: up to a hundred entries at once, each answered for itself (decisions §3)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from toolgate_service import exact_json
from toolgate_service.errors import REQUIRED, ApiError, Detail, FieldErrors, not_found
from toolgate_service.exact_json import Json, TooManyValues
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.admission import admit
from toolgate_service.hotpath.http import Answer, Call, Handler
from toolgate_service.hotpath.standing import Standing
from toolgate_service.logs.entries import NewEntry, Outcome, Refused, Replayed, Stored
from toolgate_service.logs.reading import nobodys_entry, read_entry
from toolgate_service.tracing.spans import span_of_entry
from toolgate_service.web.bodies import read_object
from toolgate_service.web.sdk_fields import SdkFields

MAX_ENTRIES = 100
#: JSON values in a whole request; each entry alone may have `exact_json.MAX_NODES`
MAX_NODES = 25_000

#: what became of an entry: an outcome, or why the writer was not even asked or could not answer
Result: TypeAlias = Outcome | ApiError


@dataclass(frozen=True, slots=True)
class Doubtful:
    """What is no entry, under a key that may have been used before: it is then answered as before (decisions §6).

    Attributes:
        entry: finds out.
        problem: what is said when the key was not used.
    """

    entry: NewEntry
    problem: FieldErrors


#: an entry of a request as it was read, or why the writer need not be asked
Given: TypeAlias = NewEntry | Doubtful | ApiError


def logs_endpoint(gateway: Gateway) -> Handler:
    """Return the handler of POST /sdk/logs."""

    async def logs(call: Call) -> Answer:
        admitted = await admit(call.scope, gateway, "actions")
        raw, peer = await call.read(), call.peer

        def read() -> tuple[Sequence[Json], Sequence[Given]]:
            given = _entries(_members(raw))
            return given, [_read(one, admitted.standing, gateway, peer) for one in given]

        given, entries = await gateway.parser.run(len(raw), read)
        results = await _stored(gateway, entries, given)
        return Answer(b'{"results":[%s]}' % b",".join(map(_written, results)))

    return logs


def _members(raw: bytes) -> Mapping[str, Json]:
    try:
        exact_json.limit_nodes(raw, MAX_NODES)
    except TooManyValues as error:
        # As for a body of too many bytes: the client sends fewer entries at once.
        raise ApiError(413, f"{error}; send fewer entries in one request") from None
    return read_object(raw, max_nodes=MAX_NODES)


def _entries(body: Mapping[str, Json]) -> Sequence[Json]:
    entries = body.get("entries")
    if entries is None:
        raise FieldErrors({"entries": [REQUIRED]})
    if not isinstance(entries, list):
        raise FieldErrors({"entries": ["must be a list"]})
    if len(entries) > MAX_ENTRIES:
        raise FieldErrors({"entries": [f"must hold at most {MAX_ENTRIES} entries, not {len(entries)}"]})
    return entries


def _read(given: Json, standing: Standing, gateway: Gateway, peer: str | None) -> Given:
    if not isinstance(given, dict):
        return FieldErrors({"entry": ["must be an object"]})
    fields, plan = SdkFields(given), gateway.plans[standing.plan]
    key = fields.reference("idempotency_key")
    if exact_json.has_more_nodes(given, exact_json.MAX_NODES):
        return FieldErrors({"entry": [f"must not hold more than {exact_json.MAX_NODES} JSON values"]})
    try:
        cap = gateway.settings.test_log_bytes
        entry = read_entry(fields, standing, plan, peer, key, test_log_bytes=cap)
    except FieldErrors as error:
        # An agent's own key learns nothing of what other agents sent.
        if key is None or standing.key_agent_id is not None:
            return error
        return Doubtful(nobodys_entry(standing, plan, peer, key), error)
    return entry if standing.key_agent_id in {None, entry.agent_id} else not_found("Agent")


async def _stored(gateway: Gateway, entries: Sequence[Given], given: Sequence[Json]) -> list[Result]:
    """Return what became of each entry, in order.

    Raises:
        ApiError: 503, the writer took none of them.
    """

    async def append(one: NewEntry | Doubtful, given: Json) -> Result:
        try:
            with span_of_entry(given):
                return await gateway.log_writer.append(one.entry if isinstance(one, Doubtful) else one)
        except ApiError as error:
            return error

    # All at once: the writer takes them in this order, into one transaction.
    asked = [(one, raw) for one, raw in zip(entries, given, strict=True) if not isinstance(one, ApiError)]
    outcomes = await asyncio.gather(*[append(one, raw) for one, raw in asked])
    failures = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
    if failures and len(failures) == len(asked):
        # Nothing was stored: the whole request may be sent again.
        raise failures[0]
    found = iter(outcomes)
    return [one if isinstance(one, ApiError) else _told(one, next(found)) for one in entries]


def _told(one: NewEntry | Doubtful, result: Result) -> Result:
    return one.problem if isinstance(one, Doubtful) and isinstance(result, Refused) else result


def _written(result: Result) -> bytes:
    match result:
        case Stored(body=entry):
            return b'{"status":200,"entry":%s}' % entry
        case Replayed(body=entry, mismatch=mismatch):
            more = b',"mismatch":true' if mismatch else b""
            return b'{"status":200,"entry":%s,"replayed":true%s}' % (entry, more)
        case Refused(status=status, detail=detail):
            return _refusal(status, detail)
        case ApiError(status_code=status, reply_detail=detail):
            return _refusal(status, detail)


def _refusal(status: int, detail: Detail) -> bytes:
    return exact_json.dumps({"status": status, "detail": detail}).encode()
