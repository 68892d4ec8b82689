"""HTTP client that delivers events to webhooks, and signatures of deliveries.

The client sends each request once and within a time limit. It does not follow redirects or use proxies.
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

#: Maximum seconds for one attempt, from the name lookup to the end of the response.
TIMEOUT = 10
#: Maximum bytes of a response body that the client reads and discards in order to reuse the connection.
MAX_BODY = 16 * 1024
#: Limits of the connection pool: connections, idle connections, and seconds after which an idle connection is closed.
MAX_CONNECTIONS = 128
MAX_IDLE_CONNECTIONS = 32
IDLE_SECONDS = 15

AGENT = f"toolgate/{version('toolgate')}"
_SECONDS = re.compile(r"[0-9]{1,9}")
_SUCCESS = range(200, 300)


@dataclass(frozen=True, slots=True)
class SendResult:
    """Result of one attempt to deliver an event.

    Attributes:
        code: HTTP status of the response; None if no response arrived.
        error: Short description of the failure, without secrets; None after a success.
        retry_after: Time that the receiver asked the gateway to wait before the next attempt; None if it did not ask.
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
        """True if the receiver responded with status 410 (Gone), by which it rejects all further events."""
        return self.code == HTTPStatus.GONE

    @property
    def outcome(self) -> str:
        """Label of the result in the metrics: ``delivered``, ``refused`` (by the receiver) or ``unreachable``."""
        if self.delivered:
            return "delivered"
        return "unreachable" if self.code is None else "refused"


def signed_headers(event_id: str, moment: datetime, body: str, secrets: Sequence[str]) -> dict[str, str]:
    """Return the HTTP headers of one attempt as defined by Standard Webhooks. They contain one signature per secret.

    After a signing secret was replaced, `secrets` also contains the former one, so that receivers have time to switch.
    """
    # Import the library only here, because its own imports would take a tenth of the time that the gateway needs to
    # start.
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
        allow_private: True if webhooks may connect to private IP addresses.
        resolve: Function that looks up the IP addresses of a host. The default is the system's resolver.
        tls: TLS context with the trusted certificate authorities. The default is that of httpx.
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
        # Create the connection pool only for the first delivery, because loading httpx and the certificates takes a
        # tenth of the time that the gateway needs to start.
        import httpx

        # Use httpcore directly, because httpx would add redirects, cookies, decompression, and proxies from the
        # environment.
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls or httpx.create_ssl_context(),
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_SECONDS,
            network_backend=self._network,
        )

    async def send(self, url: str, headers: Mapping[str, str], body: str) -> SendResult:
        """Send a POST request once and return the result.

        Failures are part of the result; they do not raise an exception.
        """
        received: list[SendResult] = []
        try:
            async with asyncio.timeout(self._seconds):
                await self._post(url, headers, body, received)
        except TimeoutError:
            # If the status has already arrived, use it as the result, even if the rest of the response is late.
            return (
                received[0] if received else SendResult(None, f"no response within {self._seconds:g} seconds")
            )
        except Exception as error:  # noqa: BLE001 - a broken receiver can cause any exception
            return received[0] if received else SendResult(None, _describe(error))
        return received[0]

    async def close(self) -> None:
        """Close all connections."""
        if "_pool" in self.__dict__:
            await self._pool.aclose()

    async def _post(
        self, url: str, headers: Mapping[str, str], body: str, received: list[SendResult]
    ) -> None:
        # The Host header is set explicitly, because httpcore would omit the brackets of an IPv6 address.
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
    # httpcore's own URL parser drops the part of the path after a semicolon, so the path is extracted here.
    parts = urlsplit(url)
    rest = url.partition("://")[2][len(parts.netloc) :]
    target = rest if rest.startswith("/") else f"/{rest}"
    return httpcore.URL(scheme=parts.scheme, host=parts.hostname or "", port=parts.port, target=target)


def _result(code: int, headers: list[tuple[bytes, bytes]]) -> SendResult:
    if code in _SUCCESS:
        return SendResult(code, None)
    error = f"the receiver responded with {code}"
    if 300 <= code < 400:  # noqa: PLR2004 - a class of statuses
        error += "; redirects are not followed"
    value = next((content for name, content in headers if name.lower() == b"retry-after"), None)
    return SendResult(
        code, error, None if value is None else parse_retry_after(value.decode("latin-1"), utcnow())
    )


def parse_retry_after(text: str, moment: datetime) -> timedelta | None:
    """Return the waiting time in a `Retry-After` header, which contains seconds or a date; None if it is invalid."""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return timedelta(seconds=int(text))
    try:
        until = parsedate_to_datetime(text)
        return max((until if until.tzinfo else until.replace(tzinfo=UTC)) - moment, timedelta())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _describe(error: Exception) -> str:
    # Messages of the library's exceptions are not used, because they can contain the URL and with it secrets.
    match error:
        case AddressForbidden() | NameNotResolved() | ResponseTooLong():
            return str(error)
        case httpcore.ConnectTimeout():
            return "connecting to the receiver took too long"
        case httpcore.ConnectError():
            return _describe_tls(error) or "cannot connect to the receiver"
        case httpcore.RemoteProtocolError():
            return "the receiver's response was not HTTP, or incomplete"
        case httpcore.ReadError() | httpcore.WriteError():
            return "the connection was lost"
    return f"the delivery failed: {type(error).__name__}"


def _describe_tls(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            # OpenSSL's message is safe to show, because it contains no part of the URL except the host.
            return f"the receiver's certificate is not valid: {error.verify_message}"[:200]
        if isinstance(error, ssl.SSLError):
            return "no TLS connection could be established"
        error = error.__cause__ or error.__context__
    return None
