"""Synchronous and asynchronous clients of the gateway, and the operations that they share.

An operation, such as a check, is a generator without I/O: it yields a `Send` or `Pause`, receives the response or
exception, and returns the result. `GatewayClient` performs these two steps synchronously, `AsyncGatewayClient`
asynchronously.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic import BaseModel
from tenacity import Retrying

from toolgate._capture.jsontext import Json, dumps
from toolgate._http.exchange import Clock, InProcessGateway, Request, Response, TransportError
from toolgate._http.retry import Attempts, CircuitBreaker, Deadline, RetryableError, retry_policy
from toolgate._http.schemas import (
    ApprovalResponse,
    CheckResponse,
    DryRunResponse,
    LogResponse,
    ResponseParser,
)
from toolgate._http.transport import AsyncHttpSender, HttpSender
from toolgate._models import Approval, Check, Decision, Entry
from toolgate._process_state import denied_actions_at
from toolgate._settings import Settings
from toolgate._telemetry import trace_headers
from toolgate.errors import ConfigurationError, GatewayProtocolError

__all__ = ["AsyncGatewayClient", "GatewayClient", "key_scope"]

_Model = TypeVar("_Model", bound=BaseModel)
_Result = TypeVar("_Result")

# Maximum length of an id in characters; the gateway has the same limit.
_MAX_ID: Final = 255


@dataclass(frozen=True, slots=True)
class Send:
    """Step that an operation yields: the client sends a request within `seconds`, and sends the response back."""

    request: Request
    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Step that an operation yields: the client pauses for `seconds` before the next attempt."""

    seconds: float


Operation: TypeAlias = Generator[Send | Pause, Any, _Result]


