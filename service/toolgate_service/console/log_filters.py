"""Filters of the log page, which are query parameters of its URL."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.ids import is_id
from toolgate_service.core.schemas import ACTION_RULE, MOMENT_RULE, is_action, moment_of
from toolgate_service.logs.models import STATUSES
from toolgate_service.logs.repository import Filters
from toolgate_service.logs.search import TextMatcher

#: Time ranges that end now, by their value in the URL: label and duration.
SPANS: Mapping[str, tuple[str, timedelta]] = MappingProxyType(
    {
        "15m": ("Last 15 minutes", timedelta(minutes=15)),
        "1h": ("Last hour", timedelta(hours=1)),
        "24h": ("Last 24 hours", timedelta(days=1)),
        "7d": ("Last 7 days", timedelta(days=7)),
        "30d": ("Last 30 days", timedelta(days=30)),
    }
)
#: time range of a text search if the URL contains none
DEFAULT_SPAN = "24h"
#: maximum length of the text to search for, in characters
MAX_TEXT_LENGTH = 200

AGENT, ACTION, STATUS, SPAN, FROM, TO, TEXT = NAMES = (
    "agent_id", "action", "status", "when", "from", "to", "q",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Filters of a log page.

    Attributes:
        typed: Query parameters as strings; a missing parameter is an empty string.
        filters: Parsed parameters, except the text to search for.
        matcher: Matcher for the text to search for; None if there is no text.
    """

    typed: Mapping[str, str]
    filters: Filters
    matcher: TextMatcher | None

    @property
    def params(self) -> Mapping[str, str]:
        """Query parameters of the page's URL, without empty ones."""
        return {name: value for name, value in self.typed.items() if value}

    def without(self, *names: str) -> Mapping[str, str]:
        """Return the query parameters of the page's URL without the named filters."""
        return {name: value for name, value in self.params.items() if name not in names}

    @property
    def goes_on(self) -> bool:
        """True if the time range has no end, so that new log entries can match."""
        return self.filters.ends is None


def read_params(params: Mapping[str, str]) -> Mapping[str, str]:
    """Return the filter parameters of a URL without surrounding spaces. Spaces in the text to search for are kept."""
    given = {name: params.get(name, "") for name in NAMES}
    return {name: value if name == TEXT and value.strip() else value.strip() for name, value in given.items()}


def parse_query(typed: Mapping[str, str], moment: datetime) -> LogQuery:
    """Parse filter parameters. A time range that ends now, such as the last hour, ends at `moment`.

    Raises:
        FieldErrors: A parameter is invalid; the error contains all messages by parameter.
    """
    wrong: dict[str, list[str]] = {}
    if typed[TEXT] and not (typed[SPAN] or typed[FROM] or typed[TO]):
        typed = {**typed, SPAN: DEFAULT_SPAN}
    for name, message in _find_errors(typed):
        wrong.setdefault(name, []).append(message)
    begins, ends = (_parse_moment(typed[name], name, wrong) for name in (FROM, TO))
    if begins is not None and ends is not None and ends <= begins:
        wrong.setdefault(TO, []).append("must be later than from")
    if wrong:
        raise FieldErrors(wrong)
    if typed[SPAN]:
        begins = moment - SPANS[typed[SPAN]][1]
    filters = Filters(
        typed[AGENT] or None, typed[STATUS] or None, typed[ACTION] or None, begins=begins, ends=ends
    )
    return LogQuery(typed, filters, TextMatcher(typed[TEXT]) if typed[TEXT] else None)


def _find_errors(typed: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Return the errors of invalid parameters as pairs of parameter name and message."""
    agent, action, status, span = (typed[name] for name in (AGENT, ACTION, STATUS, SPAN))
    found = []
    if agent and not is_id(agent):
        found.append((AGENT, f"{agent[:40]!r} is no agent's id; choose an agent from the list"))
    if action and not is_action(action):
        found.append((ACTION, f"{action[:40]!r} is no action: it {ACTION_RULE}"))
    if status and status not in STATUSES:
        found.append((STATUS, f"there is no status {status[:40]!r}; there are {', '.join(STATUSES)}"))
    if span and span not in SPANS:
        found.append((SPAN, f"there is no span {span[:40]!r}; there are {', '.join(SPANS)}"))
    if span and (typed[FROM] or typed[TO]):
        found.append((SPAN, f"{span[:40]!r} does not go with from and to; leave out the one or the others"))
    if len(typed[TEXT]) > MAX_TEXT_LENGTH:
        found.append((TEXT, f"has {len(typed[TEXT]):,} characters; look for at most {MAX_TEXT_LENGTH}"))
    if typed[TEXT] and typed[TO] and not typed[FROM]:
        found.append((FROM, "must be given: a text is looked for only within a time range"))
    return found


def _parse_moment(text: str, name: str, wrong: dict[str, list[str]]) -> datetime | None:
    if not text:
        return None
    try:
        return moment_of(text)
    except ValueError:
        wrong.setdefault(name, []).append(f"{text[:40]!r} is no moment: it {MOMENT_RULE}")
        return None


def format_for_input(moment: datetime | None) -> str:
    """Return a time as the value of an HTML ``datetime-local`` input, in UTC; an empty string for None."""
    if moment is None:
        return ""
    exact = "milliseconds" if moment.microsecond else "seconds"
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=exact)
