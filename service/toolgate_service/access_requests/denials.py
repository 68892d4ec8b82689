"""Requestable denials: AuthZEN denials for which the client can submit an access request.

This module builds the members that such a denial adds to the context of the decision, and verifies that a submitted
access request belongs to its denial. One of these members is the binding token, a signed text that the client sends
back. The token does not contain the values of the evaluation: the gateway stores the subject, action, resource and
context with the approval request that the evaluation creates, and compares them with those of the submission.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.access_requests.errors import expired_denial, invalid_binding, not_requestable
from toolgate_service.access_requests.schemas import Denial
from toolgate_service.access_requests.signing import InvalidToken, Signer
from toolgate_service.approvals.models import Approval
from toolgate_service.approvals.repository import find_approval
from toolgate_service.authzen.mapping import evaluation_of
from toolgate_service.authzen.metadata import ACCESS_REQUESTS
from toolgate_service.authzen.schemas import Evaluation, Members
from toolgate_service.context import AuthContext, KeyCaller
from toolgate_service.core import strict_json
from toolgate_service.core.clock import wire
from toolgate_service.core.errors import ApiError
from toolgate_service.core.ids import time_of_id
from toolgate_service.core.schemas import moment_of
from toolgate_service.core.strict_json import Json
from toolgate_service.db.database import now
from toolgate_service.decisions.models import APPROVAL_REQUIRED
from toolgate_service.decisions.repository import find_decision

#: time after a denied evaluation during which an access request can be submitted
LIFETIME = timedelta(minutes=10)
#: reason code of denials for which an access request can be submitted
REQUESTABLE = "approval_required"
_MISMATCH = "The subject, the resource, the action or the context differs from the denied evaluation"


class BoundDenial(NamedTuple):
    """Denied evaluation to which a submitted access request belongs.

    Attributes:
        approval: Approval request that the evaluation created or found.
    """

    evaluation_id: str
    approval: Approval


def requestable(
    signer: Signer, base_url: str, auth: AuthContext, evaluation_id: str, approval: str, members: Members
) -> dict[str, Json]:
    """Return the members of a decision's context with which the client can submit an access request for the denial.

    Args:
        signer: Key that signs the binding token.
        base_url: URL of the gateway.
        auth: Context of the API key that sent the evaluation.
        evaluation_id: Id of the denied evaluation.
        approval: Id of the approval request that the evaluation created or found.
        members: Members of the evaluation's context to which the approval is bound.
    """
    evaluated = time_of_id(evaluation_id)
    if evaluated is None:
        raise RuntimeError("ids of decisions contain the time")
    expires = evaluated + LIFETIME
    claims: dict[str, Json] = {
        "jti": evaluation_id,
        "evaluation_id": evaluation_id,
        "denial_expires_at": wire(expires),
        "binding_context_members": list[Json](sorted(members)),
        "organization": auth.organization_id,
        "environment": auth.environment,
        "approval_id": approval,
    }
    request: dict[str, Json] = {
        "endpoint": base_url + ACCESS_REQUESTS,
        "expires_at": wire(expires),
        "binding_token": signer.sign(claims, issued=evaluated, expires=expires),
    }
    return {"evaluated_at": wire(evaluated), "access_request": request}


async def verify_denial(
    session: AsyncSession, signer: Signer, caller: KeyCaller, denial: Denial | None, submitted: Evaluation
) -> BoundDenial:
    """Verify the denial in a submission, and return the denied evaluation to which the submission belongs.

    Raises:
        ApiError: 400 if the denial is missing, invalid or not requestable, or does not belong to the submission; 410
            if the denial has expired.
    """
    if denial is None:
        raise invalid_binding("denial: is required for each evaluation")
    auth = caller.context
    echoed = _moment(denial.expires_at)
    if denial.binding_token is not None:
        claims = _verified(signer, auth, denial.binding_token)
        evaluation_id, deadline = str(claims["evaluation_id"]), _moment(str(claims["denial_expires_at"]))
        if denial.evaluation_id not in {None, evaluation_id} or echoed != deadline:
            raise invalid_binding("denial: evaluation_id or expires_at differs from the binding token")
        approval_id = str(claims["approval_id"])
    else:
        evaluation_id = denial.evaluation_id or ""
        approval_id = await _recorded(session, auth, evaluation_id)
        created = time_of_id(evaluation_id)
        deadline = echoed if created is None else min(echoed, created + LIFETIME)
    if now(session) > deadline:
        raise expired_denial()
    try:
        approval = await find_approval(session, auth.organization_id, auth.environment, approval_id)
    except ApiError:
        raise invalid_binding("The approval request of the denied evaluation does not exist") from None
    if not caller.may_act_as(approval.agent_id) or not _is_bound(approval, submitted):
        raise invalid_binding(_MISMATCH)
    return BoundDenial(evaluation_id, approval)


def recorded_evaluation(approval: Approval) -> Evaluation | None:
    """Return the AuthZEN evaluation that created an approval request.

    The result is None if the arguments of the request do not come from an AuthZEN evaluation.
    """
    args = strict_json.loads_own(approval.context)
    return evaluation_of(args) if isinstance(args, dict) else None


def is_equal(one: Json, other: Json) -> bool:
    """Compare two JSON values as the Access Request and Approval Profile requires: by type, and numbers by value."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if _is_number(one) and _is_number(other):
        return one == other
    return type(one) is type(other) and one == other


