"""POST /sdk/log: the outcome of a tool call, on disk before it is acknowledged (spec §4, decisions §6)."""

from functools import partial

from toolgate_service.errors import ApiError, FieldErrors, not_found
from toolgate_service.exact_json import Json
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.admission import admit
from toolgate_service.hotpath.http import Answer, Call, Handler
from toolgate_service.hotpath.standing import Standing
from toolgate_service.logs.entries import NewEntry, Outcome, Refused, Replayed, Stored
from toolgate_service.logs.reading import nobodys_entry, read_entry
from toolgate_service.plans import Plan
from toolgate_service.tracing.spans import span_of_entry
from toolgate_service.web.bodies import read_object
from toolgate_service.web.sdk_fields import SdkFields, idempotency_key


def log_endpoint(gateway: Gateway) -> Handler:
    """Return the handler of POST /sdk/log."""

    async def log(call: Call) -> Answer:
        admitted = await admit(call.scope, gateway, "actions")
        standing, peer = admitted.standing, call.peer
        key = idempotency_key(call.header(b"idempotency-key"))
        plan = gateway.plans[standing.plan]
        cap = gateway.settings.test_log_bytes

        def read(raw: bytes) -> tuple[dict[str, Json], NewEntry]:
            body = read_object(raw)
            return body, read_entry(SdkFields(body), standing, plan, peer, key, test_log_bytes=cap)

        try:
            raw = await call.read()
            body, entry = await gateway.parser.run(len(raw), partial(read, raw))
        except FieldErrors as error:
            return await _earlier(gateway, standing, plan, peer, key, error)
        if standing.key_agent_id not in {None, entry.agent_id}:
            raise not_found("Agent")
        standing = await admitted.standing_for(gateway, entry.agent_id)
        # With a key the answer may be an earlier one, given while the agent still was: the writer finds out.
        if standing.agent_id is None and entry.idempotency_key is None:
            raise not_found("Agent")
        with span_of_entry(body):
            return answer_of(await gateway.log_writer.append(entry))

    return log


async def _earlier(
    gateway: Gateway, standing: Standing, plan: Plan, peer: str | None, key: str | None, error: FieldErrors
) -> Answer:
    # A key that was used before is answered as before, also when the body differs so much that it is no entry
    # (decisions §6). An agent's own key learns nothing of what other agents sent.
    if key is None or standing.key_agent_id is not None:
        raise error
    outcome = await gateway.log_writer.append(nobodys_entry(standing, plan, peer, key))
    if isinstance(outcome, Refused):
        raise error
    return answer_of(outcome)


def answer_of(outcome: Outcome) -> Answer:
    """Write what became of an entry.

    Raises:
        ApiError: it was refused.
    """
    match outcome:
        case Stored(body=answer):
            return Answer(answer)
        case Replayed(body=answer, mismatch=mismatch):
            headers = {b"idempotency-replayed": b"true"}
            if mismatch:
                headers[b"idempotency-mismatch"] = b"true"
            return Answer(answer, headers=headers)
        case Refused(status=status, detail=detail):
            raise ApiError(status, detail)
