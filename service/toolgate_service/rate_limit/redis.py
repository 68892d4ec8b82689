"""Rate limiter whose counts are stored in Redis and shared by all gateways, with a fallback to PostgreSQL."""

import asyncio
import hashlib
import logging
from contextlib import suppress
from contextvars import Context

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoScriptError, RedisError, ResponseError

from toolgate_service.db.database import Usage
from toolgate_service.rate_limit.limiter import WINDOW, Rate, RateLimiter

logger = logging.getLogger("toolgate.gateway")

#: timeout of a Redis command in seconds; a command usually takes a fraction of a millisecond
COMMAND_TIMEOUT = 0.4
#: timeout in seconds for opening a connection
CONNECT_TIMEOUT = 1.0
#: maximum time in seconds that a command waits for a free connection
POOL_TIMEOUT = 4.0
CONNECTIONS = 64
#: seconds between two attempts to use Redis again after a failure
RECHECK_INTERVAL = 1.0
#: seconds that are added to the wait for the start of the next minute, because a sleep may end slightly early
_MARGIN = 0.05

#: Exceptions for failures of the server and the network. uvloop raises `RuntimeError` for a write to a closed
#: transport.
FAULTS = (RedisError, OSError, EOFError, ValueError, RuntimeError)

# Lua script that counts one request atomically. The window is determined by the clock of the Redis server, so that
# gateways with different clocks count in the same window. If that clock was set back, the script continues to count in
# the later window.
COUNT_SCRIPT = """
local time = redis.call('TIME')
local minute, used = math.floor(time[1] / 60), 0
local window = redis.call('HMGET', KEYS[1], 'minute', 'requests')
if window[1] and tonumber(window[1]) >= minute then
    minute, used = tonumber(window[1]), tonumber(window[2])
end
local counted = 0
if used + ARGV[2] <= tonumber(ARGV[1]) and tonumber(ARGV[2]) > 0 then
    counted, used = 1, used + ARGV[2]
    redis.call('HSET', KEYS[1], 'minute', minute, 'requests', used)
    redis.call('EXPIRE', KEYS[1], 120)
end
return {counted, minute, used, time[1], time[2]}
"""
_DIGEST = hashlib.sha1(COUNT_SCRIPT.encode(), usedforsecurity=False).hexdigest()