class _Operations:
    """Base class of `GatewayClient` and `AsyncGatewayClient`, which performs no I/O.

    It builds the requests, decides about retries and evaluates the responses for check, log, approval and cancel.

    Attributes:
        clock: Function that returns monotonic seconds.
        key_scope: Organization and environment of the API key, or None until the gateway has returned a decision.
    """

    def __init__(self, settings: Settings, clock: Clock, breaker: CircuitBreaker | None) -> None:
        self.clock = clock
        self.key_scope: tuple[str, str] | None = None
        self._settings = settings
        self._breaker = CircuitBreaker(settings.url, clock) if breaker is None else breaker
        self._parser = ResponseParser(settings)
        self._denied_actions = denied_actions_at(settings.url)
        self._headers = {
            "Accept": "application/json",
            "User-Agent": f"toolgate-python/{_version()}",
            "X-API-Key": settings.api_key,
        }

    def _check(self, check: Check, seconds: float | None) -> Operation[Decision]:
        body: dict[str, Json] = {
            "agent_id": check.who.agent_id,
            "action": check.action,
            "context": check.context,
        }
        optional = {
            "run_id": check.who.run_id,
            "call_id": check.who.call_id,
            "approval_id": check.approval_id,
            "reason": check.reason,
            "dry_run": check.dry_run or None,
        }
        body.update({name: value for name, value in optional.items() if value is not None})
        request = self._post("/sdk/check", body, check.key)
        model = DryRunResponse if check.dry_run else CheckResponse
        try:
            parsed, response = yield from self._request(
                request, model, seconds, gated=check.approval_id is None
            )
        except (ConfigurationError, GatewayProtocolError) as error:
            # If the gateway rejects the API key or the check (status 401 or 403), the SDK stores the action as denied,
            # so that it does not run without a decision (`fail_open`) in the next outage. After other unexpected
            # responses the action is not stored, because another server may have sent them.
            if isinstance(error, ConfigurationError) or error.status == HTTPStatus.FORBIDDEN:
                self._denied_actions.add(check)
            raise
        headers = response.headers
        decision = Decision(
            allowed=parsed.allowed,
            requires_approval=parsed.requires_approval,
            reason=parsed.reason,
            approval_id=parsed.approval_id or (_approved_request(headers) if parsed.allowed else None),
            decision_id=headers.get("x-decision-id") or None,
            already_used=not parsed.allowed and headers.get("x-call-let-through") == "true",
            reason_code=headers.get("x-reason-code") or None,
            rule=headers.get("x-rule-id") or None,
            budget_left=_budget_left(headers),
        )
        self._denied_actions.note(check, decision)
        self.key_scope = key_scope(headers) or self.key_scope
        return decision

    def _log(self, entry: Entry, seconds: float | None) -> Operation[dict[str, Any]]:
        request = self._post("/sdk/log", entry.body, entry.key)
        parsed, _ = yield from self._request(request, LogResponse, seconds, gated=True)
        return parsed.as_dict()

    def _approval(self, approval_id: str, wait: int) -> Operation[Approval]:
        request = Request(
            "GET", self._approval_url(approval_id, f"?wait={wait}"), self._traced(), long_poll=wait > 0
        )
        return (yield from self._read_approval(request, wait + self._settings.timeout))

    def _cancel(self, approval_id: str, seconds: float, *, rejected: bool) -> Operation[Approval]:
        url = self._approval_url(approval_id, "/cancel" + ("?rejected=true" if rejected else ""))
        return (yield from self._read_approval(Request("POST", url, self._traced()), seconds))

    def _read_approval(self, request: Request, seconds: float) -> Operation[Approval]:
        parsed, _ = yield from self._request(request, ApprovalResponse, seconds, gated=False)
        return Approval(
            parsed.status,
            parsed.note,
            replaced_by=parsed.replaced_by,
            approved_context=parsed.approved_context,
            context=parsed.context,
            action=parsed.action,
            agent_id=parsed.agent_id,
            approval_id=parsed.id,
        )

    def _request(
        self, request: Request, model: type[_Model], seconds: float | None, *, gated: bool
    ) -> Operation[tuple[_Model, Response]]:
        """Send a request, and repeat it after temporary errors for `seconds`, by default the time-out of the settings.

        If `gated` is true, the circuit breaker rejects the request while the gateway is unavailable (see `Attempts`).
        """
        seconds = self._settings.timeout if seconds is None else seconds
        deadline = Deadline(seconds, self.clock)
        attempts = Attempts(
            self._settings.url,
            self._breaker,
            self.clock,
            seconds,
            gated=gated,
            is_conclusive=seconds >= self._settings.timeout / 2,
        )
        with attempts:
            try:
                # The first attempt does not use the library tenacity: it nearly always succeeds, and is faster without
                # the library.
                return (yield from self._attempt(request, model, deadline, attempts))
            except RetryableError as error:
                first: RetryableError | None = error
            pauses: list[float] = []
            try:
                for attempt in Retrying(sleep=pauses.append, **retry_policy(deadline, attempts.is_last)):
                    if pauses:
                        yield Pause(pauses.pop())
                    with attempt:
                        if first is not None:
                            failure, first = first, None
                            raise failure
                        attempts.begin()
                        return (yield from self._attempt(request, model, deadline, attempts))
            except RetryableError as error:
                raise attempts.give_up(error) from error.__cause__
        raise AssertionError("tenacity ended without a result")

    def _attempt(
        self, request: Request, model: type[_Model], deadline: Deadline, attempts: Attempts
    ) -> Operation[tuple[_Model, Response]]:
        try:
            response: Response = yield Send(request, deadline.left())
        except TransportError as error:
            raise attempts.fail(error) from error
        attempts.succeed(response)
        return self._parser.parse(response, model, exact_numbers=model is ApprovalResponse), response

    def _post(self, path: str, body: Mapping[str, Json], key: str) -> Request:
        headers = {**self._traced(), "Content-Type": "application/json", "Idempotency-Key": key}
        return Request("POST", self._settings.url + path, headers, dumps(dict(body)).encode())

    def _approval_url(self, approval_id: str, suffix: str) -> str:
        return f"{self._settings.url}/sdk/approvals/{quote(approval_id, safe='')}{suffix}"

    def _traced(self) -> dict[str, str]:
        return {**self._headers, **trace_headers()}


