"""Rate limit per client address for failed authentications and for requests without credentials."""

import asyncio
import time
from collections.abc import Callable
from ipaddress import IPv6Address

from toolgate_service.core.addresses import read_address
from toolgate_service.core.errors import ApiError

WINDOW = 60
#: maximum number of addresses that are counted separately; all further addresses of the same minute share one count
MAX_ADDRESSES = 10_000
#: Length in bits of the network prefix by which IPv6 addresses are counted. One customer of an internet provider
#: usually controls all addresses of a /64 network.
PREFIX = 64
_SHARED = "other"
#: delay in seconds for requests without valid credentials from an address that has reached its limit
DELAY = 0.25


class AuthFailures:
    """Counter of failed requests per client address and minute.

    Failed requests are those with rejected credentials, and invalid requests to routes without authentication. If an
    address has reached its limit, requests with invalid credentials get a delayed 429 response instead of the usual
    error. Requests that need no credentials, such as logins, are delayed too. Requests with valid credentials are not
    affected, since other users may share the address, for instance behind a proxy that the setting `trusted_proxies`
    does not contain.

    Args:
        limit: Maximum number of failures per address and minute.
        clock: Returns monotonic time in seconds.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._window = 0
        self._counts: dict[str, int] = {}
        #: lock that lets requests without credentials start one after the other, one per iteration of the event loop
        self._turn = asyncio.Lock()

    def count(self, address: str | None) -> bool:
        """Count a failure, and return whether the address had already reached its limit.

        Args:
            address: Address of the client; behind trusted proxies, the address that they report.
        """
        subject = self._subject(address)
        failures = self._counts.get(subject, 0)
        if failures >= self._limit:
            return True
        self._counts[subject] = failures + 1
        return False

    async def reject(self, address: str | None, error: ApiError) -> ApiError:
        """Count a failed authentication and return the error to send.

        The result is `error`. If the address has reached its limit of failures, wait `DELAY` seconds and return a 429
        error instead.
        """
        if not self.count(address):
            return error
        await asyncio.sleep(DELAY)
        moment = self._clock()
        seconds = max(1, int((moment // WINDOW + 1) * WINDOW - moment + 0.999))
        return ApiError(
            429,
            f"{error.detail}; more than {self._limit} requests from this IP address failed to authenticate "
            f"within a minute; correct the credential, and retry after {seconds} seconds",
            {
                "Retry-After": str(seconds),
                "X-RateLimit-Limit": str(self._limit),
                "X-RateLimit-Remaining": "0",
                "X-RateLimit-Reset": str(int(time.time()) + seconds),
            },
        )

    async def admit_open(self, address: str | None) -> None:
        """Wait until a request that needs no credentials may start.

        The wait is `DELAY` seconds longer if the address has reached its limit of failed requests.
        """
        if self._counts.get(self._subject(address), 0) >= self._limit:
            await asyncio.sleep(DELAY)
        async with self._turn:
            # Yield to the event loop, so that agents' checks that arrived in the meantime run first.
            await asyncio.sleep(0)

    def _subject(self, address: str | None) -> str:
        window = int(self._clock() // WINDOW)
        if window != self._window:
            self._window, self._counts = window, {}
        subject = network_of(address)
        return subject if subject in self._counts or len(self._counts) < MAX_ADDRESSES else _SHARED


def network_of(address: str | None) -> str:
    """Return the key under which failures of an address are counted.

    It is the IPv4 address, the /64 network of an IPv6 address, or "unknown".
    """
    parsed = None if address is None else read_address(address)
    if isinstance(parsed, IPv6Address):
        return f"{IPv6Address(int(parsed) >> PREFIX << PREFIX)}/{PREFIX}"
    return str(parsed) if parsed is not None else "unknown"
