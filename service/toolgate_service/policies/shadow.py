"""Evaluation of shadow policies, after the responses to checks.

A shadow policy has no effect on responses. Each recorded check of its environment is also evaluated under the shadow
policy, and the result is compared with the decision. The gateway counts the results in memory, and a background task
adds them to the row of the shadow policy about once a second, so several gateways can count for one shadow policy. If a
gateway is killed, the results that it has not yet added are lost. If the connection to the database is lost during a
commit, the results of about one second may be added twice.

The `AuthContext` of a check contains the id of the shadow policy that existed when the check was decided. A check is
therefore never counted for a shadow policy that began later.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field

import sqlalchemy
from sqlalchemy import bindparam
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.context import AuthContext
from toolgate_service.core import strict_json
from toolgate_service.db.database import Database
from toolgate_service.db.health import OUTAGE
from toolgate_service.decisions.recorder import TIME_DIGITS, DecisionRecord, time_of_prefix
from toolgate_service.organizations.epoch_cache import EpochCache, Tenant
from toolgate_service.organizations.models import Epoch
from toolgate_service.policies.comparison import CATEGORIES, UNCHANGED, DecidedCall, LiveComparison
from toolgate_service.policies.document import VERSION, PolicyDocument
from toolgate_service.policies.evaluation import PolicyEvaluator
from toolgate_service.policies.models import DIFFERENCES, PolicyShadow, PolicyShadowSample
from toolgate_service.policies.repository import load_policy

logger = logging.getLogger("toolgate.gateway")

#: seconds for which results are collected before they are added to the row of the shadow policy in the database
INTERVAL = 0.8
#: maximum number of samples of a shadow policy for each kind of difference. A sample is a check with another result
#: under the shadow policy.
MAX_SAMPLES = 100
#: seconds for which decisions are collected before they are compared, because comparing them in batches takes only a
#: third of the time
BATCH_INTERVAL = 0.2
#: maximum number of decisions that wait for their comparison; further decisions are not compared
MAX_WAITING = 10_000
#: maximum seconds that a shutdown waits for the results to be written
STOP_SECONDS = 5.0
#: seconds between two attempts to load a shadow policy while the database fails
_PAUSE = 1.0
#: seconds between two attempts to load a shadow policy during a shutdown, and after a failed attempt to write results
_LAST_PAUSE = 0.1
#: number of waiting decisions that are compared before the event loop can serve requests again
_CHUNK = 20

_SHADOW = select(PolicyShadow).where(
    col(PolicyShadow.organization_id) == bindparam("organization_id"),
    col(PolicyShadow.environment) == bindparam("environment"),
)
_EPOCH = select(Epoch.epoch).where(
    col(Epoch.organization_id) == bindparam("organization_id"),
    col(Epoch.environment) == bindparam("environment"),
)
_EMPTY_POLICY = PolicyEvaluator(PolicyDocument(version=VERSION))


@dataclass(frozen=True, slots=True)
class LoadedShadow:
    """Shadow policy and current policy of an environment, in the form in which they are evaluated.

    Attributes:
        id: Id of the shadow policy; None if the environment has no shadow policy.
        epoch: Version number (epoch) of the environment when the policies were read.
    """

    id: str | None
    epoch: int
    comparison: LiveComparison


NO_SHADOW = LoadedShadow(None, 0, LiveComparison(_EMPTY_POLICY, _EMPTY_POLICY))


class ShadowCache(EpochCache[LoadedShadow]):
    """Cache of the compiled shadow policy of each environment."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, NO_SHADOW)

    def has_data(self, auth: AuthContext) -> bool:
        """Return whether the environment has a shadow policy."""
        return auth.shadow_id is not None

    async def read(self, session: AsyncSession, tenant: Tenant, values: dict[str, str]) -> LoadedShadow:
        """Read and compile the shadow policy and the current policy of an environment."""
        epoch = (await session.exec(_EPOCH, params=values)).one()
        row = (await session.exec(_SHADOW, params=values)).first()
        if row is None:
            return NO_SHADOW
        loaded = await load_policy(session, *tenant)

        def compile_policies() -> LoadedShadow:
            candidate = PolicyDocument.model_validate(strict_json.loads_own(row.document))
            policies = (
                PolicyEvaluator(document, loaded.agent_ids) for document in (candidate, loaded.document)
            )
            return LoadedShadow(row.id, epoch, LiveComparison(*policies))

        # Compile in a thread: a thousand new conditions take longer than the event loop may be blocked.
        return await asyncio.to_thread(compile_policies)


