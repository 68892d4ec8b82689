"""POST /sdk/log: what came of a tool call, on disk before it is acknowledged (spec §4, decisions §6)."""

from toolgate_service.errors import ApiError, not_found
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.admission import admit, given_key
from toolgate_service.hotpath.http import Answer, Call, Handler
from toolgate_service.logs.entries import Refused, Replayed, Stored
from toolgate_service.logs.reading import read_entry
from toolgate_service.organizations.keys import key_digest
from toolgate_service.web.sdk_fields import SdkFields, idempotency_key


def log_endpoint(gateway: Gateway) -> Handler:
    """Return the handler of POST /sdk/log."""

    async def log(call: Call) -> Answer:
        digest = key_digest(given_key(call.header(b"x-api-key")))
        body, problem = call.fields()
        agent_id = body.get("agent_id")
        standing = await gateway.reader.standing(digest, agent_id if isinstance(agent_id, str) else "", "")
        standing = await admit(call.scope, standing, gateway, "actions")
        if problem is not None:
            raise problem
        key = idempotency_key(call.header(b"idempotency-key"))
        entry = read_entry(SdkFields(body), standing, gateway.plans[standing.plan], call.peer, key)
        if standing.key_agent_id not in {None, entry.agent_id}:
            raise not_found("Agent")
        # With a key the answer may be an earlier one, given while the agent still was: the writer finds out.
        if standing.agent_id is None and entry.idempotency_key is None:
            raise not_found("Agent")
        outcome = await gateway.log_writer.append(entry)
        match outcome:
            case Stored(body=answer):
                return Answer(answer)
            case Replayed(body=answer, mismatch=mismatch):
                headers = {"Idempotency-Replayed": "true"} | (
                    {"Idempotency-Mismatch": "true"} if mismatch else {}
                )
                return Answer(answer, headers=headers)
            case Refused(status=status, detail=detail):
                raise ApiError(status, detail)

    return log
