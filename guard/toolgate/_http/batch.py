"""Many log entries in one request, each answered for itself (`POST /sdk/logs`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from toolgate._http.client import GatewayClient
from toolgate._http.messages import Answer, TransportFault
from toolgate._http.retry import Transient
from toolgate.errors import ConfigurationError, GatewayProtocolError, GatewayUnavailable, GuardError
from toolgate.settings import Settings, masked

__all__ = ["Deliverer", "Delivery", "Result"]

# The gateway says about the entry itself that it can never succeed (spec §7, decisions §2).
_HOPELESS: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
)

_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one entry.

    Attributes:
        taken: The gateway has it.
        hopeless: The gateway never takes it.
        why: What it said.
    """

    taken: bool = False
    hopeless: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of some entries.

    Attributes:
        results: Of the first ones, in order.
        fault: Why the others were not taken; they may be sent again.
        pause: For how many seconds the gateway asks for peace.
        lasting: What hinders does not go away within seconds.
        too_large: Fewer at once may be taken.
        headers: Of the last answer.
    """

    results: Sequence[Result]
    fault: GuardError | None = None
    pause: float = 0.0
    lasting: bool = False
    too_large: bool = False
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


_TAKEN: Final = Result(taken=True)


class _One(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)

    status: int
    detail: Any = None

    def result(self, mask: Callable[[str], str]) -> Result:
        if self.status == HTTPStatus.OK:
            return _TAKEN
        return Result(hopeless=self.status in _HOPELESS, why=mask(f"{self.status}: {self.detail}"[:_LONGEST]))


class _Many(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)

    results: list[_One]


class _Single(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)

    id: str


class Deliverer:
    """Sends entries, each request once and over connections of its own.

    A gateway that knows only the specification is sent one entry at a time.

    Args:
        settings: Where the gateway is.
        transport: A transport of the HTTP library in place of the network.
    """

    def __init__(self, settings: Settings, transport: object | None) -> None:
        self._client = GatewayClient(settings, transport=transport)
        self._url, self._api_key = settings.url, settings.api_key
        self._one_by_one = False

    def deliver(self, entries: Sequence[tuple[str, str]], seconds: float) -> Delivery:
        """Send entries, each its key and its JSON text, within `seconds`; never raises for what the gateway does."""
        if not self._one_by_one:
            content = '{"entries":[' + ",".join(body for _, body in entries) + "]}"
            delivery = self._send("/sdk/logs", content, None, seconds, len(entries))
            if not self._one_by_one:
                return delivery
        return self._each(entries, time.monotonic() + seconds)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _each(self, entries: Sequence[tuple[str, str]], ends: float) -> Delivery:
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
            answer = self._client.post(path, content.encode(), key, seconds)
        except ConfigurationError as error:
            return Delivery((), error, lasting=True)
        except TransportFault as error:
            return Delivery((), GatewayUnavailable(f"no gateway answers at {self._url!r}: {error}"))
        try:
            results = self._read(answer, count, one=key is not None)
        except Transient as error:
            return Delivery((), error.fault, error.retry_after or 0.0, headers=answer.headers)
        except ConfigurationError as error:
            return Delivery((), error, lasting=True, headers=answer.headers)
        except GatewayProtocolError as error:
            return self._refused(answer, error, count, one=key is not None)
        return Delivery(results, headers=answer.headers)

    def _read(self, answer: Answer, count: int, *, one: bool) -> list[Result]:
        if one:
            self._client.read(answer, _Single)
            return [_TAKEN]
        results = [each.result(self._mask) for each in self._client.read(answer, _Many).results]
        if len(results) != count:
            raise GatewayProtocolError(
                f"the gateway answered for {len(results)} log entries instead of {count}",
                status=answer.status,
            )
        return results

    def _mask(self, text: str) -> str:
        return text.replace(self._api_key, masked(self._api_key))

    def _refused(self, answer: Answer, error: GatewayProtocolError, count: int, *, one: bool) -> Delivery:
        status = answer.status
        if not one and status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            self._one_by_one = True
        # Of somebody else's page nothing may be concluded.
        ours = answer.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
        if status in _HOPELESS and ours and count == 1:
            return Delivery([Result(hopeless=True, why=str(error))], headers=answer.headers)
        too_large = status in {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE} and ours
        lasting = status == HTTPStatus.FORBIDDEN
        return Delivery((), error, lasting=lasting, too_large=too_large, headers=answer.headers)
