"""Data for the activity log pages: the filters in the URL, the rows of the log table, and the details of one entry."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from markupsafe import Markup
from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.agents.models import Agent
from toolgate_service.approvals.repository import find_approval
from toolgate_service.approvals.schemas import ApprovalView, serialize_approval
from toolgate_service.console.dependencies import PageContext
from toolgate_service.console.filters import ActionLabel, Arguments, describe_action, lay_out, shown
from toolgate_service.console.queries import load_emails
from toolgate_service.core import strict_json
from toolgate_service.core.errors import ApiError, FieldErrors
from toolgate_service.core.ids import is_id
from toolgate_service.core.schemas import ACTION_RULE, MOMENT_RULE, is_action, moment_of
from toolgate_service.core.text_safety import in_reading_order, is_hidden, kind_of, redacted_text
from toolgate_service.decisions.models import Decision
from toolgate_service.decisions.repository import find_decision
from toolgate_service.logs.models import STATUSES, LogEntry
from toolgate_service.logs.repository import EXCERPT_LENGTH, Filters, LogLine, get_entry, list_around
from toolgate_service.logs.service import TextMatcher
from toolgate_service.organizations.models import ApiKey
from toolgate_service.organizations.repository import masked_key
from toolgate_service.permissions.models import Permission

#: Time ranges that end now, by their name in the URL. Each value is the label and the duration.
SPANS: Mapping[str, tuple[str, timedelta]] = MappingProxyType(
    {
        "15m": ("Last 15 minutes", timedelta(minutes=15)),
        "1h": ("Last hour", timedelta(hours=1)),
        "24h": ("Last 24 hours", timedelta(days=1)),
        "7d": ("Last 7 days", timedelta(days=7)),
        "30d": ("Last 30 days", timedelta(days=30)),
    }
)
#: Time range that a text search covers if the URL does not contain one.
DEFAULT_SPAN = "24h"
#: Maximum length of a search text in characters.
MAX_TEXT_LENGTH = 200

AGENT, ACTION, STATUS, SPAN, FROM, TO, TEXT = NAMES = (
    "agent_id", "action", "status", "when", "from", "to", "q",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Filters of the log page, parsed from the query parameters of its URL.

    Attributes:
        typed: Query parameters as strings; an absent parameter is an empty string.
        filters: Parsed parameters without the search text.
        matcher: Matcher for the search text; None if there is no search text.
    """

    typed: Mapping[str, str]
    filters: Filters
    matcher: TextMatcher | None

    @property
    def params(self) -> Mapping[str, str]:
        """Query parameters for the URL of the log page. Empty parameters are omitted."""
        return {name: value for name, value in self.typed.items() if value}

    def without(self, *names: str) -> Mapping[str, str]:
        """Return the query parameters for the URL of the log page without the named filters."""
        return {name: value for name, value in self.params.items() if name not in names}

    @property
    def is_open_ended(self) -> bool:
        """True if the time range has no end, so that future log entries can match the filters."""
        return self.filters.ends is None


def read_params(params: Mapping[str, str]) -> Mapping[str, str]:
    """Return the filter parameters of a URL, without leading and trailing spaces except in the search text."""
    given = {name: params.get(name, "") for name in NAMES}
    return {name: value if name == TEXT and value.strip() else value.strip() for name, value in given.items()}


def parse_query(typed: Mapping[str, str], moment: datetime) -> LogQuery:
    """Parse the filter parameters of a URL.

    `moment` is the current time, at which ranges such as "last hour" end.

    Raises:
        FieldErrors: At least one parameter is invalid. The error contains the messages of all invalid parameters.
    """
    wrong: dict[str, list[str]] = {}
    if typed[TEXT] and not (typed[SPAN] or typed[FROM] or typed[TO]):
        typed = {**typed, SPAN: DEFAULT_SPAN}
    for name, message in _find_errors(typed):
        wrong.setdefault(name, []).append(message)
    begins, ends = (parse_moment(typed[name], name, wrong) for name in (FROM, TO))
    if begins is not None and ends is not None and ends <= begins:
        wrong.setdefault(TO, []).append("must be later than 'from'")
    if wrong:
        raise FieldErrors(wrong)
    if typed[SPAN]:
        begins = moment - SPANS[typed[SPAN]][1]
    filters = Filters(
        typed[AGENT] or None, typed[STATUS] or None, typed[ACTION] or None, begins=begins, ends=ends
    )
    return LogQuery(typed, filters, TextMatcher(typed[TEXT]) if typed[TEXT] else None)