def _is_number(value: Json) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_bound(approval: Approval, submitted: Evaluation) -> bool:
    recorded = recorded_evaluation(approval)
    if recorded is None:
        return False
    # Ignore members of the context that the evaluation did not contain: the client adds them to the submission, such as
    # a justification.
    context = {name: value for name, value in submitted.context.items() if name in recorded.context}
    pairs = (
        (_without_actor(recorded.subject), _without_actor(submitted.subject)),
        (recorded.action, submitted.action),
        (recorded.resource, submitted.resource),
        (recorded.context, context),
    )
    return all(is_equal(dict(one), dict(other)) for one, other in pairs)


def _without_actor(subject: Members) -> Members:
    """Return a subject without `properties.act`, because a client may send the actor in `client.actor` instead."""
    properties = subject.get("properties")
    if not isinstance(properties, dict) or "act" not in properties:
        return subject
    rest: dict[str, Json] = {name: value for name, value in properties.items() if name != "act"}
    others = {name: value for name, value in subject.items() if name != "properties"}
    return others | ({"properties": rest} if rest else {})


def _verified(signer: Signer, auth: AuthContext, token: str) -> Mapping[str, Json]:
    try:
        claims = signer.verify(token)
    except InvalidToken as error:
        raise invalid_binding(f"denial.binding_token: {error}") from None
    tenant = (claims.get("organization"), claims.get("environment"))
    if tenant != (auth.organization_id, auth.environment) or "approval_id" not in claims:
        raise invalid_binding("denial.binding_token: belongs to another API key")
    return claims


async def _recorded(session: AsyncSession, auth: AuthContext, evaluation_id: str) -> str:
    """Return the id of the approval request that an evaluation created or found, from the decision log.

    Raises:
        ApiError: 400 if the decision log does not contain the evaluation, or if it does not wait for an approval.
    """
    decision = await find_decision(session, auth.organization_id, auth.environment, evaluation_id)
    if decision is None:
        raise invalid_binding("denial: contains neither a binding token nor the id of an evaluation")
    if decision.outcome != APPROVAL_REQUIRED or decision.reason_code != REQUESTABLE:
        raise not_requestable("The evaluation does not wait for approval")
    return decision.approval_id or ""


def _moment(text: str) -> datetime:
    try:
        return moment_of(text).astimezone(UTC)
    except ValueError:
        raise invalid_binding("denial.expires_at: must be a timestamp of RFC 3339") from None
