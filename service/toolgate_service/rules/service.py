"""Operations on rules: list, create, change and delete rules.

A change applies from the next check on, on every gateway, because it increases the version number (epoch) of the
environment.
"""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam
from sqlmodel import col, func, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import User
from toolgate_service.accounts.sessions import Caller, transaction_as
from toolgate_service.audit import service as audit
from toolgate_service.context import AppContext
from toolgate_service.core.errors import ApiError, FieldErrors, StorageError, not_found
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import Database, now
from toolgate_service.db.pagination import Found, Page, find_page
from toolgate_service.rules.evaluation import WILDCARD
from toolgate_service.rules.expressions import InvalidExpression, compile_expression, is_available
from toolgate_service.rules.models import REQUIRE_APPROVAL, Rule
from toolgate_service.rules.references import refuse_unknown, resolve_agents
from toolgate_service.rules.schemas import ApprovalTermsView, Effect, NewRule, RuleChange, RuleView
from toolgate_service.webhooks.events import emit

#: maximum number of rules in one environment
MAX_RULES = 2_000

_IN_ENVIRONMENT = (
    col(Rule.organization_id) == bindparam("organization_id"),
    col(Rule.environment) == bindparam("environment"),
)
_ONE = select(Rule).where(col(Rule.id) == bindparam("id"), *_IN_ENVIRONMENT)
_SAME_NAME = select(Rule.id).where(*_IN_ENVIRONMENT, col(Rule.name) == bindparam("name"))
_WITH_CONDITION = (
    select(Rule.id).where(col(Rule.condition).is_not(None), col(Rule.enabled).is_(True)).limit(1)
)
_COUNT = select(func.count()).select_from(Rule).where(*_IN_ENVIRONMENT)


async def refuse_missing_library(database: Database) -> None:
    """Verify that the gateway can evaluate the conditions of all enabled rules.

    Raises:
        StorageError: A rule has a condition, and the library that evaluates it is not installed.
    """
    if is_available():
        return
    async with database.reading() as session:
        if (await session.exec(_WITH_CONDITION)).first() is not None:
            raise StorageError(
                "The database contains rules with conditions, which need the library cel-expr-python; install the extra "
                "'policy' of toolgate, then start the gateway again"
            )


async def list_rules(session: AsyncSession, caller: Caller, environment: str, page: Page) -> Found[Rule]:
    """Return the rules of an environment of the organization, newest first."""
    query = select(Rule).where(
        Rule.organization_id == caller.organization_id, Rule.environment == environment
    )
    return await find_page(session, query, Rule, page)


async def get_rule(session: AsyncSession, caller: Caller, environment: str, rule_id: str) -> Rule:
    """Return the rule with this id.

    Raises:
        ApiError: 404 if the environment of the caller's organization has no rule with this id.
    """
    rule = (await session.exec(_ONE, params=_values(caller, environment, id=rule_id))).first()
    if rule is None:
        raise not_found("Rule")
    return rule


async def create_rule(context: AppContext, caller: Caller, environment: str, new: NewRule) -> RuleView:
    """Create a rule.

    Raises:
        FieldErrors: 400 if the condition is invalid, or an agent or approver does not exist.
        ApiError: 409 if another rule has this name, or the rule has terms of an approval although its effect
            is not `require_approval`; 403 if the environment has `MAX_RULES` rules.
    """
    _check_condition(new.when)
    async with transaction_as(context, caller) as session:
        return await add_rule(session, caller, environment, new)


async def add_rule(session: AsyncSession, caller: Caller, environment: str, new: NewRule) -> RuleView:
    """Create a rule as `create_rule` does, but in the caller's open transaction. The condition must be valid."""
    if (await session.exec(_COUNT, params=_values(caller, environment))).one() >= MAX_RULES:
        raise ApiError(
            403, f"An environment can have at most {MAX_RULES:,} rules; delete rules that are not needed"
        )
    rule = Rule(
        id=new_id(),
        organization_id=caller.organization_id,
        environment=environment,
        name="",
        effect=new.effect,
        actions="",
        created_by=caller.user_id,
        created_at=now(session),
    )
    await _apply(session, caller, rule, new)
    return await _record(session, caller, "rule.created", rule)


async def change_rule(
    context: AppContext, caller: Caller, environment: str, rule_id: str, change: RuleChange
) -> RuleView:
    """Change those fields of a rule that the request contains.

    Raises:
        FieldErrors: 400 if the changed rule is invalid.
        ApiError: 404 if the rule does not exist; 409 in the same cases as in `create_rule`.
    """
    _check_condition(change.when)
    async with transaction_as(context, caller) as session:
        rule = await get_rule(session, caller, environment, rule_id)
        return await update_rule(session, caller, rule, change)


