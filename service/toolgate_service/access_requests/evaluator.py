"""Evaluator of AuthZEN access evaluations with support for access requests.

The evaluator adds to a denial the members with which the client can submit an access request. It accepts the resulting
approval in `context.approval` of a later evaluation. This approval overrides no rule: it only selects the approval
request that the check may consume. If the approval has expired or belongs to another evaluation, the evaluation is
decided as if it contained no approval. If the gateway cannot verify the approval, the evaluation is denied.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from toolgate_service.access_requests.denials import requestable
from toolgate_service.access_requests.signing import InvalidToken, Signer
from toolgate_service.approvals.models import APPROVED, PENDING, Approval, state_of
from toolgate_service.approvals.repository import find_approval
from toolgate_service.authzen.mapping import bound_members
from toolgate_service.authzen.schemas import Evaluation
from toolgate_service.authzen.service import Evaluated
from toolgate_service.checks.checker import Checker
from toolgate_service.checks.decide import Allowed, AllowedByApproval, Decision, Denied, PendingApproval, Step
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.context import AppContext, KeyCaller
from toolgate_service.core.clock import wire
from toolgate_service.core.errors import ApiError
from toolgate_service.core.ids import is_id, new_id
from toolgate_service.core.strict_json import Json
from toolgate_service.db.database import now

#: member of an evaluation's context that contains the approval
APPROVAL = "approval"
#: approval id that belongs to no approval request, so that a check with it is denied
_NO_APPROVAL = "00000000-0000-0000-0000-000000000000"
#: steps that deny a check because it cannot use the approval request that it names in `approval_id`
_BY_APPROVAL = frozenset({Step.APPROVAL_ID, Step.APPROVED, Step.OPEN})
#: seconds after which a client should evaluate again if the approval is still pending
_RETRY_SECONDS = 5


class Applicability(Enum):
    """Result of verifying the approval in an evaluation.

    If the evaluation is denied, the response contains one of these values as the reason.
    """

    VALID = "policy_denied"
    EXPIRED = "approval_expired"
    OUT_OF_SCOPE = "out_of_scope"
    PENDING = "grant_pending"
    UNVERIFIABLE = "approval_unverifiable"


class Presented(NamedTuple):
    """Approval in an evaluation, with the result of its verification.

    Attributes:
        found: Approval request whose id the evaluation contains; None if the approval cannot be verified.
    """

    applicability: Applicability
    found: Approval | None = None


class Evaluator:
    """Decides access evaluations with a `Checker`.

    Args:
        context: Configuration and services of the gateway.
        checker: Service that decides checks.
        base_url: URL of the gateway.
    """

    def __init__(self, context: AppContext, checker: Checker, base_url: str) -> None:
        self._context = context
        self._checker = checker
        self._base_url = base_url

    async def evaluate(
        self,
        caller: KeyCaller,
        evaluation: Evaluation,
        request: CheckRequest,
        raw: bytes,
        idempotency_key: str | None,
    ) -> Evaluated:
        """Decide an access evaluation. If its context names an approval that applies to it, the approval is used.

        The protocol `toolgate_service.authzen.service.Evaluator` describes the parameters.
        """
        approval = evaluation.context.get(APPROVAL)
        if approval is None:
            evaluated = await self._check(caller, request, raw, idempotency_key)
            return self._requestable(caller, evaluation, evaluated)
        presented = await self._find(caller, request, approval)
        evaluated, applicability = await self._evaluate_with(caller, request, raw, idempotency_key, presented)
        if isinstance(evaluated.decision, Allowed | AllowedByApproval):
            return evaluated._replace(more=_approval_member(evaluated.decision, presented.found))
        return self._explain(caller, evaluation, evaluated, applicability)

    async def _evaluate_with(
        self,
        caller: KeyCaller,
        request: CheckRequest,
        raw: bytes,
        idempotency_key: str | None,
        presented: Presented,
    ) -> tuple[Evaluated, Applicability]:
        found, applicability = presented.found, presented.applicability
        if applicability is Applicability.UNVERIFIABLE:
            request = request._replace(approval_id=_NO_APPROVAL)
            return await self._check(caller, request, raw, idempotency_key), applicability
        # A retry with an idempotency key receives the earlier decision, although the approval is consumed by then.
        is_retry = applicability is Applicability.EXPIRED and idempotency_key is not None
        if found is not None and (is_retry or applicability in {Applicability.VALID, Applicability.PENDING}):
            named = request._replace(approval_id=found.id)
            evaluated = await self._check(caller, named, raw, idempotency_key)
            decision = evaluated.decision
            if not (isinstance(decision, Denied) and decision.at in _BY_APPROVAL):
                return evaluated, applicability
            # A concurrent evaluation has consumed the approval, or stricter approval rules apply by now.
            applicability = Applicability.EXPIRED
        evaluated = await self._check(caller, request, raw, idempotency_key)
        return evaluated, applicability

    async def _find(self, caller: KeyCaller, request: CheckRequest, approval: Json) -> Presented:
        """Find the approval request that an evaluation names, and verify that it belongs to the evaluation."""
        approval_id = approval.get("id") if isinstance(approval, dict) else None
        if not isinstance(approval, dict) or not isinstance(approval_id, str) or not is_id(approval_id):
            return Presented(Applicability.UNVERIFIABLE)
        auth = caller.context
        async with self._context.database.reading() as session:
            try:
                found = await find_approval(session, auth.organization_id, auth.environment, approval_id)
            except ApiError:
                return Presented(Applicability.UNVERIFIABLE)
            moment = now(session)
        state = state_of(found, moment)
        is_verified = self._is_state_valid(approval, approval_id, moment.timestamp())
        if not is_verified or not caller.may_act_as(found.agent_id):
            return Presented(Applicability.UNVERIFIABLE)
        if not _is_in_scope(found, request):
            return Presented(Applicability.OUT_OF_SCOPE, found)
        by_state = {APPROVED: Applicability.VALID, PENDING: Applicability.PENDING}
        return Presented(by_state.get(state, Applicability.EXPIRED), found)

    def _is_state_valid(self, approval: Mapping[str, Json], approval_id: str, moment: float) -> bool:
        """Return whether `approval.state` is absent or valid.

        A valid state is a token that the gateway signed for this approval and that has not expired at `moment`.
        """
        state = approval.get("state")
        if state is None:
            return True
        if not isinstance(state, str):
            return False
        try:
            claims = Signer(self._context.vault.access_request_keys, self._base_url).verify(state)
        except InvalidToken:
            return False
        expires = claims["exp"]
        return (
            claims.get("approval_id") == approval_id and isinstance(expires, int | float) and moment < expires
        )

    async def _check(
        self, caller: KeyCaller, request: CheckRequest, raw: bytes, idempotency_key: str | None
    ) -> Evaluated:
        decision_id = new_id()
        decision = await self._checker.check(
            caller, request, raw, decision_id=decision_id, idempotency_key=idempotency_key
        )
        is_recorded = not (request.dry_run or caller.context.is_advisory)
        return Evaluated(decision, decision_id if is_recorded else None)

    def _requestable(self, caller: KeyCaller, evaluation: Evaluation, evaluated: Evaluated) -> Evaluated:
        """Add the members with which the client can submit an access request, if the decision waits for an approval.

        Nothing is added for a dry run, or if an approver has edited the arguments of the call.
        """
        decision, evaluation_id = evaluated.decision, evaluated.decision_id
        if not isinstance(decision, PendingApproval) or decision.approval_id is None or evaluation_id is None:
            return evaluated
        # An approver has edited the arguments of this call. The agent must continue with the edited request.
        if decision.at is Step.EDITED:
            return evaluated
        members = requestable(
            Signer(self._context.vault.access_request_keys, self._base_url),
            self._base_url,
            caller.context,
            evaluation_id,
            decision.approval_id,
            bound_members(evaluation.context),
        )
        return evaluated._replace(more=members)

    def _explain(
        self,
        caller: KeyCaller,
        evaluation: Evaluation,
        evaluated: Evaluated,
        applicability: Applicability,
    ) -> Evaluated:
        """Add the reason why an evaluation with an approval was denied, and the next action of the client."""
        decision = evaluated.decision
        if isinstance(decision, PendingApproval):
            if applicability is Applicability.PENDING:
                return evaluated._replace(
                    more={
                        "reason": applicability.value,
                        "next_action": "retry",
                        "retry_after": _RETRY_SECONDS,
                    }
                )
            # The approval comes from a temporary approval, which does not cover a call that exceeds a budget: a person
            # must approve this call.
            if applicability is Applicability.VALID:
                applicability = Applicability.EXPIRED
            requested = self._requestable(caller, evaluation, evaluated)
            # A dry run creates no approval request, so the client cannot submit an access request.
            action = "request" if requested.more else "none"
            more: dict[str, Json] = {"reason": applicability.value, "next_action": action}
            return requested._replace(more=dict(requested.more) | more)
        reason = Applicability.VALID
        if applicability is Applicability.UNVERIFIABLE and _is_by_approval(decision):
            reason = applicability
        return evaluated._replace(more={"reason": reason.value, "next_action": "none"})


def _is_by_approval(decision: Decision) -> bool:
    return isinstance(decision, Denied) and decision.at in _BY_APPROVAL


def _is_in_scope(approval: Approval, request: CheckRequest) -> bool:
    """Return whether a check has the same agent, action, context digest and run as the approval request."""
    return (approval.agent_id, approval.action, approval.digest, approval.run_id) == (
        request.agent_id,
        request.action,
        request.digest,
        request.run_id or "",
    )


def _approval_member(decision: Allowed | AllowedByApproval, presented: Approval | None) -> dict[str, Json]:
    """Return the member with the approval that permitted the evaluation; an empty object if none was needed."""
    if isinstance(decision, Allowed) or presented is None:
        return {}
    # The check may have consumed another approval of the same access, whose expiry is unknown here.
    if decision.by not in {None, presented.id}:
        return {}
    return {APPROVAL: {"id": presented.id, "approved_until": wire(presented.expires_at)}}
