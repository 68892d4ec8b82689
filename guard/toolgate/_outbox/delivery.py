"""Requests that send log entries (`POST /sdk/logs`), the pauses between them, and the log messages about outages."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, Protocol

from pydantic import BaseModel, ConfigDict

from toolgate._capture.redaction import scrub
from toolgate._http.client import GatewayClient
from toolgate._http.exchange import Response, TransportError
from toolgate._http.retry import RetryableError
from toolgate._http.schemas import media_type
from toolgate._settings import Settings, masked
from toolgate._telemetry import logger
from toolgate.errors import ConfigurationError, GatewayProtocolError, GatewayUnavailable, GuardError

__all__ = ["BatchSender", "Deliverer", "Delivery", "OutageLog", "Pace", "Result"]

# Statuses with which the gateway rejects an entry permanently: sending it again cannot succeed.
_PERMANENT: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
)
_MAX_REASON: Final = 300
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_RATE_WINDOW: Final = 60.0
_FIRST_REPEAT: Final = 30.0
_LAST_REPEAT: Final = 3600.0
_STRICT: Final = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class Result:
    """The gateway's result for one log entry of a request.

    Attributes:
        taken: Whether the gateway has stored the entry.
        hopeless: Whether the gateway rejects the entry permanently, so that sending it again cannot succeed.
        why: The gateway's reason for not storing the entry; empty if the entry is stored.
    """

    taken: bool = False
    hopeless: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Result of one call of `Deliverer.deliver`, which sends several log entries.

    Attributes:
        results: One result per entry, in the order of the entries. If sending ended early, the last entries have no
            result.
        fault: Error that ended sending early, or None. Entries without a result may be sent again.
        pause: Seconds that the gateway asks clients to wait before the next request; 0 if it does not ask for a pause.
        lasting: Whether a retry within seconds would probably fail as well, for example if the API key was rejected.
        too_large: Whether the gateway rejected the whole batch, possibly because of its size. A smaller batch may then
            succeed.
        headers: Headers of the last response; empty if there was no response.
    """

    results: Sequence[Result]
    fault: GuardError | None = None
    pause: float = 0.0
    lasting: bool = False
    too_large: bool = False
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


_TAKEN: Final = Result(taken=True)


class _EntryResult(BaseModel):
    model_config = _STRICT

    status: int
    detail: Any = None

    def result(self, mask: Callable[[str], str]) -> Result:
        if self.status == HTTPStatus.OK:
            return _TAKEN
        why = mask(f"{self.status}: {self.detail}"[:_MAX_REASON])
        return Result(hopeless=self.status in _PERMANENT, why=why)


class _BatchResponse(BaseModel):
    model_config = _STRICT

    results: list[_EntryResult]


class _EntryResponse(BaseModel):
    model_config = _STRICT

    id: str


