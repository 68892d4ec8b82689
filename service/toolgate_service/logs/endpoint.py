"""POST /sdk/log: what came of a tool call, on disk before it is acknowledged (spec §4, decisions §6)."""

import hashlib
from collections.abc import Mapping

from toolgate_service.errors import ApiError, not_found
from toolgate_service.exact_json import Json
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.admission import admit, given_key
from toolgate_service.hotpath.http import Answer, Call, Handler
from toolgate_service.hotpath.standing import Standing
from toolgate_service.logs.entries import NewEntry, Refused, Replayed, Stored
from toolgate_service.logs.models import STATUSES
from toolgate_service.organizations.keys import key_digest
from toolgate_service.plans import Plan
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
        entry = _read_entry(call, body, standing, gateway.plans[standing.plan])
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


def _read_entry(call: Call, body: Mapping[str, Json], standing: Standing, plan: Plan) -> NewEntry:
    fields = SdkFields(body)
    context = fields.context("context")
    entry = NewEntry(
        organization_id=standing.organization_id,
        environment=standing.environment,
        plan=standing.plan,
        max_logs_per_month=plan.max_logs_per_month,
        key_id=standing.key_id,
        agent_id=fields.text("agent_id"),
        action=fields.action("action"),
        status=fields.choice("status", STATUSES),
        context=None if context is None else fields.canonical,
        ip_address=fields.address("ip_address") or call.peer,
        address_seen=call.peer,
        occurred_at=fields.moment("occurred_at"),
        decision_id=fields.reference("decision_id"),
        approval_id=fields.reference("approval_id"),
        call_id=fields.reference("call_id"),
        run_id=fields.reference("run_id"),
        idempotency_key=idempotency_key(call.header(b"idempotency-key")),
        fingerprint=hashlib.sha256(call.raw).hexdigest(),
    )
    fields.finish()
    return entry
