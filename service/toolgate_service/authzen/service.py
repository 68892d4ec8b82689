"""Access evaluations: decisions of checks in the form of the AuthZEN specification."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from toolgate_service.authzen.mapping import to_check
from toolgate_service.authzen.schemas import (
    DENY_ON_FIRST_DENY,
    EXECUTE_ALL,
    PERMIT_ON_FIRST_PERMIT,
    Batch,
    Evaluation,
)
from toolgate_service.checks.decide import Allowed, AllowedByApproval, Decision, PendingApproval, reason_code
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.context import KeyCaller
from toolgate_service.core import strict_json
from toolgate_service.core.errors import FieldErrors, error_text
from toolgate_service.core.strict_json import Json

_PERMITTED = b'{"decision":true}'


class Evaluated(NamedTuple):
    """Decision about an access evaluation.

    Attributes:
        decision_id: Id of the decision in the decision log; None for a dry run. If `decision` contains an id, that id
            is used instead.
        more: Members of the decision's context that the Access Request and Approval Profile defines.
    """

    decision: Decision
    decision_id: str | None
    more: Mapping[str, Json] = {}


class Evaluator(Protocol):
    """Service that decides access evaluations, including those with an approval."""

    async def evaluate(
        self,
        caller: KeyCaller,
        evaluation: Evaluation,
        request: CheckRequest,
        raw: bytes,
        idempotency_key: str | None,
    ) -> Evaluated:
        """Decide an access evaluation.

        Args:
            caller: Authenticated caller.
            evaluation: The evaluation.
            request: The check to which the evaluation is translated.
            raw: Bytes that identify retries of the evaluation together with `idempotency_key`.
            idempotency_key: Value of the header `Idempotency-Key`, or None.
        """


async def evaluate_batch(
    evaluator: Evaluator, caller: KeyCaller, batch: Batch, raw: bytes, idempotency_key: str | None
) -> bytes:
    """Decide the evaluations of a request one after the other, and return the response body.

    The response ends with the evaluation after which `batch.semantic` stops. An invalid item counts as a denial.

    Args:
        evaluator: Service that decides access evaluations.
        caller: Authenticated caller.
        batch: The evaluations.
        raw: The body as received, which identifies retries together with `idempotency_key`.
        idempotency_key: Value of the header `Idempotency-Key`, or None.
    """
    parts: list[bytes] = []
    for index, item in enumerate(batch.items):
        permitted, part = await _evaluate_item(
            evaluator,
            caller,
            item,
            b"%d\n%b" % (index, raw),
            _item_key(idempotency_key, index),
            explain=batch.explain,
        )
        parts.append(part)
        # Let other requests run, because some evaluations never yield to the event loop.
        await asyncio.sleep(0)
        if batch.semantic != EXECUTE_ALL and _stops(batch.semantic, permitted=permitted):
            break
    return b'{"evaluations":[%b]}' % b",".join(parts)


def decision_body(evaluated: Evaluated, *, explain: bool) -> bytes:
    """Return the JSON object of a decision.

    The context of a permitted call contains only what the client needs to report the result of the call, because a
    client may reject a decision whose context it does not understand. The context of a denied call that waits for
    approval is never omitted.

    Args:
        evaluated: The decision.
        explain: True to add a context to a denied call that does not wait for approval.
    """
    decision, decision_id, more = evaluated
    if isinstance(decision, Allowed | AllowedByApproval):
        # Omit the id of a dry run's decision, because the decision log does not contain it.
        context = {} if decision_id is None else _permit_context(decision)
        context |= more
        return _body(permitted=True, context=context) if context else _PERMITTED
    if not explain and not more and not isinstance(decision, PendingApproval):
        return b'{"decision":false}'
    return _body(permitted=False, context=_denial_context(decision, decision_id) | dict(more))


async def _evaluate_item(
    evaluator: Evaluator,
    caller: KeyCaller,
    item: Evaluation | FieldErrors,
    identity: bytes,
    idempotency_key: str | None,
    *,
    explain: bool,
) -> tuple[bool, bytes]:
    if isinstance(item, FieldErrors):
        return False, _invalid(item)
    try:
        request = to_check(item, caller.context.key_agent_id)
    except FieldErrors as error:
        return False, _invalid(error)
    evaluated = await evaluator.evaluate(caller, item, request, identity, idempotency_key)
    permitted = isinstance(evaluated.decision, Allowed | AllowedByApproval)
    return permitted, decision_body(evaluated, explain=explain)


def _stops(semantic: str, *, permitted: bool) -> bool:
    """Return whether a batch with this semantic stops after an item that was permitted or denied."""
    if semantic == DENY_ON_FIRST_DENY:
        return not permitted
    return semantic == PERMIT_ON_FIRST_PERMIT and permitted


def _item_key(key: str | None, index: int) -> str | None:
    # Hash the key of the request, because the key of an item must not be longer than 255 characters.
    return None if key is None else f"{hashlib.sha256(key.encode()).hexdigest()}/{index}"


def _permit_context(decision: Allowed | AllowedByApproval) -> dict[str, Json]:
    context: dict[str, Json] = {}
    if decision.decision_id is not None:
        context["evaluation_id"] = decision.decision_id
    if decision.budget_left is not None:
        context["budget_left"] = decision.budget_left
    if isinstance(decision, AllowedByApproval) and decision.approval_id is not None:
        context["approval_id"] = decision.approval_id
    return context


def _denial_context(decision: Decision, decision_id: str | None) -> dict[str, Json]:
    context: dict[str, Json] = {} if decision_id is None else {"evaluation_id": decision_id}
    context["reason"] = reason_code(decision)
    if not isinstance(decision, Allowed | AllowedByApproval):
        context["message"] = decision.reason
    if isinstance(decision, PendingApproval) and decision.approval_id is not None:
        context["approval_id"] = decision.approval_id
    if decision.rule_id is not None:
        context["rule_id"] = decision.rule_id
    return context


def _invalid(error: FieldErrors) -> bytes:
    described: Json = {"status": error.status_code, "message": error_text(error.detail)}
    return _body(permitted=False, context={"error": described})


def _body(*, permitted: bool, context: dict[str, Json]) -> bytes:
    return strict_json.dumps({"decision": permitted, "context": context}).encode()


def results_body(results: Sequence[Json], next_token: str) -> bytes:
    """Return the response body of a search. The page is the first member, as the specification recommends."""
    page: Json = {"next_token": next_token, "count": len(results)}
    return strict_json.dumps({"page": page, "results": list(results)}).encode()
