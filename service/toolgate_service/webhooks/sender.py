"""One attempt to deliver: ten seconds in all, no redirects, no proxies, whatever the receiver does (decisions §10)."""

import asyncio
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from http import HTTPStatus
from importlib.metadata import version
from urllib.parse import urlsplit

import httpcore

from toolgate_service.clock import utcnow
from toolgate_service.webhooks.measured import TooMuch
from toolgate_service.webhooks.network import JudgedNetwork, Refused, Resolver, SystemResolver, Unresolved

#: seconds from the look-up of the name to the end of the answer
SECONDS = 10
#: of an answer's body nothing is kept; up to so much is read, so that the connection may be used again
READ = 16 * 1024
#: connections at once, and kept for the next delivery
CONNECTIONS = 128
KEPT = 32
KEPT_SECONDS = 15

AGENT = f"toolgate/{version('toolgate')}"
_SECONDS = re.compile(r"[0-9]{1,9}")
_SUCCESS = range(200, 300)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attempt.

    Attributes:
        code: the receiver's status; None when there was no answer.
        error: what went wrong, in a few words that hold no secret; None when it was delivered.
        retry_after: how long the receiver wants to be left alone.
    """

    code: int | None
    error: str | None
    retry_after: timedelta | None = None

    @property
    def delivered(self) -> bool:
        """Whether the receiver took it."""
        return self.error is None

    @property
    def gone(self) -> bool:
        """Whether the receiver never wants anything again."""
        return self.code == HTTPStatus.GONE


class Sender:
    """Sends to receivers.

    Args:
        allow_private: whether the operator allows private addresses.
        resolve: tells a host's addresses; the system when left out.
        tls: whose certificates are trusted; the usual authorities when left out.
        seconds: how long an attempt may take in all.
    """

    def __init__(
        self,
        *,
        allow_private: bool,
        resolve: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._seconds = seconds
        self._tls = tls
        self._network = JudgedNetwork(resolve or SystemResolver(), allow_private=allow_private)

    @cached_property
    def _pool(self) -> httpcore.AsyncConnectionPool:
        # Not before the first delivery: the client library and its authorities are a tenth of a gateway's start.
        import httpx

        # httpcore and not httpx: it knows no redirects, no proxies of the environment, no cookies, no decompression.
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls or httpx.create_ssl_context(),
            max_connections=CONNECTIONS,
            max_keepalive_connections=KEPT,
            keepalive_expiry=KEPT_SECONDS,
            network_backend=self._network,
        )

    async def send(self, url: str, headers: Mapping[str, str], body: str) -> Outcome:
        """Return what came of one attempt; nothing that a receiver does raises."""
        answer: list[Outcome] = []
        try:
            async with asyncio.timeout(self._seconds):
                await self._post(url, headers, body, answer)
        except TimeoutError:
            # The status counts, however slowly the rest of the answer comes.
            return answer[0] if answer else Outcome(None, f"no answer within {self._seconds:g} seconds")
        except Exception as error:  # noqa: BLE001 - a receiver, and a library that meets it, may fail in any way
            return answer[0] if answer else Outcome(None, _words(error))
        return answer[0]

    async def close(self) -> None:
        """Hang up."""
        if "_pool" in self.__dict__:
            await self._pool.aclose()

    async def _post(self, url: str, headers: Mapping[str, str], body: str, answer: list[Outcome]) -> None:
        # Host by ourselves: httpcore writes an IPv6 address without its brackets.
        sent = {
            "Host": urlsplit(url).netloc,
            "Content-Type": "application/json",
            "User-Agent": AGENT,
            **headers,
        }
        raw = [(name.encode(), value.encode()) for name, value in sent.items()]
        async with self._pool.stream("POST", _target(url), headers=raw, content=body.encode()) as response:
            answer.append(_told(response.status, response.headers))
            size = 0
            async for part in response.aiter_stream():
                size += len(part)
                if size > READ:
                    return


def _target(url: str) -> httpcore.URL:
    # Taken apart by ourselves: httpcore leaves out what stands behind a semicolon in the path.
    parts = urlsplit(url)
    rest = url.partition("://")[2][len(parts.netloc) :]
    target = rest if rest.startswith("/") else f"/{rest}"
    return httpcore.URL(scheme=parts.scheme, host=parts.hostname or "", port=parts.port, target=target)


def _told(code: int, headers: list[tuple[bytes, bytes]]) -> Outcome:
    if code in _SUCCESS:
        return Outcome(code, None)
    words = f"the receiver answered {code}"
    if 300 <= code < 400:  # noqa: PLR2004 - a class of statuses
        words += "; redirects are not followed"
    waits = next((value for name, value in headers if name.lower() == b"retry-after"), None)
    return Outcome(code, words, None if waits is None else retry_after(waits.decode("latin-1"), utcnow()))


def retry_after(text: str, moment: datetime) -> timedelta | None:
    """Read a `Retry-After` header: seconds or a date; None when it is neither."""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return timedelta(seconds=int(text))
    try:
        until = parsedate_to_datetime(text)
        return max((until if until.tzinfo else until.replace(tzinfo=UTC)) - moment, timedelta())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _words(error: Exception) -> str:
    # Never an exception's own words, which may quote the URL, and with it what somebody put into its query.
    match error:
        case Refused() | Unresolved() | TooMuch():
            return str(error)
        case httpcore.ConnectTimeout():
            return "the connection could not be made in time"
        case httpcore.ConnectError():
            return _tls(error) or "the connection could not be made"
        case httpcore.RemoteProtocolError():
            return "the receiver's answer was not HTTP, or broke off"
        case httpcore.ReadError() | httpcore.WriteError():
            return "the connection broke off"
    return f"the delivery failed: {type(error).__name__}"


def _tls(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            # OpenSSL's words for the reason; those about names repeat the URL's host and nothing else of it.
            return f"the receiver's certificate is not valid: {error.verify_message}"[:200]
        if isinstance(error, ssl.SSLError):
            return "no secure connection could be made"
        error = error.__cause__ or error.__context__
    return None
