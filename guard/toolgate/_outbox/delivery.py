"""Log entries in batches, with a result for each entry (`POST /sdk/logs`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from toolgate._http.client import GatewayClient
from toolgate._http.messages import Response, TransportError
from toolgate._http.retry import RetryableError
from toolgate._http.schemas import media_type
from toolgate.errors import ConfigurationError, GatewayProtocolError, GatewayUnavailable, GuardError
from toolgate.settings import Settings, masked

__all__ = ["BatchSender", "Delivery", "Result"]

# The gateway rejects the entry itself, so that sending it again cannot succeed.
_PERMANENT: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
)
_MAX_REASON: Final = 300
_STRICT: Final = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one entry.

    Attributes:
        taken: The gateway has stored it.
        hopeless: The gateway rejects it permanently.
        why: The gateway's reason.
    """

    taken: bool = False
    hopeless: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Result of sending several entries.

    Attributes:
        results: Results of the first entries, in order.
        fault: Why there is no result for the others, which may be sent again.
        pause: Seconds that the gateway asks to wait.
        lasting: The fault will not pass within seconds.
        too_large: A smaller batch may succeed.
        headers: Headers of the last response.
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


class BatchSender:
    """Sends log entries without retries, over connections of its own.

    If the gateway has no batch endpoint, entries are sent one by one.

    Args:
        settings: Address, API key and network settings.
        transport: A transport of the HTTP library or an `InProcessGateway` that replaces the network.
    """

    def __init__(self, settings: Settings, transport: object | None) -> None:
        self._client = GatewayClient(settings, transport=transport)
        self._url, self._api_key = settings.url, settings.api_key
        self._has_batches = True

    def deliver(self, entries: Sequence[tuple[str, str]], seconds: float) -> Delivery:
        """Send entries, each its key and its JSON, within `seconds`; failures are part of the result."""
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
            return Delivery((), GatewayUnavailable(f"no gateway answers at {self._url!r}: {error}"))
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
        # A page of another server proves nothing about an entry.
        is_json = media_type(response) == "application/json"
        if status in _PERMANENT and is_json and count == 1:
            return Delivery([Result(hopeless=True, why=str(error))], headers=response.headers)
        too_large = status in {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE} and is_json
        lasting = status == HTTPStatus.FORBIDDEN
        return Delivery((), error, lasting=lasting, too_large=too_large, headers=response.headers)