class GatewayClient(_Operations):
    """Synchronous, thread-safe client of the gateway.

    Args:
        settings: Address, API key, time-out and network settings.
        transport: A transport of the HTTP library or an `InProcessGateway` that replaces the network.
        clock: Function that returns monotonic seconds; the default is the in-process gateway's clock, or
            `time.monotonic`.
        sleep: Function that pauses for the given seconds between attempts; the default is the in-process gateway's
            `sleep` method, or `time.sleep`.
        breaker: Circuit breaker of the gateway; the default is a new one for this client.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        transport: object | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] | None = None,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        local = transport if isinstance(transport, InProcessGateway) else None
        super().__init__(settings, clock or (local.clock if local else time.monotonic), breaker)
        self.sleep = sleep or (local.sleep if local else time.sleep)
        self._http: HttpSender | None = None
        self._send: Callable[[Request, float], Response]
        if local is not None:
            self._send = local.send
        else:
            self._http = HttpSender(
                settings.url, settings.http, transport, clock=self.clock, network=settings.network
            )
            self._send = self._http.send

    def check(self, check: Check, seconds: float | None = None) -> Decision:
        """Return the gateway's decision about an action (`POST /sdk/check`).

        Args:
            check: The check. The gateway treats several requests with the same idempotency key as one check.
            seconds: Seconds until the deadline; the default is the time-out of the settings.

        Raises:
            GatewayUnavailable: If there is no response within the deadline.
            GatewayProtocolError: If the response is not a decision.
            ConfigurationError: If the gateway rejects the API key.
        """
        return self._run(self._check(check, seconds))

    def log(self, entry: Entry, seconds: float | None = None) -> dict[str, Any]:
        """Send a log entry and return it as the gateway stored it (`POST /sdk/log`).

        Args:
            entry: The entry. The gateway stores several entries with the same idempotency key only once.
            seconds: Seconds until the deadline; the default is the time-out of the settings.

        Raises:
            GatewayUnavailable: If there is no response within the deadline.
            GatewayProtocolError: If the gateway rejects the entry; `status` is the HTTP status.
            ConfigurationError: If the gateway rejects the API key.
        """
        return self._run(self._log(entry, seconds))

    def approval(self, approval_id: str, wait: int) -> Approval:
        """Return an approval request (`GET /sdk/approvals/{id}`).

        The gateway responds as soon as the request is decided, or after `wait` seconds with the undecided request.

        Raises:
            GatewayUnavailable: If there is no response within `wait` plus the time-out of the settings.
            GatewayProtocolError: If the approval request does not exist, or the response is not an approval request.
            ConfigurationError: If the gateway rejects the API key.
        """
        return self._run(self._approval(approval_id, wait))

    def cancel(self, approval_id: str, seconds: float, *, rejected: bool = False) -> Approval:
        """Cancel an approval request (`POST /sdk/approvals/{id}/cancel`).

        Args:
            approval_id: Id of the approval request.
            seconds: Seconds until the deadline.
            rejected: Whether a user rejected the call in the agent's framework; if so, later checks with the call id of
                this approval request are denied.

        Raises:
            GatewayUnavailable: If there is no response within the deadline.
            GatewayProtocolError: If the request cannot be cancelled any more; `status` is the HTTP status.
            ConfigurationError: If the gateway rejects the API key.
        """
        return self._run(self._cancel(approval_id, seconds, rejected=rejected))

    def post_once(self, path: str, content: bytes, key: str | None, seconds: float) -> Response:
        """Send one request without retries, and return the response, which may have any status.

        Args:
            path: Path below the gateway's address.
            content: JSON text, encoded in UTF-8.
            key: Value of the header `Idempotency-Key`, or None.
            seconds: Seconds until the deadline.

        Raises:
            TransportError: If there is no complete response.
            ConfigurationError: If the request cannot be sent at all.
        """
        headers = {**self._headers, "Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        return self._send(Request("POST", self._settings.url + path, headers, content), seconds)

    def parse(self, response: Response, model: type[_Model]) -> _Model:
        """Validate a response and return it as `model`; raises the same exceptions as `ResponseParser.parse`."""
        return self._parser.parse(response, model)

    def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            self._http.close()

    def _run(self, operation: Operation[_Result]) -> _Result:
        try:
            step = next(operation)
            while True:
                try:
                    response = None
                    if isinstance(step, Send):
                        response = self._send(step.request, step.seconds)
                    else:
                        self.sleep(step.seconds)
                except BaseException as error:  # noqa: BLE001 - it is thrown into the operation, which raises it again
                    step = operation.throw(error)
                else:
                    step = operation.send(response)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # typeshed does not type StopIteration.value


class AsyncGatewayClient(_Operations):
    """Asynchronous client of the gateway, usable from any event loop; takes the same arguments as `GatewayClient`."""

    def __init__(
        self,
        settings: Settings,
        *,
        transport: object | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        local = transport if isinstance(transport, InProcessGateway) else None
        super().__init__(settings, clock or (local.clock if local else time.monotonic), breaker)
        self.sleep = sleep or (local.asleep if local else asyncio.sleep)
        self._http: AsyncHttpSender | None = None
        self._send: Callable[[Request, float], Awaitable[Response]]
        if local is not None:
            self._send = local.asend
        else:
            self._http = AsyncHttpSender(settings.url, settings.http, transport, network=settings.network)
            self._send = self._http.send

    async def check(self, check: Check, seconds: float | None = None) -> Decision:
        """Asynchronous form of `GatewayClient.check`."""
        return await self._run(self._check(check, seconds))

    async def log(self, entry: Entry, seconds: float | None = None) -> dict[str, Any]:
        """Asynchronous form of `GatewayClient.log`."""
        return await self._run(self._log(entry, seconds))

    async def approval(self, approval_id: str, wait: int) -> Approval:
        """Asynchronous form of `GatewayClient.approval`."""
        return await self._run(self._approval(approval_id, wait))

    async def cancel(self, approval_id: str, seconds: float, *, rejected: bool = False) -> Approval:
        """Asynchronous form of `GatewayClient.cancel`."""
        return await self._run(self._cancel(approval_id, seconds, rejected=rejected))

    async def aclose(self) -> None:
        """Close the connections of the running event loop; other connections close with their event loop."""
        if self._http is not None:
            await self._http.aclose()

    async def _run(self, operation: Operation[_Result]) -> _Result:
        try:
            step = next(operation)
            while True:
                try:
                    response = None
                    if isinstance(step, Send):
                        response = await self._send(step.request, step.seconds)
                    else:
                        await self.sleep(step.seconds)
                except BaseException as error:  # noqa: BLE001 - it is thrown into the operation, which raises it again
                    step = operation.throw(error)
                else:
                    step = operation.send(response)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # typeshed does not type StopIteration.value


def key_scope(headers: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the API key's organization and environment from response headers, or None if one of them is missing."""
    organization = headers.get("x-toolgate-organization")
    environment = headers.get("x-toolgate-environment")
    return (organization, environment) if organization and environment else None


def _budget_left(headers: Mapping[str, str]) -> Decimal | None:
    try:
        return Decimal(headers["x-budget-left"])
    except (KeyError, InvalidOperation):
        # The number is only information: a header that is not a number does not make the decision invalid.
        return None


def _approved_request(headers: Mapping[str, str]) -> str | None:
    """Return the id of the approved request that allows a call, or None if the headers contain no valid id."""
    found = headers.get("x-approval-id")
    return found if found and found.isprintable() and len(found) <= _MAX_ID else None


@cache
def _version() -> str:
    # Reading it takes longer than opening a client.
    try:
        return version("toolgate")
    except PackageNotFoundError:
        return "0"
