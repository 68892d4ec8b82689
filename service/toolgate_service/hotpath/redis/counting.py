"""How the counting of one window's requests goes on, step by step. No I/O, no clock."""

from typing import NamedTuple

from toolgate_service.hotpath.postgres.bank import Draw, Drawn
from toolgate_service.hotpath.rates import Rate
from toolgate_service.hotpath.redis.pool import Reply, Turn

#: a block is this part of the limit …
BLOCKS = 20
#: … and at most so many requests: more saves nothing, and would lie unused where Redis dies
MOST = 1000


class Wanted(NamedTuple):
    """How many requests of a window have arrived.

    Attributes:
        requests: how many.
        limit: requests a minute.
        total: the latest minute of which the database has handed requests out, and how many of it; if that was read.
    """

    requests: int
    limit: int
    total: tuple[int, int] = (0, 0)


class Counting:
    """Requests of one window that arrived together.

    Attributes:
        missing: how many have found nothing yet by which to be let through.
        others: how many gateways draw at the moment, where something is missing.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._limit = wanted.limit
        self._total = wanted.total
        #: of which minute each one is that was let through, and its number in it
        self._through: list[tuple[int, int]] = []
        self._reply: Reply | None = None
        self._minute, self._moment = 0, 0.0
        self._lowered = False
        self.missing = wanted.requests
        self.others = 0

    def take(self, reply: Reply | None) -> int:
        """Use what was taken out of the pool; return how much of it nobody needs.

        Args:
            reply: the pool's; None for one that cannot be reached.
        """
        self._reply = reply
        self.others = 0
        if reply is None:
            return 0
        self._minute, self._moment = self._minute or reply.minute, reply.moment
        minute, total = self._total
        used = max(reply.total, total if minute == reply.minute else 0) - reply.left
        first = used - reply.taken + 1
        fit = max(0, min(reply.taken, self.missing, self._limit - first + 1))
        self._use(reply.minute, first, fit)
        # Beyond the limit only where it was lowered within the minute: the pool was filled before.
        self._lowered = bool(self.missing and reply.taken > fit)
        if not self._lowered:
            self.others = reply.others
        return reply.taken - fit

    @property
    def was_raised(self) -> bool:
        """Whether the minute has no more for a lower limit: then nobody knows yet that we draw."""
        return self._reply is not None and not self._lowered and 0 < self._reply.full < self._limit

    @property
    def may_draw(self) -> bool:
        """Whether the database may have more."""
        return self._reply is None or (self._reply.full < self._limit and not self._lowered)

    def draw(self) -> Draw:
        """Return what to draw: a block, or only what is missing where another draws one, or nobody could share it."""
        if self._reply is None:
            return Draw(min(self.missing, self._limit), self._limit)
        block = 0 if self._reply.others else min(MOST, self._limit // BLOCKS)
        return Draw(min(max(self.missing, block), self._limit), self._limit, self._reply.minute)

    def keep(self, drawn: Drawn, who: str) -> Turn:
        """Use what was drawn; return what to tell the pool.

        Args:
            drawn: what the database has handed out.
            who: under which name it was drawn.
        """
        self._minute, self._moment = drawn.minute, drawn.moment
        kept = min(self.missing, drawn.requests)
        self._use(drawn.minute, drawn.total - drawn.requests + 1, kept)
        full = self._limit if drawn.total >= self._limit else 0
        # What was counted beyond the limit, by gateways that know no Redis, was not handed out.
        total = drawn.total if drawn.requests else 0
        return Turn(self.missing, 0, who, drawn.minute, drawn.requests - kept, total, full)

    def strays(self, moment: float, most: float) -> bool:
        """Say whether Redis's clock and the database's are too far apart.

        Args:
            moment: by the database's.
            most: seconds.
        """
        return self._reply is not None and abs(self._reply.moment - moment) > most

    def rates(self) -> list[Rate]:
        """Return where each request stands; those that found nothing are one too many."""
        limit, moment = self._limit, self._moment
        passed = [Rate.at(moment, minute, limit, number, exceeded=False) for minute, number in self._through]
        return passed + [Rate.at(moment, self._minute, limit, limit, exceeded=True)] * self.missing

    def _use(self, minute: int, first: int, how_many: int) -> None:
        self._through += [(minute, max(1, number)) for number in range(first, first + how_many)]
        self.missing -= how_many
