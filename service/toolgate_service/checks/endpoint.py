"""POST /sdk/check: the question every tool call asks first (spec §4, decisions §4).

Key → organization active → rate limit → body → agent → permission → amount → approval.
"""

import asyncio

from toolgate_service import exact_json
from toolgate_service.checks.decide import Blocked, Permitted, decide
from toolgate_service.checks.held import Held, LetThrough, settle
from toolgate_service.checks.question import read_question
from toolgate_service.checks.steps import Step
from toolgate_service.gateway import Gateway
from toolgate_service.hotpath.admission import admit
from toolgate_service.hotpath.http import Answer, Call, Handler, add_headers
from toolgate_service.hotpath.patience import DEADLINE
from toolgate_service.ids import new_id
from toolgate_service.storage.races import anew
from toolgate_service.tracing.spans import span
from toolgate_service.web.bodies import read_object
from toolgate_service.web.sdk_fields import idempotency_key

DECISION = b"x-decision-id"
LET_THROUGH = b"x-call-let-through"
#: the approved request that allows the call; a dry run finds out by it what can be cancelled
APPROVAL = b"x-approval-id"
#: the scope's key under which a check that was decided says how, for whoever counts
OUTCOME = "toolgate.outcome"
ALLOWED = b'{"allowed":true,"requires_approval":false,"reason":null,"approval_id":null}'


def check_endpoint(gateway: Gateway) -> Handler:
    """Return the handler of POST /sdk/check."""

    async def check(call: Call) -> Answer:
        # A refusal carries one too: whoever logs it may name it.
        add_headers(call.scope, {DECISION: new_id().encode()})
        admitted = await admit(call.scope, gateway, "actions")
        raw = await call.read()
        question = await gateway.parser.run(len(raw), lambda: read_question(read_object(raw), raw))
        key = idempotency_key(call.header(b"idempotency-key"))
        standing = await admitted.standing_for(gateway, question.agent_id, question.action)
        with span("toolgate.gateway.decide"):
            verdict = decide(standing, question.agent_id, question.action, question.context)
        if isinstance(verdict, Blocked) or (isinstance(verdict, Permitted) and question.approval_id is None):
            return _answer(call, verdict)
        database = gateway.database
        # One deadline for all attempts: the SDK gives up after five seconds.
        until = asyncio.get_running_loop().time() + DEADLINE

        async def settling() -> Permitted | Blocked | Held | LetThrough:
            if question.dry_run:
                turn = database.reading()
            else:
                turn = database.writing(standing.organization_id, until=until)
            async with turn as session:
                return await settle(session, gateway.settings, admitted.ask.key_digest, question, key, raw)

        settled = await anew(settling)
        # Not before the commit: should that fail, its answer names no decision that nothing stands behind.
        return _answer(call, settled)

    return check


def blocked_answer(verdict: Blocked) -> bytes:
    """Write the answer to a check that is blocked."""
    return _result(verdict.reason, held=False, approval_id=None)


def answer_of(verdict: Permitted | Blocked | Held | LetThrough) -> bytes:
    """Write the answer to a check."""
    match verdict:
        case Permitted() | LetThrough():
            return ALLOWED
        case Blocked():
            return blocked_answer(verdict)
        case Held():
            return _result(verdict.reason, held=True, approval_id=verdict.approval_id)


def _answer(call: Call, verdict: Permitted | Blocked | Held | LetThrough) -> Answer:
    call.scope[OUTCOME] = _outcome(verdict)
    if isinstance(verdict, LetThrough):
        add_headers(call.scope, {DECISION: verdict.decision_id.encode()})
        if verdict.at is Step.APPROVED and verdict.by is not None:
            add_headers(call.scope, {APPROVAL: verdict.by.encode()})
    elif isinstance(verdict, Blocked) and verdict.let_through:
        add_headers(call.scope, {LET_THROUGH: b"true"})
    return Answer(answer_of(verdict))


def _outcome(verdict: Permitted | Blocked | Held | LetThrough) -> str:
    if isinstance(verdict, Held):
        return "held"
    return "blocked" if isinstance(verdict, Blocked) else "allowed"


def _result(reason: str, *, held: bool, approval_id: str | None) -> bytes:
    result = {"allowed": False, "requires_approval": held, "reason": reason, "approval_id": approval_id}
    return exact_json.dumps(result).encode()