class RedisRateLimiter:
    """Rate limiter that counts each request atomically in Redis.

    While Redis is unavailable, the fallback counts the requests. The two counts are not added together: in a minute in
    which Redis becomes unavailable or available again, up to twice the limit may be allowed.

    If a restart of Redis deletes the counts, it also deletes the Lua script that counts. If the script is missing, the
    rate limiter uses the fallback until the next minute begins, and then loads the script. It does the same with a new
    Redis server.

    Args:
        url: URL of the Redis server, ``redis://…`` or ``rediss://…``.
        fallback: Rate limiter that counts while Redis is unavailable.
    """

    def __init__(self, url: str, fallback: RateLimiter) -> None:
        self._redis = open_redis(url)
        self._fallback = fallback
        self._recovery: asyncio.Task[None] | None = None
        self._is_open = False
        self.is_degraded = True

    async def open(self) -> None:
        """Open the fallback and connect to Redis. If Redis is unavailable, try again in the background."""
        await self._fallback.open()
        self._is_open = True
        try:
            await self._try()
            self.is_degraded = False
        except NoScriptError:
            self._recover(is_logged=False)
        except FAULTS as error:
            self._warn(error)
            self._recover(is_logged=True)

    async def close(self) -> None:
        """Close the connections to Redis and close the fallback."""
        self._is_open = False
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)
        await self._redis.aclose()
        await self._fallback.close()

    async def count(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Count one request if the limit allows it, and return the state of the limit."""
        if not self.is_degraded:
            try:
                return await self._run(organization_id, scope, limit, requests=1)
            except FAULTS as error:
                self._lose(error)
        return await self._fallback.count(organization_id, scope, limit)

    async def peek(self, organization_id: str, scope: str, limit: int) -> Rate:
        """Return the state that `count` would return now, without counting a request."""
        if not self.is_degraded:
            try:
                return await self._run(organization_id, scope, limit, requests=0)
            except FAULTS as error:
                self._lose(error)
        return await self._fallback.peek(organization_id, scope, limit)

    def usage(self) -> Usage | None:
        """Return the numbers of used and free database connections of the fallback; None if the fallback uses none."""
        return self._fallback.usage()

    async def _run(self, organization_id: str, scope: str, limit: int, *, requests: int) -> Rate:
        key = f"toolgate:{organization_id}/{scope}"
        found = await self._redis.evalsha(_DIGEST, 1, key, limit, requests)
        counted, minute, used, seconds, microseconds = map(int, found)
        moment = seconds + microseconds / 1e6
        # Redis returns a later window than that of the clock only if the clock was set back. Continue to count in the
        # later window.
        window = max(minute, int(moment // WINDOW))
        if requests:
            return Rate.at(moment, window, limit, used, exceeded=not counted)
        return Rate.at(moment, window, limit, min(used + 1, limit), exceeded=used >= limit)

    async def _try(self) -> None:
        # Count a test request. A PING is not sufficient: a server also responds to PING if its memory is full, if it is
        # read-only, or if the gateway's Redis user has no permission for the commands.
        await self._run("", "probe", 2**31, requests=1)

    def _lose(self, error: Exception) -> None:
        logger.debug("Redis at %s: %s", self._address, _reason(error))
        if self._is_open and not self.is_degraded:
            self.is_degraded = True
            self._recover(is_logged=False)

    def _recover(self, *, is_logged: bool) -> None:
        self._recovery = asyncio.create_task(self._wait_for_redis(is_logged=is_logged), context=Context())

    async def _wait_for_redis(self, *, is_logged: bool) -> None:
        # If no warning was logged yet (`is_logged` is False), try once without waiting, because Redis may only have
        # closed an idle connection.
        if is_logged:
            await asyncio.sleep(RECHECK_INTERVAL)
        while True:
            try:
                await self._try()
                break
            except NoScriptError:
                with suppress(*FAULTS):
                    seconds, microseconds = await self._redis.time()
                    await asyncio.sleep(_seconds_left(seconds + microseconds / 1e6))
                    await self._redis.script_load(COUNT_SCRIPT)
                continue
            except FAULTS as error:
                if not is_logged:
                    self._warn(error)
                is_logged = True
            await asyncio.sleep(RECHECK_INTERVAL)
        self.is_degraded = False
        if is_logged:
            logger.info("Redis at %s is available again: requests are counted there", self._address)

    @property
    def _address(self) -> str:
        options = self._redis.connection_pool.connection_kwargs
        return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"

    def _warn(self, error: Exception) -> None:
        logger.warning(
            "Redis at %s cannot be used: %s; until it can be used again, the gateway counts requests in the database",
            self._address,
            _reason(error),
        )


def open_redis(url: str) -> Redis:
    """Return a Redis client with short timeouts and without retries.

    Raises:
        ValueError: The URL is invalid.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS,
        timeout=POOL_TIMEOUT,
        socket_timeout=COMMAND_TIMEOUT,
        socket_connect_timeout=CONNECT_TIMEOUT,
        # No retries: if the response to a command was lost, a retry would count the request a second time.
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    return Redis.from_pool(pool)


def _seconds_left(moment: float) -> float:
    # Seconds until the next minute, by the clock of the Redis server.
    return WINDOW - moment % WINDOW + _MARGIN


def _reason(error: Exception) -> str:
    if isinstance(error, AuthenticationError):
        return "the server rejected the user or the password"
    if isinstance(error, ResponseError):
        code = str(error).partition(" ")[0]
        shown = code if code.isalpha() and code.isupper() else type(error).__name__
        return f"the server rejected the command that counts requests ({shown})"
    # Omit the message of the library, which may contain the command or the URL.
    return type(error).__name__