def _find_errors(typed: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Return a pair of parameter name and error message for each invalid parameter."""
    agent, action, status, span = (typed[name] for name in (AGENT, ACTION, STATUS, SPAN))
    found = []
    if agent and not is_id(agent):
        found.append((AGENT, f"{agent[:40]!r} is not the id of an agent; choose an agent from the list"))
    if action and not is_action(action):
        found.append((ACTION, f"{action[:40]!r} is not an action: an action {ACTION_RULE}"))
    if status and status not in STATUSES:
        found.append((STATUS, f"unknown status {status[:40]!r}: expected one of {', '.join(STATUSES)}"))
    if span and span not in SPANS:
        found.append((SPAN, f"unknown time range {span[:40]!r}: expected one of {', '.join(SPANS)}"))
    if span and (typed[FROM] or typed[TO]):
        found.append(
            (
                SPAN,
                f"{span[:40]!r} cannot be combined with 'from' and 'to'; remove the time range, or 'from' and 'to'",
            )
        )
    if len(typed[TEXT]) > MAX_TEXT_LENGTH:
        found.append((TEXT, f"has {len(typed[TEXT]):,} characters; the maximum is {MAX_TEXT_LENGTH}"))
    if typed[TEXT] and typed[TO] and not typed[FROM]:
        found.append((FROM, "is required, because a text search needs a time range"))
    return found


def parse_moment(text: str, name: str, wrong: dict[str, list[str]]) -> datetime | None:
    """Return the time in a query parameter; None if the text is empty or invalid. `wrong` receives the error."""
    if not text:
        return None
    try:
        return moment_of(text)
    except ValueError:
        wrong.setdefault(name, []).append(f"{text[:40]!r} is not a time: a time {MOMENT_RULE}")
        return None


def format_for_input(moment: datetime | None) -> str:
    """Return a time in UTC as the value of an HTML ``datetime-local`` input; an empty string for None."""
    if moment is None:
        return ""
    exact = "milliseconds" if moment.microsecond else "seconds"
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=exact)


#: Limits of a row in the log table: maximum number of arguments, maximum number of characters of each value, and
#: maximum number of characters for arguments that are too long to be parsed as JSON.
_FIELDS = 4
_CHARACTERS = 60
_RAW = 160
#: Number of earlier entries, and of later entries, that the page of a log entry lists.
AROUND = 5


@dataclass(frozen=True, slots=True)
class Row:
    """Row of the log table: a log entry with its first arguments.

    Attributes:
        fields: The first arguments as triples of kind, name and value. Name and value are escaped HTML.
        more: Number of arguments that the row does not show.
        raw: First characters of the arguments as escaped HTML, for arguments that are too long to be parsed; else
            empty.
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
    """Approval request whose id is part of a log entry.

    The agent's process sends the id, so the request may belong to another call than the log entry.

    Attributes:
        people: E-mail addresses, by user id, of the users who voted and of the user who decided.
        permission: The permission to which the approval request belongs; None if it belongs to none, or if the
            permission was deleted.
        decision_id: Id of the check that consumed the approval; None if the approval was not consumed.
        of_another: True if the agent or the action of the request differs from the log entry.
        differing: Names of approved arguments that are missing in the log entry or have another value there.
    """

    approval: ApprovalView
    people: Mapping[str, str]
    permission: Permission | None
    decision_id: str | None
    of_another: bool
    differing: Sequence[str]


@dataclass(frozen=True, slots=True)
class EntryDetail:
    """Log entry with the related data that its page shows.

    Attributes:
        decision: Record of the decision whose id the entry contains; None if there is none.
        agent_is_deleted: True if the agent was deleted, so that the page cannot link to it.
        milliseconds: Duration of the call as text, such as "12 ms"; empty if the agent's process did not send it.
        key: Masked API key with which the entry was sent; empty if the key was deleted.
        linked_approval: Approval request whose id the entry contains; None if the entry has no id or no request has
            this id.
        after: Later entries of the same agent, newest first.
        before: Earlier entries of the same agent, newest first.
    """

    entry: LogEntry
    decision: Decision | None
    agent_name: str
    agent_is_deleted: bool
    action: ActionLabel
    arguments: Arguments
    milliseconds: str
    key: str
    linked_approval: LinkedApproval | None
    after: Sequence[Row]
    before: Sequence[Row]


async def load_entry_detail(page: PageContext, entry_id: str) -> EntryDetail:
    """Return the log entry with this id and the data that its page shows.

    Raises:
        ApiError: 404 if the page's environment has no log entry with this id.
    """
    async with page.gateway.database.reading() as session:
        entry = await get_entry(session, page.caller.organization_id, page.environment, entry_id)
        after, before = await list_around(session, entry, AROUND)
        of_agent = select(Agent.name, Agent.deleted_at).where(Agent.id == entry.agent_id)
        name, deleted_at = (await session.exec(of_agent)).one()
        key = (await session.exec(select(ApiKey).where(ApiKey.id == entry.key_id))).first()
        context: Any = strict_json.loads_own(entry.context or "{}")
        linked_approval = await _load_approval(session, page, entry, context)
        decision = await find_decision(
            session, page.caller.organization_id, page.environment, entry.decision_id or ""
        )
    # Format the arguments in a thread, because formatting large ones would block the event loop.
    arguments = await asyncio.to_thread(lay_out, context, len(entry.context or ""), at_most=None)
    return EntryDetail(
        entry,
        decision,
        name,
        deleted_at is not None,
        describe_action(entry.action),
        arguments,
        _milliseconds(context.get("duration_ms")),
        "" if key is None else masked_key(key),
        linked_approval,
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
        # Compare only the approved arguments: the log entry may contain more, because the agent's process adds the
        # result of the call to its arguments.
        [name for name, value in shown.context.items() if name not in context or context[name] != value],
    )


def _milliseconds(value: object) -> str:
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return f"{strict_json.dumps(value)} ms" if is_number else ""
