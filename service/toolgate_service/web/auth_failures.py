"""Limits on clients that do not authenticate, or fail to, per client address."""

import asyncio
import time
from collections.abc import Callable
from ipaddress import IPv6Address

from toolgate_service.errors import ApiError
from toolgate_service.web.proxies import read_address

WINDOW = 60
#: addresses that are counted one by one; all further ones of the same minute share one count
MAX_ADDRESSES = 10_000
#: the part of an IPv6 address that one customer has
PREFIX = 64
_SHARED = "other"
#: seconds by which an address that has reached its limit is slowed: a flood of a few connections becomes a trickle
DELAY = 0.25


class AuthFailures:
    """Counts failed requests per address and minute: rejected credentials, and invalid requests that need none.

    A valid credential is never rejected because of its address: colleagues behind the same address, or behind a proxy
    that is not configured, are unaffected. Beyond the limit the answer to an invalid one is a 429 in place of a 401, and
    comes with a delay; a request that needs no credential, such as a login, is delayed as well.

    Args:
        limit: failures of one address in a minute.
        clock: monotonic seconds.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._window = 0
        self._counts: dict[str, int] = {}
        #: requests without a credential are begun one after the other, with a turn of the event loop in between
        self._turn = asyncio.Lock()

    def count(self, address: str | None) -> bool:
        """Count a failure; return whether the address had reached its limit before.

        Args:
            address: of the client; behind trusted proxies, the one they report.
        """
        subject = self._subject(address)
        failures = self._counts.get(subject, 0)
        if failures >= self._limit:
            return True
        self._counts[subject] = failures + 1
        return False

    async def reject(self, address: str | None, error: ApiError) -> ApiError:
        """Count a failure; return `error`, or after a delay a 429 if the address has reached its limit.

        Args:
            address: as for `count`.
            error: the 401.
        """
        if not self.count(address):
            return error
        await asyncio.sleep(DELAY)
        moment = self._clock()
        seconds = max(1, int((moment // WINDOW + 1) * WINDOW - moment + 0.999))
        return ApiError(
            429,
            f"{error.reply_detail}; more than {self._limit} requests of this address failed to authenticate within a "
            f"minute: correct the credential, and retry after {seconds} seconds",
            {
                "Retry-After": str(seconds),
                "X-RateLimit-Limit": str(self._limit),
                "X-RateLimit-Remaining": "0",
                "X-RateLimit-Reset": str(int(time.time()) + seconds),
            },
        )

    async def admit_open(self, address: str | None) -> None:
        """Let a request that needs no credential begin, after a delay if its address has reached its limit.

        Args:
            address: as for `count`.
        """
        if self._counts.get(self._subject(address), 0) >= self._limit:
            await asyncio.sleep(DELAY)
        async with self._turn:
            # The checks of agents that came meanwhile go first.
            await asyncio.sleep(0)

    def _subject(self, address: str | None) -> str:
        window = int(self._clock() // WINDOW)
        if window != self._window:
            self._window, self._counts = window, {}
        subject = network_of(address)
        return subject if subject in self._counts or len(self._counts) < MAX_ADDRESSES else _SHARED


def network_of(address: str | None) -> str:
    """Return what failures are counted for: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = None if address is None else read_address(address)
    if isinstance(parsed, IPv6Address):
        return f"{IPv6Address(int(parsed) >> PREFIX << PREFIX)}/{PREFIX}"
    return str(parsed) if parsed is not None else "unknown"
