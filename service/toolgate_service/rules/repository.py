"""Database queries for rules, and the cache of the rules of each environment."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import sqlalchemy
from sqlalchemy import Row, bindparam
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.context import AuthContext
from toolgate_service.db.database import Database
from toolgate_service.organizations.models import Epoch
from toolgate_service.rules.evaluation import NO_RULES, CompiledRule, Condition, RuleSet, RuleTerms
from toolgate_service.rules.expressions import InvalidExpression, Variables, compile_expression
from toolgate_service.rules.models import Rule

#: maximum number of environments whose rules are cached
CACHE_SIZE = 1_000

#: id of an organization and name of one of its environments
Tenant: TypeAlias = tuple[str, str]

_EPOCH = select(Epoch.epoch).where(
    col(Epoch.organization_id) == bindparam("organization_id"),
    col(Epoch.environment) == bindparam("environment"),
)
#: columns of a rule that `_compile_rule` receives, in the order of its parameters
_COLUMNS = (
    "id",
    "name",
    "effect",
    "agents",
    "actions",
    "condition",
    "required_approvals",
    "approval_ttl_seconds",
    "approvers",
)
_ENABLED = (
    # Read columns instead of objects: a thousand objects take several times as long.
    sqlalchemy.select(*(col(getattr(Rule, name)) for name in _COLUMNS))
    .where(
        col(Rule.organization_id) == bindparam("organization_id"),
        col(Rule.environment) == bindparam("environment"),
        col(Rule.enabled).is_(True),
    )
    .order_by(col(Rule.id))
)


class RuleCache:
    """Cache of the compiled rules of each environment.

    A cached set of rules is valid while the epoch of its environment, a version number of its data, is unchanged. Every
    change of a rule increases the epoch in the same transaction.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sets: dict[Tenant, tuple[int, RuleSet]] = {}
        self._compiled: dict[Tenant, dict[Any, CompiledRule]] = {}
        self._loading: dict[Tenant, asyncio.Lock] = {}

    async def find(self, auth: AuthContext) -> RuleSet:
        """Return the rules that apply at the epoch at which the authentication context was read, or at a later one."""
        if not auth.has_rules:
            return NO_RULES
        tenant = (auth.organization_id, auth.environment)
        cached = self._cached(tenant, auth.epoch)
        if cached is not None:
            return cached
        # Only one of several concurrent checks reads the rules after a change.
        lock = self._loading.setdefault(tenant, asyncio.Lock())
        async with lock:
            cached = self._cached(tenant, auth.epoch)
            if cached is not None:
                return cached
            async with self._database.reading() as session:
                return await self.load(session, auth)

    async def load(self, session: AsyncSession, auth: AuthContext) -> RuleSet:
        """Return the rules that apply in the transaction of a session."""
        if not auth.has_rules:
            return NO_RULES
        tenant = (auth.organization_id, auth.environment)
        values = {"organization_id": auth.organization_id, "environment": auth.environment}
        # Read the epoch before the rules. If a rule changes between the two reads, the set is stored with the earlier
        # epoch, and the next check reads it again.
        epoch = (await session.exec(_EPOCH, params=values)).one()
        cached = self._cached(tenant, epoch)
        if cached is not None:
            return cached
        rows = (await (await session.connection()).execute(_ENABLED, values)).all()
        rules = await self._compile(tenant, rows)
        if tenant not in self._sets and len(self._sets) >= CACHE_SIZE:
            oldest = next(iter(self._sets))
            del self._sets[oldest], self._compiled[oldest]
            self._loading.pop(oldest, None)
        self._sets[tenant] = (epoch, rules)
        return rules

    def _cached(self, tenant: Tenant, epoch: int | None) -> RuleSet | None:
        cached = self._sets.get(tenant)
        if cached is None or epoch is None or cached[0] < epoch:
            return None
        return cached[1]

    async def _compile(self, tenant: Tenant, rows: Sequence[Row[Any]]) -> RuleSet:
        before = self._compiled.get(tenant, {})
        keys = [tuple(row) for row in rows]
        new = [key for key in keys if key not in before]
        # Compile in a thread: a thousand new conditions take longer than the event loop may be blocked.
        made = await asyncio.to_thread(lambda: {key: _compile_rule(*key) for key in new}) if new else {}
        compiled = {key: before[key] if key in before else made[key] for key in keys}
        self._compiled[tenant] = compiled
        return RuleSet(compiled.values())


def _compile_rule(
    rule_id: str,
    name: str,
    effect: str,
    agents: str | None,
    actions: str,
    condition: str | None,
    required_approvals: int | None,
    approval_ttl_seconds: int | None,
    approvers: str | None,
) -> CompiledRule:
    return CompiledRule(
        rule_id,
        name,
        effect,
        None if agents is None else frozenset(json.loads(agents)),
        tuple(json.loads(actions)),
        None if condition is None else _compile_condition(condition),
        RuleTerms(
            required_approvals,
            approval_ttl_seconds,
            None if approvers is None else frozenset(json.loads(approvers)),
        ),
    )


def _compile_condition(text: str) -> Condition:
    try:
        return compile_expression(text).evaluate
    except InvalidExpression:
        # The condition was valid when it was stored, but this version of the library rejects it. As with every failing
        # condition, an `allow` rule then never matches, and other rules match every call.
        return _fail


def _fail(_call: Variables) -> None:
    return None