class Deliverer(Protocol):
    """Interface of a client that sends log entries to the gateway."""

    def deliver(self, entries: Sequence[tuple[str, str]], seconds: float) -> Delivery:
        """Send entries within `seconds`; each entry is a pair: its Idempotency-Key and its JSON text."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class BatchSender:
    """Client that sends log entries over its own connections. It does not retry failed requests.

    It sends all entries in one request; if the gateway has no endpoint for this, it sends one request per entry.

    Args:
        settings: Address, API key and network settings.
        transport: A transport of the HTTP library or an `InProcessGateway` that replaces the network.
    """

    def __init__(self, settings: Settings, transport: object | None) -> None:
        self._client = GatewayClient(settings, transport=transport)
        self._url, self._api_key = settings.url, settings.api_key
        self._has_batches = True

    def deliver(self, entries: Sequence[tuple[str, str]], seconds: float) -> Delivery:
        """Send entries as described in `Deliverer`; failures are returned in the result and not raised."""
        ends = time.monotonic() + seconds
        if self._has_batches:
            content = '{"entries":[' + ",".join(body for _, body in entries) + "]}"
            delivery = self._send("/sdk/logs", content, None, seconds, len(entries))
            if self._has_batches:
                return delivery
        return self._deliver_singly(entries, ends)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _deliver_singly(self, entries: Sequence[tuple[str, str]], ends: float) -> Delivery:
        results: list[Result] = []
        delivery = Delivery(results)
        for key, body in entries:
            if (seconds := ends - time.monotonic()) <= 0:
                break
            delivery = self._send("/sdk/log", body, key, seconds, 1)
            results.extend(delivery.results)
            if delivery.fault is not None:
                break
        return replace(delivery, results=results)

    def _send(self, path: str, content: str, key: str | None, seconds: float, count: int) -> Delivery:
        try:
            response = self._client.post_once(path, content.encode(), key, seconds)
        except ConfigurationError as error:
            return Delivery((), error, lasting=True)
        except TransportError as error:
            return Delivery((), GatewayUnavailable(f"the gateway at {self._url!r} is unavailable: {error}"))
        headers = response.headers
        try:
            return Delivery(self._parse(response, count, is_batch=key is None), headers=headers)
        except RetryableError as error:
            return Delivery((), error.error, error.retry_after or 0.0, headers=headers)
        except ConfigurationError as error:
            return Delivery((), error, lasting=True, headers=headers)
        except GatewayProtocolError as error:
            return self._rejected(response, error, count, is_batch=key is None)

    def _parse(self, response: Response, count: int, *, is_batch: bool) -> list[Result]:
        if not is_batch:
            self._client.parse(response, _EntryResponse)
            return [_TAKEN]
        results = [each.result(self._mask) for each in self._client.parse(response, _BatchResponse).results]
        if len(results) != count:
            raise GatewayProtocolError(
                f"the gateway answered for {len(results)} log entries instead of {count}",
                status=response.status,
            )
        return results

    def _mask(self, text: str) -> str:
        return text.replace(self._api_key, masked(self._api_key))

    def _rejected(
        self, response: Response, error: GatewayProtocolError, count: int, *, is_batch: bool
    ) -> Delivery:
        status = response.status
        if is_batch and status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            self._has_batches = False
        # A response that is not JSON comes from another server, such as a proxy. It does not show that the entry is
        # invalid.
        is_json = media_type(response) == "application/json"
        if status in _PERMANENT and is_json and count == 1:
            return Delivery([Result(hopeless=True, why=str(error))], headers=response.headers)
        too_large = status in {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE} and is_json
        lasting = status == HTTPStatus.FORBIDDEN
        return Delivery((), error, lasting=lasting, too_large=too_large, headers=response.headers)


class Pace:
    """Computes the pause before the next request with log entries.

    After each failed request the pause grows (backoff). Entries that were queued during an outage or by another process
    are called old. Requests with old entries also pause while at most half of the gateway's rate limit is left. Current
    calls can then use the other half.

    Args:
        clock: Function that returns monotonic seconds.
        wall: Function that returns seconds since 1970.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._failures = 0
        self._lasting = False
        self._next = 0.0
        self._asked_until = 0.0
        self._old_after = 0.0

    @property
    def is_failing(self) -> bool:
        """Return whether the last request failed."""
        return self._failures > 0

    def failed(self, asked: float = 0.0, *, lasting: bool = False) -> None:
        """Count a failed request.

        Args:
            asked: Seconds that the gateway asks clients to wait; 0 if it does not ask for a pause.
            lasting: Whether a retry within seconds would probably fail as well, such as after a rejected API key.
                The pause is then long even after the first failure.
        """
        longest = (
            _LONGEST_PAUSE if lasting else min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._failures, 20))
        )
        self._failures += 1
        self._lasting = lasting
        now = self._clock()
        # Jitter: the pause is random, so that processes whose requests failed at the same time retry at different
        # times.
        self._next = now + longest * random.uniform(0.5, 1.0)  # noqa: S311 - jitter needs no secure random numbers
        self._asked_until = now + asked

    def worked(self) -> None:
        """End the backoff after a successful request."""
        self._failures, self._next, self._asked_until = 0, 0.0, 0.0

    def nudge(self) -> None:
        """Shorten the backoff, because the gateway has responded to a check and is therefore reachable."""
        if not self._lasting:
            self._next = min(self._next, self._clock() + _FIRST_PAUSE * 10)

    def read_headers(self, headers: Mapping[str, str]) -> None:
        """Read the `X-RateLimit-*` headers. If half of the limit is used, delay old entries until the window ends."""
        limit, left, reset = (
            _number(headers.get(f"x-ratelimit-{name}")) for name in ("limit", "remaining", "reset")
        )
        if limit is None or left is None or reset is None:
            return
        self._old_after = 0.0
        if left * 2 <= limit:
            # The header contains the end of the rate-limit window according to the gateway's clock. If that clock or
            # the local clock is wrong, the pause would be wrong too. It is therefore limited to one minute, the length
            # of a window.
            self._old_after = self._clock() + min(_RATE_WINDOW, max(1.0, reset - self._wall()))

    def pause(self, *, old: bool = False, hurried: bool = False) -> float:
        """Return the seconds to wait before the next request.

        Args:
            old: Whether the request contains old entries (see the class).
            hurried: Whether a caller of `flush` waits until all entries are sent. The backoff is then skipped. Pauses
                that the gateway requested, and pauses for old entries, are not skipped.
        """
        until = self._asked_until if hurried else max(self._next, self._asked_until)
        return max(0.0, max(until, self._old_after if old else 0.0) - self._clock())


class OutageLog:
    """Logs that entries cannot be sent, because the gateway is unavailable or the outbox file cannot be used.

    An outage is logged when it begins, again at growing intervals of 30 seconds to one hour, and when it is over.
    """

    def __init__(self) -> None:
        self._next = 0.0
        self._interval = 0.0

    def failed(self, entries: int, reason: str) -> None:
        """Log that `entries` entries cannot be sent, but only if the interval since the last log message is over."""
        # The reason may contain text from a response, which may include secrets that must not be logged.
        reason = scrub(reason, ())
        now = time.monotonic()
        if self._interval and now < self._next:
            return
        self._interval = min(_LAST_REPEAT, self._interval * 2 or _FIRST_REPEAT)
        self._next = now + self._interval
        logger.warning(
            "record_failed: %d log entries could not be sent and stay in the outbox until the gateway "
            "accepts them: %r",
            entries,
            reason,
            extra={"toolgate_event": "record_failed", "toolgate_reason": reason, "toolgate_entries": entries},
        )

    def over(self) -> None:
        """End the outage, and log that the gateway accepts entries again; do nothing if no outage was logged."""
        if self._interval:
            self._interval = 0.0
            logger.info("the gateway accepts log entries again", extra={"toolgate_event": "record_resumed"})


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
