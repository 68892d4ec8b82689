"""Actions, moments and numbers, in words."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_SEPARATORS = re.compile(r"[_\-]+")


@dataclass(frozen=True, slots=True)
class ActionWords:
    """An action as people say it.

    Attributes:
        deed: what is done.
        place: where; empty when the action does not say.
    """

    deed: str
    place: str


def action_in_words(action: str) -> ActionWords:
    """Return an action in words: ``stripe.create_refund`` is "create refund" in "stripe".

    The exact identifier stands beside it wherever it is shown.
    """
    *places, deed = [part for part in action.split(".") if part] or [action]
    return ActionWords(_spaced(deed) or deed, " / ".join(_spaced(place) or place for place in places))


def count(number: int, thing: str, things: str | None = None) -> str:
    """Return "1 agent", "2 agents", "1,000 agents"."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def utc(moment: datetime) -> str:
    """Return a moment to the minute, in UTC and saying so."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def utc_exact(moment: datetime) -> str:
    """Return a moment to the millisecond, in UTC and saying so."""
    return f"{moment.astimezone(UTC).isoformat(sep=' ', timespec='milliseconds')[:-6]} UTC"


def machine(moment: datetime) -> str:
    """Return a moment as the `datetime` of a ``<time>``."""
    return f"{moment.astimezone(UTC).isoformat(timespec='milliseconds')[:-6]}Z"


def _spaced(text: str) -> str:
    return _SEPARATORS.sub(" ", text).strip()
