"""What Redis does at a time for one window: requests come into its pool, and are taken out of it."""

from typing import Literal, NamedTuple

#: seconds until a gateway that began to draw, and was not heard of since, is no longer waited for
DRAWS_FOR = 1


class Turn(NamedTuple):
    """What is asked of one window's pool, in this order.

    Attributes:
        want: requests to be taken out.
        mark: whether to write down, where there are too few, that more are being drawn: not at all, unless the minute
            is known to have no more, or in any case.
        who: by whom; ends an earlier mark of the same.
        minute: of which minute the following are; an earlier one than the pool's is let go of.
        put: requests that come in.
        total: how many of that minute have been handed out by the database.
        full: for which limit the database had no more; 0 for none.
    """

    want: int
    mark: Literal[0, 1, 2] = 0
    who: str = ""
    minute: int = 0
    put: int = 0
    total: int = 0
    full: int = 0


class Reply(NamedTuple):
    """What became of it.

    Attributes:
        taken: requests taken out.
        left: requests that are left.
        minute: of which minute they are, by Redis's clock, and never an earlier one than before.
        total: how many of that minute have been handed out by the database, as far as Redis was told.
        full: for which limit the database had no more of that minute; 0 for none that is known.
        others: how many draw at the moment, beside whoever asks; 0 where enough were taken.
        moment: by Redis's clock, in seconds since the epoch.
    """

    taken: int
    left: int
    minute: int
    total: int
    full: int
    others: int
    moment: float

    @classmethod
    def read(cls, text: bytes) -> "Reply":
        """Read what the script returned."""
        taken, left, minute, total, full, others, moment = text.split()
        return cls(int(taken), int(left), int(minute), int(total), int(full), int(others), float(moment))


# KEYS: the pool, and who draws for it, by when they are no longer waited for. One text is read faster than eight numbers.
SCRIPT = """
local want, mark, who = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local given = tonumber(ARGV[4] or 0)
local time = redis.call('TIME')
local held = redis.call('HMGET', KEYS[1], 'minute', 'left', 'total', 'full')
local at = tonumber(held[1] or 0)
local left, total, full = tonumber(held[2] or 0), tonumber(held[3] or 0), tonumber(held[4] or 0)
local minute = math.max(math.floor(tonumber(time[1]) / 60), at, given)
local changed = minute > at
if changed then left, total, full = 0, 0, 0 end
if given == minute then
    left = left + tonumber(ARGV[5])
    total = math.max(total, tonumber(ARGV[6]))
    full = math.max(full, tonumber(ARGV[7]))
    changed = true
end
local taken = math.min(want, left)
left = left - taken
if changed or taken > 0 then
    redis.call('HSET', KEYS[1], 'minute', minute, 'left', left, 'total', total, 'full', full)
end
if minute > at then redis.call('EXPIRE', KEYS[1], 180) end
local others = 0
if who ~= '' and mark == 0 then redis.call('ZREM', KEYS[2], who) end
if taken < want then
    local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
    others = redis.call('ZCARD', KEYS[2])
    if mark == 2 or (mark == 1 and full == 0) then
        redis.call('ZADD', KEYS[2], now + DRAWS_FOR, who)
        redis.call('EXPIRE', KEYS[2], 180)
    end
end
return string.format('%d %d %d %d %d %d %d.%06d', taken, left, minute, total, full, others, time[1], time[2])
""".replace("DRAWS_FOR", str(DRAWS_FOR))