async def update_rule(session: AsyncSession, caller: Caller, rule: Rule, change: RuleChange) -> RuleView:
    """Change a rule as `change_rule` does, but in the caller's open transaction. The condition must be valid."""
    await _apply(session, caller, rule, change)
    rule.updated_at = now(session)
    return await _record(session, caller, "rule.updated", rule)


async def delete_rule(context: AppContext, caller: Caller, environment: str, rule_id: str) -> None:
    """Delete a rule.

    Raises:
        ApiError: 404 if the rule does not exist.
    """
    async with transaction_as(context, caller) as session:
        await remove_rule(session, caller, await get_rule(session, caller, environment, rule_id))


async def remove_rule(session: AsyncSession, caller: Caller, rule: Rule) -> None:
    """Delete a rule in the caller's open transaction."""
    await _record(session, caller, "rule.deleted", rule)
    await session.delete(rule)
    await session.flush()


def serialize_rule(rule: Rule) -> RuleView:
    """Return the response body for a rule."""
    terms = ApprovalTermsView(
        quorum=rule.required_approvals,
        ttl=rule.approval_ttl_seconds,
        approvers=None if rule.approvers is None else json.loads(rule.approvers),
    )
    effect: Effect = rule.effect  # type: ignore[assignment]  # a check constraint allows only these values
    return RuleView(
        id=rule.id,
        name=rule.name,
        effect=effect,
        agents=[WILDCARD] if rule.agents is None else json.loads(rule.agents),
        actions=json.loads(rule.actions),
        when=rule.condition,
        approval=terms if rule.effect == REQUIRE_APPROVAL else None,
        enabled=rule.enabled,
        created_by=rule.created_by,
        created_at=rule.created_at,
        updated_at=rule.updated_at,
    )


def _check_condition(text: str | None) -> None:
    if text is None:
        return
    try:
        compile_expression(text)
    except InvalidExpression as error:
        raise FieldErrors({"when": [str(error)]}) from None


async def _apply(session: AsyncSession, caller: Caller, rule: Rule, body: NewRule | RuleChange) -> None:
    """Set the fields of a rule that a request body contains, and store the rule."""
    given = body.model_dump(exclude_unset=isinstance(body, RuleChange))
    if "name" in given and given["name"] != rule.name:
        params = _values(caller, rule.environment, name=given["name"])
        if (await session.exec(_SAME_NAME, params=params)).first() is not None:
            raise ApiError(409, f"A rule with the name {given['name']!r} already exists; use another name")
    for name in ("name", "effect", "enabled"):
        if name in given:
            setattr(rule, name, given[name])
    if "agents" in given:
        rule.agents = await resolve_agents(
            session, rule.organization_id, rule.environment, given["agents"], rule.agents
        )
    if "actions" in given:
        rule.actions = json.dumps(list(dict.fromkeys(given["actions"])))
    if "when" in given:
        rule.condition = given["when"]
    if given.get("approval") is not None and rule.effect != REQUIRE_APPROVAL:
        raise ApiError(
            409,
            f"A rule with the effect {rule.effect!r} cannot have terms of an approval; omit the field 'approval'",
        )
    if "approval" in given or rule.effect != REQUIRE_APPROVAL:
        terms: dict[str, Any] = given.get("approval") or {}
        rule.required_approvals, rule.approval_ttl_seconds = terms.get("quorum"), terms.get("ttl")
        rule.approvers = await _resolve_approvers(session, caller, terms.get("approvers"))
    session.add(rule)
    await session.flush()


async def _resolve_approvers(
    session: AsyncSession, caller: Caller, named: Sequence[str] | None
) -> str | None:
    if named is None:
        return None
    query = select(User.id, User.email).where(
        User.organization_id == caller.organization_id,
        col(User.removed_at).is_(None),
        col(User.id).in_(named) | col(User.email).in_([one.lower() for one in named]),
    )
    found = (await session.exec(query)).all()
    known = {one for pair in found for one in pair}
    message = "is not the id or e-mail address of a member of the organization"
    refuse_unknown("approval", message, [one.lower() for one in named], known)
    return json.dumps(sorted({user_id for user_id, _ in found}))


async def _record(session: AsyncSession, caller: Caller, kind: str, rule: Rule) -> RuleView:
    view = serialize_rule(rule)
    changes = view.model_dump(exclude={"id", "created_by", "created_at", "updated_at"})
    audit.record(session, caller, kind, rule.id, environment=rule.environment, changes=changes)
    await emit(session, rule.organization_id, rule.environment, kind, view)
    return view


def _values(caller: Caller, environment: str, **more: str) -> dict[str, str]:
    return {"organization_id": caller.organization_id, "environment": environment, **more}
