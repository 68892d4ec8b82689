"""POST /sdk/log: what came of a tool call, on disk before it is acknowledged (spec §4, decisions §6)."""

from toolgate_service.errors import ApiError, FieldErrors, not_found
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.admission import admit, given_key
from toolgate_service.hotpath.arrivals import Ask
from toolgate_service.hotpath.http import Answer, Call, Handler
from toolgate_service.hotpath.standing import Standing
from toolgate_service.logs.entries import Outcome, Refused, Replayed, Stored
from toolgate_service.logs.reading import nobodys_entry, read_entry
from toolgate_service.organizations.keys import key_digest
from toolgate_service.plans import Plan
from toolgate_service.tracing.spans import span_of_entry
from toolgate_service.web.sdk_fields import SdkFields, idempotency_key


def log_endpoint(gateway: Gateway) -> Handler:
    """Return the handler of POST /sdk/log."""

    async def log(call: Call) -> Answer:
        digest = key_digest(given_key(call.header(b"x-api-key")))
        body, problem = call.fields()
        agent_id = body.get("agent_id")
        ask = Ask(digest, "actions", agent_id if isinstance(agent_id, str) else "")
        standing = await admit(call.scope, gateway, ask)
        if problem is not None and not isinstance(problem, FieldErrors):
            raise problem
        key = idempotency_key(call.header(b"idempotency-key"))
        plan = gateway.plans[standing.plan]
        try:
            if problem is not None:
                raise problem
            entry = read_entry(
                SdkFields(body),
                standing,
                plan,
                call.peer,
                key,
                test_log_bytes=gateway.settings.test_log_bytes,
            )
        except FieldErrors as error:
            return await _earlier(gateway, standing, plan, call.peer, key, error)
        if standing.key_agent_id not in {None, entry.agent_id}:
            raise not_found("Agent")
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
