"""What a page of the log is asked for: its filters, which all stand in its address."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from toolgate_service.errors import FieldErrors
from toolgate_service.ids import is_id
from toolgate_service.logs.models import STATUSES
from toolgate_service.logs.service import Filters
from toolgate_service.logs.wanted import Wanted
from toolgate_service.web.fields import ACTION_RULE, MOMENT_RULE, is_action, moment_of

#: spans up to now
SPANS: Mapping[str, tuple[str, timedelta]] = MappingProxyType(
    {
        "15m": ("Last 15 minutes", timedelta(minutes=15)),
        "1h": ("Last hour", timedelta(hours=1)),
        "24h": ("Last 24 hours", timedelta(days=1)),
        "7d": ("Last 7 days", timedelta(days=7)),
        "30d": ("Last 30 days", timedelta(days=30)),
    }
)
#: how far back a text is looked for unless one says otherwise
USUAL_SPAN = "24h"
#: characters of a text that is looked for
MOST_TEXT = 200

AGENT, ACTION, STATUS, SPAN, FROM, TO, TEXT = NAMES = (
    "agent_id", "action", "status", "when", "from", "to", "q",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A page's filters.

    Attributes:
        typed: as they stand in the address; empty for none.
        filters: as the log's own functions take them.
        wanted: a text that is looked for; None for none.
    """

    typed: Mapping[str, str]
    filters: Filters
    wanted: Wanted | None

    @property
    def query(self) -> Mapping[str, str]:
        """What stands in the address."""
        return {name: value for name, value in self.typed.items() if value}

    def without(self, *names: str) -> Mapping[str, str]:
        """Return what stands in the address of the same page without some of its filters."""
        return {name: value for name, value in self.query.items() if name not in names}

    @property
    def goes_on(self) -> bool:
        """Whether what is written from now on may belong to it."""
        return self.filters.ends is None


def typed_in(params: Mapping[str, str]) -> Mapping[str, str]:
    """Return what stands in an address; a text literally, of everything else no spaces around it."""
    given = {name: params.get(name, "") for name in NAMES}
    return {name: value if name == TEXT and value.strip() else value.strip() for name, value in given.items()}


def asked_in(typed: Mapping[str, str], moment: datetime) -> Asked:
    """Return what a page is asked for.

    Args:
        typed: what stands in its address.
        moment: the present one.

    Raises:
        FieldErrors: 400, with everything that is wrong in words.
    """
    wrong: dict[str, list[str]] = {}
    if typed[TEXT] and not (typed[SPAN] or typed[FROM] or typed[TO]):
        typed = {**typed, SPAN: USUAL_SPAN}
    for name, message in _judged(typed):
        wrong.setdefault(name, []).append(message)
    begins, ends = (_moment(typed[name], name, wrong) for name in (FROM, TO))
    if begins is not None and ends is not None and ends <= begins:
        wrong.setdefault(TO, []).append("must be later than from")
    if wrong:
        raise FieldErrors(wrong)
    if typed[SPAN]:
        begins = moment - SPANS[typed[SPAN]][1]
    filters = Filters(
        typed[AGENT] or None, typed[STATUS] or None, typed[ACTION] or None, begins=begins, ends=ends
    )
    return Asked(typed, filters, Wanted(typed[TEXT]) if typed[TEXT] else None)


def _judged(typed: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Return what is wrong, and with what."""
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
    if len(typed[TEXT]) > MOST_TEXT:
        found.append((TEXT, f"has {len(typed[TEXT]):,} characters; look for at most {MOST_TEXT}"))
    if typed[TEXT] and typed[TO] and not typed[FROM]:
        found.append((FROM, "must be given: a text is looked for only within a time range"))
    return found


def _moment(text: str, name: str, wrong: dict[str, list[str]]) -> datetime | None:
    if not text:
        return None
    try:
        return moment_of(text)
    except ValueError:
        wrong.setdefault(name, []).append(f"{text[:40]!r} is no moment: it {MOMENT_RULE}")
        return None


def as_field(moment: datetime | None) -> str:
    """Return a moment as a field of a form takes it: in UTC, without saying so."""
    if moment is None:
        return ""
    exact = "milliseconds" if moment.microsecond else "seconds"
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=exact)
