"""Replays, which compare the recorded decisions of a period with the results of another policy, the candidate.

The decisions are compared in a thread, batch by batch, while the event loop answers other requests.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.sessions import Caller
from toolgate_service.context import AppContext
from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.ids import is_id
from toolgate_service.core.strict_json import Json, canonical, digest, loads_own
from toolgate_service.db.database import now
from toolgate_service.decisions.recorder import MAX_CONTEXT
from toolgate_service.decisions.repository import RecordedDecision, stream_decisions
from toolgate_service.logs.repository import agent_names
from toolgate_service.policies.comparison import (
    CATEGORIES,
    NOT_REPLAYABLE,
    UNCHANGED,
    Category,
    Comparison,
    DecidedCall,
    PolicyComparison,
    is_independent,
)
from toolgate_service.policies.evaluation import Judgement, PolicyEvaluator
from toolgate_service.policies.replay_schemas import (
    DEFAULT_DAYS,
    MAX_DECISIONS,
    MAX_EXAMPLES,
    MAX_PAIRS,
    MAX_ROWS,
    PolicyReplay,
    ReplayCounts,
    ReplayExample,
    ReplayExamples,
    ReplayReason,
    ReplayReport,
    ReplayRow,
)
from toolgate_service.policies.repository import load_policy
from toolgate_service.policies.service import verify, verify_agents

#: number of decisions that the thread compares before it lets other threads run
_PAUSE_AFTER = 20

NO_CONTEXT = (
    f"The arguments are not stored: they are longer than {MAX_CONTEXT:,} characters, or older than "
    "TOOLGATE_DECISION_CONTEXT_DAYS"
)
OTHER_CONTEXT = "The digest of the stored arguments differs from the recorded digest"

_Pair = tuple[str | None, str | None]
#: key under which all pairs of agent and action after the first `MAX_PAIRS` are counted together
_OTHERS: _Pair = (None, None)


async def replay_policy(
    context: AppContext, caller: Caller, environment: str, request: PolicyReplay
) -> ReplayReport:
    """Compare the recorded decisions of a period with the results of a candidate policy.

    Raises:
        FieldErrors: 400, the candidate or the period is invalid, or the `agent` of the request does not identify an
            agent.
        ApiError: 429, too many replays are running.
    """
    await verify(request.policy)
    with context.replays.acquire(caller.organization_id):
        began = time.perf_counter()
        async with context.database.reading() as session:
            loaded = await load_policy(session, caller.organization_id, environment)
            since, until = _period(request, now(session))
        verify_agents(loaded, request.policy)
        current, candidate = await asyncio.to_thread(
            lambda: [PolicyEvaluator(one, loaded.agent_ids) for one in (loaded.document, request.policy)]
        )
        agent_id = None if request.agent is None else _find_agent(current, request.agent)
        comparison = PolicyComparison(current, candidate)
        counter = _Counter(comparison, request.action)
        batches = stream_decisions(
            context.database, caller.organization_id, environment, since, until, agent_id=agent_id
        )
        async for decisions in batches:
            await asyncio.to_thread(counter.add, decisions)
            if not counter.is_complete:
                break
        async with context.database.reading() as session:
            return await counter.report(session, since, until, time.perf_counter() - began)


def _period(request: PolicyReplay, moment: datetime) -> tuple[datetime, datetime]:
    until = request.until or moment
    since = request.since
    if since is None:
        earliest = datetime.min.replace(tzinfo=until.tzinfo) + timedelta(days=DEFAULT_DAYS)
        since = max(until, earliest) - timedelta(days=DEFAULT_DAYS)
    if since >= until:
        raise FieldErrors({"until": ["must be later than the field since"]})
    return since, until


def _find_agent(current: PolicyEvaluator, reference: str) -> str:
    """Return the id of an agent by its name or id. Every id is accepted, because it can belong to a deleted agent.

    Raises:
        FieldErrors: 400, no agent or several agents have the name.
    """
    found = current.agent_id(reference)
    if found is None and is_id(reference):
        return reference
    if found is None:
        message = f"{reference!r} is not the name or id of an agent, or several agents have this name"
        raise FieldErrors({"agent": [message]})
    return found


def compare_recorded(comparison: PolicyComparison, decision: RecordedDecision) -> Comparison:
    """Compare a recorded decision with the result of the candidate policy for the same call.

    A decision is not replayable if its arguments are not stored or do not have the recorded digest. This does not apply
    to decisions that are independent of the policy.
    """
    context: Mapping[str, Json] = {}
    if not is_independent(decision.agent_id, decision.reason_code):
        if decision.context is None:
            return Comparison(NOT_REPLAYABLE, problem=NO_CONTEXT)
        stored = _read_context(decision.context, decision.context_digest)
        if stored is None:
            return Comparison(NOT_REPLAYABLE, problem=OTHER_CONTEXT)
        context = stored
    call = DecidedCall(
        decision.agent_id,
        decision.action,
        context,
        decision.run_id,
        decision.created_at,
        decision.outcome,
        decision.reason_code,
        decision.rule_id,
    )
    return comparison.compare(call)


def _read_context(text: str, expected: str) -> Mapping[str, Json] | None:
    """Return the arguments in a stored text; None if the text is not a JSON object with the digest `expected`."""
    try:
        args = loads_own(text)
    except ValueError:
        return None
    if not isinstance(args, dict):
        return None
    # The recorded digest belongs to the canonical text. The stored text differs from it only if the arguments contain
    # numbers such as 1.0, which the canonical text writes as 1.
    if digest(text) == expected or digest(canonical(args)) == expected:
        return args
    return None


class _Counter:
    """Counter that compares batches of decisions and collects the counts and examples for the report.

    Attributes:
        judged: Number of compared decisions.
        is_complete: False if there were more than `MAX_DECISIONS` decisions, so that the later ones were not compared.
    """

    def __init__(self, comparison: PolicyComparison, action: str | None) -> None:
        self._comparison = comparison
        self._action = action
        self._pairs: dict[_Pair, Counter[Category]] = {}
        self._problems: Counter[str] = Counter()
        self._examples: dict[Category, list[tuple[RecordedDecision, Judgement]]] = {
            category: [] for category in CATEGORIES
        }
        self.judged = 0
        self.is_complete = True

    def add(self, decisions: Sequence[RecordedDecision]) -> None:
        """Compare a batch of decisions, and count the results."""
        for number, decision in enumerate(decisions):
            if self._action is not None and decision.action != self._action:
                continue
            if self.judged >= MAX_DECISIONS:
                self.is_complete = False
                return
            if number % _PAUSE_AFTER == 0:
                # Release the interpreter lock. Otherwise, checks would wait up to 5 ms for it, which is Python's
                # switch interval.
                time.sleep(0)
            self._count(decision, compare_recorded(self._comparison, decision))

    def _count(self, decision: RecordedDecision, result: Comparison) -> None:
        self.judged += 1
        category = result.category
        pair: _Pair = (decision.agent_id, decision.action)
        counts = self._pairs.get(pair)
        if counts is None:
            if len(self._pairs) >= MAX_PAIRS:
                pair = _OTHERS
            counts = self._pairs.setdefault(pair, Counter())
        counts[category] += 1
        if result.problem is not None:
            self._problems[result.problem] += 1
        elif category != UNCHANGED and result.judgement is not None:
            examples = self._examples[category]
            if len(examples) < MAX_EXAMPLES:
                examples.append((decision, result.judgement))

    async def report(
        self, session: AsyncSession, since: datetime, until: datetime, seconds: float
    ) -> ReplayReport:
        """Return the report. The names of agents, also of deleted ones, are read with `session`."""
        shown = sorted(self._pairs.items(), key=_order)[:MAX_ROWS]
        examples = [decision for found in self._examples.values() for decision, _ in found]
        ids = {agent_id for (agent_id, _), _ in shown} | {one.agent_id for one in examples}
        names = await agent_names(session, {one for one in ids if one is not None})
        total: Counter[Category] = Counter()
        for counts in self._pairs.values():
            total.update(counts)
        return ReplayReport(
            since=since,
            until=until,
            judged=self.judged,
            is_complete=self.is_complete,
            seconds=round(seconds, 3),
            decisions_per_second=int(self.judged / seconds),
            totals=ReplayCounts.model_validate(total),
            rows=[
                ReplayRow.model_validate(
                    {"agent_id": agent_id, "agent": names.get(agent_id or ""), "action": action, **counts}
                )
                for (agent_id, action), counts in shown
            ],
            omitted_rows=len(self._pairs) - len(shown),
            not_replayable=[
                ReplayReason(reason=reason, count=count) for reason, count in self._problems.most_common()
            ],
            examples=ReplayExamples(
                newly_allowed=_views(self._examples["newly_allowed"], names),
                newly_held=_views(self._examples["newly_held"], names),
                newly_denied=_views(self._examples["newly_denied"], names),
            ),
        )


def _order(item: tuple[_Pair, Counter[Category]]) -> tuple[int, int, str, str]:
    (agent_id, action), counts = item
    differing = counts.total() - counts[UNCHANGED] - counts[NOT_REPLAYABLE]
    return -differing, -counts.total(), action or "", agent_id or ""


def _views(
    found: Iterable[tuple[RecordedDecision, Judgement]], names: Mapping[str, str]
) -> list[ReplayExample]:
    return [
        ReplayExample.model_validate(
            {
                "decision_id": decision.id,
                "created_at": decision.created_at,
                "agent_id": decision.agent_id,
                "agent": names.get(decision.agent_id or ""),
                "action": decision.action,
                "outcome": decision.outcome,
                "reason_code": decision.reason_code,
                "new_outcome": new.outcome.label,
                "new_reason_code": new.reason_code,
                "reason": new.reason,
                "rule": new.rule,
            }
        )
        for decision, new in found
    ]
