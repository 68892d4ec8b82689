"""All that is known of one log entry: itself, the approval that belongs to it, and what its agent did around then."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.agents.models import Agent
from toolgate_service.approvals.finding import find_approval
from toolgate_service.approvals.schemas import ApprovalView
from toolgate_service.approvals.views import view
from toolgate_service.console.arguments import Arguments, laid_out
from toolgate_service.console.inbox.similar import emails
from toolgate_service.console.logs.rows import Row, rows_of
from toolgate_service.console.visits import Visit
from toolgate_service.console.words import ActionWords, action_in_words
from toolgate_service.errors import ApiError
from toolgate_service.logs.finding import find_entry
from toolgate_service.logs.lines import around
from toolgate_service.logs.models import LogEntry
from toolgate_service.organizations.keys import masked_key
from toolgate_service.organizations.models import ApiKey
from toolgate_service.permissions.models import Permission

#: entries of the same agent before and after it
AROUND = 5


@dataclass(frozen=True, slots=True)
class Belonging:
    """The approval that an entry names, which is its sender's word.

    Attributes:
        approval: as the API shows it.
        people: e-mail addresses by id.
        permission: its permission's action and terms; None when that is gone.
        decision_id: of the check that used it up; None when none did.
        of_another: whether it is another agent's, or of another action.
        differing: arguments that were approved and stand otherwise, or not at all, in the entry.
    """

    approval: ApprovalView
    people: Mapping[str, str]
    permission: Permission | None
    decision_id: str | None
    of_another: bool
    differing: Sequence[str]


@dataclass(frozen=True, slots=True)
class Whole:
    """An entry with everything about it.

    Attributes:
        entry: itself.
        agent_name: who acted.
        agent_is_gone: whether the agent was deleted, and has no page any more.
        action: its action in words.
        arguments: its context laid out.
        milliseconds: that the call took, as its sender measured it, in words; empty when it did not say.
        key: by which it was recorded, all but its end hidden.
        belonging: the approval that it names, if there is such a one.
        after: what the same agent did next, newest first.
        before: what it did before, newest first.
    """

    entry: LogEntry
    agent_name: str
    agent_is_gone: bool
    action: ActionWords
    arguments: Arguments
    milliseconds: str
    key: str
    belonging: Belonging | None
    after: Sequence[Row]
    before: Sequence[Row]


async def whole_entry(visit: Visit, entry_id: str) -> Whole:
    """Return an entry with everything about it.

    Raises:
        ApiError: 404, there is none of that id in the visit's organization and environment.
    """
    async with visit.gateway.database.reading() as session:
        entry = await find_entry(session, visit.caller.organization_id, visit.environment, entry_id)
        after, before = await around(session, entry, AROUND)
        of_agent = select(Agent.name, Agent.deleted_at).where(Agent.id == entry.agent_id)
        name, deleted_at = (await session.exec(of_agent)).one()
        key = (await session.exec(select(ApiKey).where(ApiKey.id == entry.key_id))).first()
        context: Any = exact_json.loads_own(entry.context or "{}")
        belonging = await _belonging(session, visit, entry, context)
    # On a thread: what an agent sends may be made to take long, and nobody's check waits for that.
    arguments = await asyncio.to_thread(laid_out, context, len(entry.context or ""), at_most=None)
    return Whole(
        entry,
        name,
        deleted_at is not None,
        action_in_words(entry.action),
        arguments,
        _milliseconds(context.get("duration_ms")),
        "" if key is None else masked_key(key),
        belonging,
        rows_of(after),
        rows_of(before),
    )


async def _belonging(
    session: AsyncSession, visit: Visit, entry: LogEntry, context: Mapping[str, Any]
) -> Belonging | None:
    if entry.approval_id is None:
        return None
    try:
        approval = await find_approval(
            session, visit.caller.organization_id, visit.environment, entry.approval_id
        )
    except ApiError:
        return None
    shown = await view(session, approval)
    users = {vote.user_id for vote in shown.votes} | ({shown.decided_by} if shown.decided_by else set())
    of_permission = select(Permission).where(
        Permission.id == approval.permission_id,
        Permission.organization_id == visit.caller.organization_id,
    )
    return Belonging(
        shown,
        await emails(session, users),
        (await session.exec(of_permission)).first(),
        approval.decision_id,
        (approval.agent_id, approval.action) != (entry.agent_id, entry.action),
        # A sender adds what came of the call: that is no difference.
        [name for name, value in shown.context.items() if name not in context or context[name] != value],
    )


def _milliseconds(value: object) -> str:
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return f"{exact_json.dumps(value)} ms" if is_number else ""
