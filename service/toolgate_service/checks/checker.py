"""Service that decides checks and records the decisions. `POST /sdk/check` and the AuthZEN endpoints use it."""

import asyncio

from toolgate_service.auth_store import AuthStore
from toolgate_service.budgets.repository import BudgetCache
from toolgate_service.checks.decide import (
    Allowed,
    AllowedByApproval,
    Decision,
    Denied,
    PendingApproval,
    Step,
    decide,
    reason_code,
)
from toolgate_service.checks.schemas import CheckRequest
from toolgate_service.checks.service import decide_in_transaction
from toolgate_service.context import AuthContext, KeyCaller, require_current
from toolgate_service.core.clock import utcnow
from toolgate_service.core.concurrency import DEADLINE
from toolgate_service.core.settings import Settings
from toolgate_service.core.telemetry import span
from toolgate_service.db.database import Database
from toolgate_service.db.retry import with_retry
from toolgate_service.decisions.models import ALLOWED, APPROVAL_REQUIRED, DENIED
from toolgate_service.decisions.recorder import DecisionRecord, DecisionRecorder
from toolgate_service.decisions.repository import insert_decision
from toolgate_service.rules.repository import RuleCache

_OUTCOMES = {Allowed: ALLOWED, AllowedByApproval: ALLOWED, Denied: DENIED, PendingApproval: APPROVAL_REQUIRED}
#: steps after `APPROVAL_ID`: if one of them denies a check with an `approval_id`, this approval request exists
_AFTER_APPROVAL_ID = frozenset(
    {Step.BUDGET_AMOUNT, Step.BUDGET, Step.CALL_ID, Step.APPROVED, Step.OPEN, Step.DENIED}
)


class Checker:
    """Decides checks of authenticated callers.

    A check that is not a dry run reserves amounts of budgets, consumes or creates approval requests, and is recorded in
    the decision log.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        auth_store: AuthStore,
        rules: RuleCache,
        budgets: BudgetCache,
        decisions: DecisionRecorder,
    ) -> None:
        self._database = database
        self._settings = settings
        self._auth_store = auth_store
        self._rules = rules
        self._budgets = budgets
        self._decisions = decisions

    async def check(
        self,
        caller: KeyCaller,
        request: CheckRequest,
        raw: bytes,
        *,
        decision_id: str,
        idempotency_key: str | None = None,
    ) -> Decision:
        """Decide a check, and record the decision unless the check is a dry run.

        With an advisory key, every check is a dry run.

        Args:
            caller: Authenticated caller.
            request: The check.
            raw: Bytes that identify retries of the check together with `idempotency_key`, such as the body as received.
            decision_id: Id under which the decision is recorded, unless the decision itself contains an id.
            idempotency_key: Value of the header `Idempotency-Key`, or None.

        Raises:
            ApiError: 401 if the key was revoked, or the organization deactivated, after the request was authenticated.
            StorageFault: The database did not respond.
        """
        if caller.context.is_advisory and not request.dry_run:
            request = request._replace(dry_run=True)
        found = await self._auth_store.load(
            caller.key_digest, request.agent_id, request.action, epoch=caller.epoch
        )
        auth = require_current(found)
        rules = await self._rules.find(auth)
        with span("toolgate.gateway.decide"):
            decision = decide(auth, request, rules, utcnow())
        if isinstance(decision, Denied):
            self._record(decision_id, auth, request, decision)
            return decision
        if isinstance(decision, Allowed) and request.approval_id is None:
            # Find out from the cache if a budget applies, because most calls need no transaction.
            budgets = await self._budgets.find(auth)
            if not budgets.match(auth.agent_id, request.action):
                self._record(decision_id, auth, request, decision)
                return decision
        return await self._decide_in_transaction(
            caller.key_digest, auth, request, raw, decision_id, idempotency_key
        )

    async def _decide_in_transaction(
        self,
        key_digest: str,
        auth: AuthContext,
        request: CheckRequest,
        raw: bytes,
        decision_id: str,
        idempotency_key: str | None,
    ) -> Decision:
        database = self._database
        # One deadline applies to all retries of the transaction together, because the SDK waits only five seconds for
        # the response.
        deadline = asyncio.get_running_loop().time() + DEADLINE

        async def attempt() -> tuple[Decision, DecisionRecord | None]:
            if request.dry_run:
                transaction = database.reading()
            else:
                transaction = database.writing(auth.organization_id, until=deadline)
            async with transaction as session:
                decided = await decide_in_transaction(
                    session,
                    self._settings,
                    self._rules,
                    self._budgets,
                    key_digest,
                    request,
                    idempotency_key,
                    raw,
                )
                if request.dry_run:
                    return decided.decision, None
                record = _to_record(decision_id, decided.auth or auth, request, decided.decision)
                stores_context = self._settings.decision_context_days > 0
                is_new = await insert_decision(session, record, stores_context=stores_context)
                return decided.decision, record if is_new else None

        # Return the decision after the commit of the transaction, so that a response never contains a decision that was
        # not stored.
        decision, record = await with_retry(attempt)
        if record is not None:
            self._decisions.observe(record)
        return decision

    def _record(
        self, decision_id: str, auth: AuthContext, request: CheckRequest, decision: Allowed | Denied
    ) -> None:
        """Queue the record of a check that changes nothing. It is written after the response."""
        if not request.dry_run:
            self._decisions.record(_to_record(decision_id, auth, request, decision))


def _to_record(
    decision_id: str,
    auth: AuthContext,
    request: CheckRequest,
    decision: Decision,
) -> DecisionRecord:
    """Return the record of a decision.

    A decision that consumed an approval or reserved an amount has an id. Every other decision receives `decision_id`.
    """
    approval_id = None
    if isinstance(decision, Allowed):
        decision_id = decision.decision_id or decision_id
    elif isinstance(decision, AllowedByApproval):
        decision_id, approval_id = decision.decision_id, decision.approval_id
    elif isinstance(decision, PendingApproval):
        approval_id = decision.approval_id
    elif decision.at in _AFTER_APPROVAL_ID:
        approval_id = request.approval_id
    return DecisionRecord(
        decision_id,
        auth,
        request.agent_id,
        request.action,
        request.run_id,
        request.call_id,
        request.context,
        request.canonical_text,
        _OUTCOMES[type(decision)],
        reason_code(decision),
        decision.rule_id,
        approval_id,
    )