@dataclass(slots=True)
class _Results:
    """Results of one shadow policy that are not in the database yet.

    Attributes:
        tenant: Organization id and environment of the shadow policy.
        counts: Number of compared decisions by category.
        samples: Column values of new rows of samples, by the kind of difference.
        full: Kinds of differences for which the database already contains `MAX_SAMPLES` samples.
    """

    tenant: Tenant
    counts: Counter[str] = field(default_factory=Counter)
    samples: dict[str, list[dict[str, str | None]]] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)

    def add(self, result: str, record: DecisionRecord, reason: str | None) -> None:
        """Count a result. Add a sample if the result is a difference with fewer than `MAX_SAMPLES` samples."""
        self.counts[result] += 1
        if result not in DIFFERENCES or result in self.full:
            return
        samples = self.samples.setdefault(result, [])
        if len(samples) < MAX_SAMPLES:
            samples.append(
                {
                    "decision_id": record.id,
                    "agent_id": record.auth.agent_id,
                    "action": record.action,
                    "difference": result,
                    "reason": reason,
                }
            )

    def take(self) -> "_Results":
        """Return the counts and samples collected so far, and reset them."""
        taken = _Results(self.tenant, self.counts, self.samples)
        self.counts, self.samples = Counter(), {}
        return taken

    def put_back(self, taken: "_Results") -> None:
        """Put back results that `take` returned, because they could not be written to the database."""
        self.counts += taken.counts
        for result, samples in taken.samples.items():
            self.samples[result] = (samples + self.samples.get(result, []))[:MAX_SAMPLES]


