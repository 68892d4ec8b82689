"""View models of log entries: rows of the log table, and the details of one entry."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from markupsafe import Markup
from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.approvals.repository import find_approval
from toolgate_service.approvals.schemas import ApprovalView, serialize_approval
from toolgate_service.console.arguments import Arguments, lay_out
from toolgate_service.console.dependencies import PageContext
from toolgate_service.console.filters import ActionLabel, describe_action, shown
from toolgate_service.console.queries import load_emails
from toolgate_service.core import strict_json
from toolgate_service.core.errors import ApiError
from toolgate_service.core.text_safety import in_reading_order, is_hidden, kind_of, redacted_text
from toolgate_service.logs.models import LogEntry
from toolgate_service.logs.repository import EXCERPT_LENGTH, LogLine, get_entry, list_around
from toolgate_service.organizations.keys import masked_key
from toolgate_service.organizations.models import ApiKey
from toolgate_service.permissions.models import Permission

#: Limits of a table row: number of arguments, characters of a value, and characters of arguments that are too long to
#: be parsed.
_FIELDS = 4
_CHARACTERS = 60
_RAW = 160
#: number of previous entries, and number of next entries, that the page of a log entry lists
AROUND = 5


@dataclass(frozen=True, slots=True)
class Row:
    """Log entry as a row of the log table.

    Attributes:
        fields: The first arguments, each as kind, name and value; name and value are escaped HTML.
        more: Number of arguments that the row omits.
        raw: Beginning of the arguments as escaped HTML, if they are too long to be parsed; otherwise empty.
    """

    line: LogLine
    action: ActionLabel
    fields: Sequence[tuple[str, Markup, Markup]] = ()
    more: int = 0
    raw: str = ""


def build_rows(lines: Sequence[LogLine]) -> Sequence[Row]:
    """Return the table rows of log entries."""
    return [_row(line) for line in lines]


def _row(line: LogLine) -> Row:
    action = describe_action(line.action)
    if line.excerpt is None:
        return Row(line, action)
    if line.size > EXCERPT_LENGTH:
        return Row(line, action, raw=shown(line.excerpt[:_RAW]))
    context: Any = strict_json.loads_own(line.excerpt)
    return Row(line, action, _first(context), max(0, len(context) - _FIELDS))


def _first(context: Mapping[str, Any]) -> Sequence[tuple[str, Markup, Markup]]:
    first = in_reading_order(context)[:_FIELDS]
    return [(kind_of(name), _clipped(name) or Markup("no name"), _value(value)) for name, value in first]


def _value(value: Any) -> Markup:
    if is_hidden(value):
        return Markup("hidden")
    if (text := redacted_text(value)) is not None:
        return _clipped(text)
    return _clipped(value if isinstance(value, str) else strict_json.dumps(value))


def _clipped(text: str) -> Markup:
    return shown(text[:_CHARACTERS]) + ("…" if len(text) > _CHARACTERS else "")


@dataclass(frozen=True, slots=True)
class LinkedApproval:
    """Approval request that a log entry names. The agent's process supplies its id, so the link is not verified.

    Attributes:
        people: E-mail addresses of the voters and of the user who decided, by user id.
        permission: The permission that required the approval; None if the permission was deleted.
        decision_id: Id of the check that consumed the approval; None if no check has consumed it.
        of_another: True if the request has a different agent or a different action than the log entry.
        differing: Names of approved arguments that are missing or have a different value in the log entry.
    """

    approval: ApprovalView
    people: Mapping[str, str]
    permission: Permission | None
    decision_id: str | None
    of_another: bool
    differing: Sequence[str]


@dataclass(frozen=True, slots=True)
class EntryDetail:
    """Log entry with related data.

    Attributes:
        agent_is_gone: True if the agent was deleted, so that it has no page.
        milliseconds: Duration of the call as text, such as "12 ms"; empty if the agent's process did not send it.
        key: Masked API key with which the entry was sent; empty if the key was deleted.
        belonging: The approval request that the entry names; None if it names none or the request does not exist.
        after: Later entries of the same agent, newest first.
        before: Earlier entries of the same agent, newest first.
    """

    entry: LogEntry
    agent_name: str
    agent_is_gone: bool
    action: ActionLabel
    arguments: Arguments
    milliseconds: str
    key: str
    belonging: LinkedApproval | None
    after: Sequence[Row]
    before: Sequence[Row]


async def load_entry_detail(page: PageContext, entry_id: str) -> EntryDetail:
    """Return the log entry with this id, together with related data.

    Raises:
        ApiError: 404 if the environment has no entry with this id.
    """
    async with page.gateway.database.reading() as session:
        entry = await get_entry(session, page.caller.organization_id, page.environment, entry_id)
        after, before = await list_around(session, entry, AROUND)
        of_agent = select(Agent.name, Agent.deleted_at).where(Agent.id == entry.agent_id)
        name, deleted_at = (await session.exec(of_agent)).one()
        key = (await session.exec(select(ApiKey).where(ApiKey.id == entry.key_id))).first()
        context: Any = strict_json.loads_own(entry.context or "{}")
        belonging = await _load_approval(session, page, entry, context)
    # Prepared in a thread, because large arguments would block the event loop.
    arguments = await asyncio.to_thread(lay_out, context, len(entry.context or ""), at_most=None)
    return EntryDetail(
        entry,
        name,
        deleted_at is not None,
        describe_action(entry.action),
        arguments,
        _milliseconds(context.get("duration_ms")),
        "" if key is None else masked_key(key),
        belonging,
        build_rows(after),
        build_rows(before),
    )


async def _load_approval(
    session: AsyncSession, page: PageContext, entry: LogEntry, context: Mapping[str, Any]
) -> LinkedApproval | None:
    if entry.approval_id is None:
        return None
    try:
        approval = await find_approval(
            session, page.caller.organization_id, page.environment, entry.approval_id
        )
    except ApiError:
        return None
    shown = await serialize_approval(session, approval)
    users = {vote.user_id for vote in shown.votes} | ({shown.decided_by} if shown.decided_by else set())
    of_permission = select(Permission).where(
        Permission.id == approval.permission_id,
        Permission.organization_id == page.caller.organization_id,
    )
    return LinkedApproval(
        shown,
        await load_emails(session, users),
        (await session.exec(of_permission)).first(),
        approval.decision_id,
        (approval.agent_id, approval.action) != (entry.agent_id, entry.action),
        # Arguments that only the log entry has are ignored, because the agent's process adds the call's result to the
        # entry.
        [name for name, value in shown.context.items() if name not in context or context[name] != value],
    )


def _milliseconds(value: object) -> str:
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return f"{strict_json.dumps(value)} ms" if is_number else ""
