"""HTTP client for webhooks, and signatures of deliveries.

The client sends a request once, with a deadline, and without redirects and proxies.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from http import HTTPStatus
from importlib.metadata import version
from urllib.parse import urlsplit

import httpcore

from toolgate_service.core.clock import utcnow
from toolgate_service.outbound.ssrf import (
    AddressForbidden,
    NameNotResolved,
    Resolver,
    ResponseTooLong,
    SsrfGuardedBackend,
    SystemResolver,
)

#: maximum seconds for one attempt, from the name lookup to the end of the response
TIMEOUT = 10
#: maximum bytes of a response body that are read and discarded, so that the connection can be reused
MAX_BODY = 16 * 1024
#: connection pool: maximum connections, maximum idle connections, and seconds after which an idle connection is closed
MAX_CONNECTIONS = 128
MAX_IDLE_CONNECTIONS = 32
IDLE_SECONDS = 15

AGENT = f"toolgate/{version('toolgate')}"
_SECONDS = re.compile(r"[0-9]{1,9}")
_SUCCESS = range(200, 300)


@dataclass(frozen=True, slots=True)
class SendResult:
    """Result of a delivery attempt.

    Attributes:
        code: HTTP status of the response; None without a response.
        error: Short description of the failure, without secrets; None after a success.
        retry_after: Backoff that the receiver requested; None if it requested none.
    """

    code: int | None
    error: str | None
    retry_after: timedelta | None = None

    @property
    def delivered(self) -> bool:
        """True if the receiver accepted the event."""
        return self.error is None

    @property
    def gone(self) -> bool:
        """True if the receiver responded with 410 Gone, which requests that no further events are sent."""
        return self.code == HTTPStatus.GONE

    @property
    def outcome(self) -> str:
        """Result as a label of the metrics: ``delivered``, ``refused`` (by the receiver) or ``unreachable``."""
        if self.delivered:
            return "delivered"
        return "unreachable" if self.code is None else "refused"


def signed_headers(event_id: str, moment: datetime, body: str, secrets: Sequence[str]) -> dict[str, str]:
    """Return the headers of one delivery attempt as defined by Standard Webhooks, with one signature per secret.

    After a rotation, `secrets` also contains the former secret, so that receivers have time to install the new one.
    """
    # The library is imported here, because it imports an HTTP client, which takes a tenth of the gateway's start time.
    from standardwebhooks import Webhook as Signer

    whole = moment.astimezone(UTC).replace(microsecond=0)
    signatures = [Signer(secret).sign(event_id, whole, body) for secret in secrets]
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(whole.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


class Sender:
    """HTTP client that sends events to the receivers of webhooks.

    Args:
        allow_private: True if the operator allows private addresses.
        resolve: Returns the addresses of a host; by default the system's resolver.
        tls: TLS context with the trusted certificate authorities; by default that of httpx.
        seconds: Maximum duration of one attempt.
    """

    def __init__(
        self,
        *,
        allow_private: bool,
        resolve: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        seconds: float = TIMEOUT,
    ) -> None:
        self._seconds = seconds
        self._tls = tls
        self._network = SsrfGuardedBackend(resolve or SystemResolver(), allow_private=allow_private)

    @cached_property
    def _pool(self) -> httpcore.AsyncConnectionPool:
        # The pool is created at the first delivery, because loading the library and the certificates would take a tenth
        # of the gateway's start time.
        import httpx

        # httpcore is used directly. Unlike httpx, it adds no redirects, cookies, decompression, or proxies from the
        # environment.
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls or httpx.create_ssl_context(),
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=self._network,
        )

    async def send(self, url: str, headers: Mapping[str, str], body: str) -> SendResult:
        """POST a body once and return the result. A failure is part of the result and raises no exception."""
        received: list[SendResult] = []
        try:
            async with asyncio.timeout(self._seconds):
                await self._post(url, headers, body, received)
        except TimeoutError:
            # If the status has arrived, it is the result, even if the rest of the response is too slow.
            return (
                received[0] if received else SendResult(None, f"no answer within {self._seconds:g} seconds")
            )
        except Exception as error:  # noqa: BLE001 - a receiver, and a library that meets it, may fail in any way
            return received[0] if received else SendResult(None, _describe(error))
        return received[0]

    async def close(self) -> None:
        """Close all connections."""
        if "_pool" in self.__dict__:
            await self._pool.aclose()

    async def _post(
        self, url: str, headers: Mapping[str, str], body: str, received: list[SendResult]
    ) -> None:
        # The header Host is set here, because httpcore would omit the brackets of an IPv6 address.
        sent = {
            "Host": urlsplit(url).netloc,
            "Content-Type": "application/json",
            "User-Agent": AGENT,
            **headers,
        }
        raw = [(name.encode(), value.encode()) for name, value in sent.items()]
        async with self._pool.stream("POST", _target(url), headers=raw, content=body.encode()) as response:
            received.append(_result(response.status, response.headers))
            size = 0
            async for part in response.aiter_stream():
                size += len(part)
                if size > MAX_BODY:
                    return


def _target(url: str) -> httpcore.URL:
    # The target is extracted here, because httpcore's URL parser drops the part of the path after a semicolon.
    parts = urlsplit(url)
    rest = url.partition("://")[2][len(parts.netloc) :]
    target = rest if rest.startswith("/") else f"/{rest}"
    return httpcore.URL(scheme=parts.scheme, host=parts.hostname or "", port=parts.port, target=target)


def _result(code: int, headers: list[tuple[bytes, bytes]]) -> SendResult:
    if code in _SUCCESS:
        return SendResult(code, None)
    error = f"the receiver answered {code}"
    if 300 <= code < 400:  # noqa: PLR2004 - a class of statuses
        error += "; redirects are not followed"
    value = next((content for name, content in headers if name.lower() == b"retry-after"), None)
    return SendResult(
        code, error, None if value is None else parse_retry_after(value.decode("latin-1"), utcnow())
    )


def parse_retry_after(text: str, moment: datetime) -> timedelta | None:
    """Return the backoff that a `Retry-After` header requests, in seconds or as a date; None if it is invalid."""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return timedelta(seconds=int(text))
    try:
        until = parsedate_to_datetime(text)
        return max((until if until.tzinfo else until.replace(tzinfo=UTC)) - moment, timedelta())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _describe(error: Exception) -> str:
    # Messages of the library's exceptions are not used, because they may contain the URL and secrets in its query.
    match error:
        case AddressForbidden() | NameNotResolved() | ResponseTooLong():
            return str(error)
        case httpcore.ConnectTimeout():
            return "the connection could not be made in time"
        case httpcore.ConnectError():
            return _describe_tls(error) or "the connection could not be made"
        case httpcore.RemoteProtocolError():
            return "the receiver's answer was not HTTP, or broke off"
        case httpcore.ReadError() | httpcore.WriteError():
            return "the connection broke off"
    return f"the delivery failed: {type(error).__name__}"


def _describe_tls(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            # OpenSSL's message can be shown: the only part of the URL that it may contain is the host.
            return f"the receiver's certificate is not valid: {error.verify_message}"[:200]
        if isinstance(error, ssl.SSLError):
            return "no secure connection could be made"
        error = error.__cause__ or error.__context__
    return None