class ShadowObserver:
    """Observer that compares each decision with the shadow policy of its environment, and counts the results.

    Args:
        database: Database of the gateway.

    Attributes:
        dropped: Number of decisions that were not compared or counted, because too many waited, the comparison raised
            an error, or the database failed until the shutdown.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache = ShadowCache(database)
        self._results: dict[str, _Results] = {}
        self._waiting: dict[Tenant, deque[DecisionRecord]] = {}
        self._number_waiting = 0
        self._comparers: dict[Tenant, asyncio.Task[None]] = {}
        self._writer: asyncio.Task[None] | None = None
        self._is_closing = asyncio.Event()
        self.dropped = 0

    def observe(self, record: DecisionRecord) -> None:
        """Queue a decision for the comparison with the shadow policy. If `MAX_WAITING` decisions wait, drop it."""
        if self._number_waiting >= MAX_WAITING:
            if not self.dropped:
                logger.error(
                    "some decisions are not compared with the shadow policy, because too many decisions wait "
                    "for the comparison"
                )
            self.dropped += 1
            return
        tenant = (record.auth.organization_id, record.auth.environment)
        waiting = self._waiting.get(tenant)
        if waiting is None:
            waiting = self._waiting[tenant] = deque()
            self._comparers[tenant] = asyncio.create_task(self._compare_waiting(tenant), context=Context())
        waiting.append(record)
        self._number_waiting += 1

    async def stop(self) -> None:
        """Compare all waiting decisions and write all results. After `STOP_SECONDS`, the remaining ones are dropped."""
        self._is_closing.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                while tasks := self._tasks():
                    await asyncio.wait(tasks)
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        lost = self._number_waiting + sum(results.counts.total() for results in self._results.values())
        if lost:
            self.dropped += lost
            logger.error("%d results of shadow policies are lost: the database did not store them", lost)

    async def _pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until the shutdown begins, whichever comes first."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_closing.wait()

    def _tasks(self) -> Sequence[asyncio.Task[None]]:
        return [*self._comparers.values(), *([] if self._writer is None else [self._writer])]

    async def _compare_waiting(self, tenant: Tenant) -> None:
        """Compare the waiting decisions of an environment with its shadow policy."""
        waiting = self._waiting[tenant]
        try:
            await self._pause(BATCH_INTERVAL)
            while waiting:
                for _ in range(min(_CHUNK, len(waiting))):
                    shadow = await self._load(waiting[0].auth)
                    record = waiting.popleft()
                    self._number_waiting -= 1
                    try:
                        self._compare(shadow, record)
                    except Exception:
                        # An error in one comparison must not prevent the others.
                        logger.exception("the shadow policy cannot be compared with a decision")
                        self.dropped += 1
                await asyncio.sleep(0)
        finally:
            del self._comparers[tenant]
            if not waiting:
                del self._waiting[tenant]

    async def _load(self, auth: AuthContext) -> LoadedShadow:
        while True:
            try:
                return await self._cache.find(auth)
            except Exception as error:  # noqa: BLE001 - the error is logged, and the shadow is loaded again
                OUTAGE.failed("attempts to read shadow policies", error)
                await asyncio.sleep(_LAST_PAUSE if self._is_closing.is_set() else _PAUSE)

    def _compare(self, shadow: LoadedShadow, record: DecisionRecord) -> None:
        auth = record.auth
        if shadow.id is None or shadow.id != auth.shadow_id:
            # The shadow policy that existed when the check was decided has been discarded or replaced since then.
            return
        result, reason = _compare_record(shadow, record)
        results = self._results.get(shadow.id)
        if results is None:
            results = self._results[shadow.id] = _Results((auth.organization_id, auth.environment))
        results.add(result, record, reason)
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_results(), context=Context())

    async def _write_results(self) -> None:
        try:
            while any(results.counts for results in self._results.values()):
                await self._pause(INTERVAL)
                taken = {
                    shadow_id: results.take()
                    for shadow_id, results in self._results.items()
                    if results.counts
                }
                try:
                    full = await _add_results(self._database, taken)
                except BaseException as error:
                    for shadow_id, results in taken.items():
                        self._results[shadow_id].put_back(results)
                    if not isinstance(error, Exception):
                        raise
                    OUTAGE.failed("attempts to update the counts of shadow policies", error)
                    await asyncio.sleep(_LAST_PAUSE)
                else:
                    self._forget_written(full)
        finally:
            self._writer = None

    def _forget_written(self, full: Mapping[str, set[str] | None]) -> None:
        for shadow_id, kinds in full.items():
            if kinds is None:
                del self._results[shadow_id]
            else:
                self._results[shadow_id].full |= kinds


def _compare_record(shadow: LoadedShadow, record: DecisionRecord) -> tuple[str, str | None]:
    """Compare a decision with the shadow policy.

    Return the category of the result, and the reason that the agent would receive under the shadow policy. The reason
    is None if the shadow policy allows the call or was not evaluated.
    """
    agent_id = record.auth.agent_id
    is_current = record.auth.epoch == shadow.epoch
    if is_current and (agent_id is None or shadow.comparison.is_equivalent(agent_id, record.action)):
        return UNCHANGED, None
    call = DecidedCall(
        agent_id,
        record.action,
        record.context,
        record.run_id,
        time_of_prefix(record.id[:TIME_DIGITS]),
        record.outcome,
        record.reason_code,
        record.rule_id,
    )
    category, judgement, _ = shadow.comparison.compare(call, is_current=is_current)
    return category, None if judgement is None else judgement.reason


async def _add_results(database: Database, results: Mapping[str, _Results]) -> Mapping[str, set[str] | None]:
    """Add results to the rows of their shadow policies in one transaction.

    The result contains, by the id of the shadow policy, the kinds of differences that have reached `MAX_SAMPLES`
    samples, or None if the shadow policy was deleted.
    """
    full: dict[str, set[str] | None] = {}
    async with database.writing() as session:
        # Lock the rows in sorted order, so that two gateways never wait for each other.
        for shadow_id in sorted(results):
            full[shadow_id] = await _add_to_shadow(session, shadow_id, results[shadow_id])
    return full


async def _add_to_shadow(session: AsyncSession, shadow_id: str, results: _Results) -> set[str] | None:
    organization_id, environment = results.tenant
    connection = await session.connection()
    increased = {name: col(getattr(PolicyShadow, name)) + results.counts[name] for name in CATEGORIES}
    updated = await connection.execute(
        sqlalchemy.update(PolicyShadow)
        .where(
            col(PolicyShadow.organization_id) == organization_id,
            col(PolicyShadow.environment) == environment,
            col(PolicyShadow.id) == shadow_id,
        )
        .values(**increased)
    )
    if updated.rowcount == 0:
        return None
    if not results.samples:
        return set()
    # The transaction has locked the row of the shadow policy, so no other gateway adds samples at the same time.
    counted = await session.exec(
        select(PolicyShadowSample.difference, func.count())
        .where(
            PolicyShadowSample.organization_id == organization_id,
            PolicyShadowSample.environment == environment,
            PolicyShadowSample.shadow_id == shadow_id,
        )
        .group_by(PolicyShadowSample.difference)
    )
    stored = Counter(dict(counted.all()))
    fixed: dict[str, str | None] = {
        "organization_id": organization_id,
        "environment": environment,
        "shadow_id": shadow_id,
    }
    rows: Sequence[dict[str, str | None]] = [
        fixed | sample
        for kind, samples in results.samples.items()
        for sample in samples[: max(0, MAX_SAMPLES - stored[kind])]
    ]
    if rows:
        insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        await connection.execute(insert(PolicyShadowSample).values(rows).on_conflict_do_nothing())
        stored.update(row["difference"] for row in rows if row["difference"])
    return {kind for kind, number in stored.items() if number >= MAX_SAMPLES}
