"""Counting against windows that several gateways share: exactly, whatever becomes of Redis (decisions §7).

The database is the bank, Redis the till. A request is let through by one that the database handed out: taken from the
pool where others left it, or drawn. What is handed out is never more than the limit, and nothing is handed out twice, so
that nothing can be overrun; without Redis every request is drawn by itself, and what still lay in a pool is not used.
"""

import asyncio
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from toolgate_service.hotpath.postgres.bank import Bank
from toolgate_service.hotpath.rates import WINDOW, Rate, Window
from toolgate_service.hotpath.redis.counting import Counting, Wanted
from toolgate_service.hotpath.redis.pool import Reply, Turn
from toolgate_service.hotpath.redis.server import SKEW, Asked, RedisServer, Unusable
from toolgate_service.storage.database import Usage
from toolgate_service.storage.postgres import PostgresDatabase

#: seconds between two looks whether what another gateway draws has come, at first and at most
LOOK_AGAIN, SELDOM = 0.002, 0.05


class Reserved(NamedTuple):
    """What was asked of pools.

    Attributes:
        who: under which name.
        asked: what is answered soon.
    """

    who: str
    asked: Asked


def till_of(url: str, database: PostgresDatabase) -> "Till":
    """Return the till of a Redis server and a database, not yet open."""
    bank = Bank(database)
    return Till(RedisServer(url, bank.moment), bank)


class Till:
    """Counts requests.

    Args:
        server: where pools are kept.
        bank: hands requests out.
    """

    def __init__(self, server: RedisServer, bank: Bank) -> None:
        self._server = server
        self._bank = bank
        self._name = secrets.token_hex(6)
        self._times = 0

    async def open(self) -> None:
        """Connect to both."""
        await self._bank.open()
        await self._server.open()

    async def close(self) -> None:
        """Disconnect."""
        await self._server.close()
        await self._bank.close()

    @property
    def redis_in_use(self) -> bool:
        """Whether Redis is used at the moment."""
        return self._server.in_use

    def usage(self) -> Usage:
        """Return how the database's connections are used."""
        return self._bank.usage()

    async def ask(self, requests: Mapping[Window, int]) -> Reserved:
        """Ask the pools for requests, before it is known whether they are needed; `count` gives back what is not.

        Args:
            requests: how many, by window.
        """
        self._times += 1
        who = f"{self._name}-{self._times}"
        return Reserved(who, await self._server.ask({w: Turn(n, 1, who) for w, n in requests.items()}))

    async def count(self, wanted: Mapping[Window, Wanted], reserved: Reserved) -> dict[Window, list[Rate]]:
        """Count requests, each unless its window is full; return where they stand, as many as there are of a window.

        Args:
            wanted: how many, by window.
            reserved: what was asked of pools for them, and perhaps for others.

        Raises:
            StorageFault: nobody knows whether they were counted; none of them is let through.
        """
        who = reserved.who
        replies = await reserved.asked.replies()
        unneeded = {
            w: Turn(0, 0, who, reply.minute, reply.taken, reply.total)
            for w, reply in replies.items()
            if w not in wanted
        }
        if unneeded:
            await self._replies(unneeded)
        unasked = {w: Turn(n.requests, 1, who) for w, n in wanted.items() if w not in replies}
        if unasked:
            replies |= await self._replies(unasked)
        counts = {window: Counting(want) for window, want in wanted.items()}
        await self._take(counts, replies)
        short = {window: count for window, count in counts.items() if count.missing}
        if short:
            await self._draw(short, who)
            await self._wait(short)
        return {window: count.rates() for window, count in counts.items()}

    async def look(self, window: Window) -> tuple[float, int, int]:
        """Return the moment, the minute, and how many requests of a window were let through in it."""
        reply = (await self._replies({window: Turn(0)})).get(window)
        minute, total, moment = await self._bank.total(window)
        now = int(moment // WINDOW) if reply is None else reply.minute
        drawn = total if minute >= now else 0
        if reply is not None and minute <= now:
            return reply.moment, now, max(drawn, reply.total) - reply.left
        return moment, max(now, minute), drawn

    async def _replies(self, turns: Mapping[Window, Turn]) -> dict[Window, Reply]:
        return await (await self._server.ask(turns)).replies()

    async def _take(self, counts: Mapping[Window, Counting], replies: Mapping[Window, Reply]) -> None:
        """Use what was taken, and give back what nobody needs: a key was revoked, or a limit lowered."""
        back = {}
        for window, count in counts.items():
            reply = replies.get(window)
            unused = count.take(reply)
            if reply is not None and unused:
                back[window] = Turn(0, 0, "", reply.minute, unused, reply.total)
        if back:
            await self._replies(back)

    async def _draw(self, short: Mapping[Window, Counting], who: str) -> None:
        """Draw what is missing, and leave the rest of a block to others."""
        raised = {w: Turn(count.missing, 2, who) for w, count in short.items() if count.was_raised}
        if raised:
            await self._take({w: short[w] for w in raised}, await self._replies(raised))
        draws = {w: count.draw() for w, count in short.items() if count.missing and count.may_draw}
        if not draws:
            return
        drawn = await self._bank.draw(draws)
        if any(short[window].strays(got.moment, SKEW) for window, got in drawn.items()):
            await self._server.lose(None, Unusable("its clock and the database's differ"))
        replies = await self._replies({w: short[w].keep(got, who) for w, got in drawn.items()})
        await self._take({w: short[w] for w in drawn}, replies)

    async def _wait(self, short: Mapping[Window, Counting]) -> None:
        """Look again while others draw: what the database has handed out to them may be on its way into the pool."""
        pause = LOOK_AGAIN
        while waiting := {w: count for w, count in short.items() if count.missing and count.others}:
            await asyncio.sleep(pause)
            pause = min(2 * pause, SELDOM)
            replies = await self._replies({w: Turn(count.missing) for w, count in waiting.items()})
            await self._take(waiting, replies)
