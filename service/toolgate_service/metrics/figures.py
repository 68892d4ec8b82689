"""What one process has done so far: plain numbers, counted where something happens.

One event loop counts and nothing is awaited, so no lock is needed. Counting a check must cost less than a microsecond.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

#: seconds; a check takes less than the first of them, a long poll as long as the last
DURATIONS = (
    50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
)  # fmt: skip
#: entries
BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

#: what kind of request it is; neither tenants nor paths, of which there is no end
Route: TypeAlias = Literal[
    "check", "log", "approvals", "permissions", "management", "console", "health", "other"
]
ROUTES: tuple[Route, ...] = (
    "check", "log", "approvals", "permissions", "management", "console", "health", "other",
)  # fmt: skip

#: what becomes of a check that is answered
Outcome: TypeAlias = Literal["allowed", "blocked", "held"]

_EXACTLY: dict[str, Route] = {"/sdk/check": "check", "/sdk/log": "log", "/sdk/logs": "log"}
_BELOW: tuple[tuple[str, Route], ...] = (
    ("/sdk/approvals/", "approvals"),
    ("/sdk/permissions", "permissions"),
    ("/api/", "management"),
    ("/auth/", "management"),
    ("/billing/", "management"),
    ("/slack/", "management"),
    ("/console", "console"),
    ("/health", "health"),
)


def route_of(path: str) -> Route:
    """Return what kind of request one to a path is.

    Args:
        path: the request's.
    """
    exactly = _EXACTLY.get(path)
    if exactly is not None:
        return exactly
    return next((route for begin, route in _BELOW if path.startswith(begin)), "other")


class Histogram:
    """How often a value fell where.

    Args:
        bounds: the upper, inclusive ones, in order.

    Attributes:
        total: the sum of all values.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulated(self) -> list[tuple[str, float]]:
        """Return each bound with how many values are not above it, as Prometheus writes both."""
        found, below = list[tuple[str, float]](), 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            below += count
            found.append(("+Inf" if bound == float("inf") else str(bound), float(below)))
        return found


class Answers:
    """The answers of one route.

    Attributes:
        statuses: how many there were of each.
        durations: seconds from a request's head, or its whole, to the head of its answer.
    """

    def __init__(self) -> None:
        # One of them from the beginning: what is not there yet can neither be added up nor watched.
        self.statuses: dict[int, int] = {200: 0}
        self.durations = Histogram(DURATIONS)

    def add(self, status: int, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.durations.add(seconds)


class Figures:
    """What one process has done since it began.

    Attributes:
        answers: by route.
        checks: those that were decided, by outcome.
        entries: log entries, by what became of them.
        batches: how many entries were committed together.
        commits: seconds that committing them took.
        connections: those that are open, as the server keeps them.
    """

    def __init__(self) -> None:
        self.answers: dict[Route, Answers] = {route: Answers() for route in ROUTES}
        self.checks: dict[Outcome, int] = {"allowed": 0, "blocked": 0, "held": 0}
        self.entries = Counter[str](stored=0, replayed=0, refused=0, failed=0)
        self.batches = Histogram(BATCHES)
        self.commits = Histogram(DURATIONS)
        self.connections: Iterable[object] = ()
