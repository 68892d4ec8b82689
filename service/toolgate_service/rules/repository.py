"""Database queries for rules, and the cache of the rules of each environment."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import Row, bindparam
from sqlmodel import col
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.context import AuthContext
from toolgate_service.db.database import Database
from toolgate_service.organizations.epoch_cache import EpochCache, Tenant
from toolgate_service.rules.evaluation import NO_RULES, CompiledRule, Condition, RuleSet, RuleTerms
from toolgate_service.rules.expressions import InvalidExpression, Variables, compile_expression
from toolgate_service.rules.models import Rule

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


class RuleCache(EpochCache[RuleSet]):
    """Cache of the compiled rules of each environment."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, NO_RULES)
        self._compiled: dict[Tenant, dict[Any, CompiledRule]] = {}

    def has_data(self, auth: AuthContext) -> bool:
        """Return whether the environment has enabled rules."""
        return bool(auth.has_rules)

    async def read(self, session: AsyncSession, tenant: Tenant, values: dict[str, str]) -> RuleSet:
        """Read and compile the rules of an environment."""
        rows = (await (await session.connection()).execute(_ENABLED, values)).all()
        return await self._compile(tenant, rows)

    def forget(self, tenant: Tenant) -> None:
        """Discard the compiled rules of an environment."""
        self._compiled.pop(tenant, None)

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
        condition,
    )


def _compile_condition(text: str) -> Condition:
    try:
        return compile_expression(text).evaluate
    except InvalidExpression:
        # The condition was valid when it was stored, but this version of the library rejects it. As with every failing
        # condition, an `allow` rule then never matches, and other rules match every call of their agents and actions.
        return _fail


def _fail(_call: Variables) -> None:
    return None
