"""The gateway's operations for a guard, synchronous and asynchronous over one base."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel
from tenacity import AsyncRetrying, Retrying

from toolgate._capture.jsontext import Json, dumps
from toolgate._http.breaker import Breaker
from toolgate._http.in_process import AsyncLocalWire, LocalGateway, LocalWire
from toolgate._http.messages import Answer, Clock, Request, TransportFault
from toolgate._http.network import needed
from toolgate._http.retry import Attempts, Deadline, Transient, aafter_failure, after_failure, policy
from toolgate._http.schemas import ApprovalAnswer, CheckAnswer, DryCheckAnswer, LogAnswer, Reader
from toolgate._http.transport import AsyncWire, Wire
from toolgate._outbox.entries import Entry
from toolgate.decision import Decision
from toolgate.errors import ConfigurationError, GatewayProtocolError
from toolgate.failing import refusals_at
from toolgate.settings import Settings, proxies_allowed
from toolgate.steps import Approval, Check
from toolgate.traced import trace_headers

__all__ = ["AsyncGatewayClient", "GatewayClient", "whose"]

_Model = TypeVar("_Model", bound=BaseModel)


class _Gateway:
    """Builds requests, reads answers and says what is sent again; sends nothing itself."""

    def __init__(self, settings: Settings, clock: Clock, breaker: Breaker | None) -> None:
        self._settings = settings
        self._breaker = Breaker(settings.url, clock) if breaker is None else breaker
        self._reader = Reader(settings)
        self._refusals = refusals_at(settings.url)
        self._clock = clock
        #: organization and environment of the key, once the gateway named them
        self.whose: tuple[str, str] | None = None
        self._headers = {
            "Accept": "application/json",
            "User-Agent": f"toolgate-python/{_version()}",
            "X-API-Key": settings.api_key,
        }

    def _check(self, check: Check) -> Request:
        body: dict[str, Json] = {
            "agent_id": check.who.agent_id,
            "action": check.action,
            "context": check.context,
        }
        if check.who.run_id is not None:
            body["run_id"] = check.who.run_id
        if check.who.call_id is not None:
            body["call_id"] = check.who.call_id
        if check.approval_id is not None:
            body["approval_id"] = check.approval_id
        if check.reason is not None:
            body["reason"] = check.reason
        if check.dry_run:
            body["dry_run"] = True
        return self._post("/sdk/check", body, check.key)

    def _log(self, entry: Entry) -> Request:
        return self._post("/sdk/log", entry.body, entry.key)

    def _approval(self, approval_id: str, wait: int) -> Request:
        url = f"{self._settings.url}/sdk/approvals/{quote(approval_id, safe='')}?wait={wait}"
        return Request("GET", url, {**self._headers, **trace_headers()}, patient=wait > 0)

    def _cancel(self, approval_id: str, *, rejected: bool) -> Request:
        url = f"{self._settings.url}/sdk/approvals/{quote(approval_id, safe='')}/cancel"
        if rejected:
            url += "?rejected=true"
        return Request("POST", url, {**self._headers, **trace_headers()})

    def _post(self, path: str, body: Mapping[str, Json], key: str) -> Request:
        headers = {
            **self._headers,
            **trace_headers(),
            "Content-Type": "application/json",
            "Idempotency-Key": key,
        }
        return Request("POST", self._settings.url + path, headers, dumps(dict(body)).encode())

    def _deadline(self, seconds: float | None = None) -> Deadline:
        return Deadline(self._settings.timeout if seconds is None else seconds, self._clock)

    def _trying(self, deadline: Deadline, *, gated: bool) -> Attempts:
        seconds = deadline.left()
        # Silence for a moment says nothing about the gateway.
        full = seconds >= self._settings.timeout / 2
        return Attempts(self._settings.url, self._breaker, self._clock, seconds, gated=gated, full=full)

    def _became(self, read: tuple[ApprovalAnswer, Answer]) -> Approval:
        said, _ = read
        return Approval(
            said.status,
            said.note,
            replaced_by=said.replaced_by,
            approved_context=said.approved_context,
            context=said.context,
            action=said.action,
            agent_id=said.agent_id,
            approval_id=said.id,
        )

    def _decision(self, check: Check, read: tuple[CheckAnswer, Answer]) -> Decision:
        said, answer = read
        decision = Decision(
            allowed=said.allowed,
            requires_approval=said.requires_approval,
            reason=said.reason,
            approval_id=said.approval_id
            or (_approved_by(answer) if check.dry_run and said.allowed else None),
            decision_id=answer.headers.get("x-decision-id") or None,
            let_through=not said.allowed and answer.headers.get("x-call-let-through") == "true",
        )
        self._refusals.note(check, decision)
        self.whose = whose(answer.headers) or self.whose
        return decision

    def _refused(self, check: Check, error: ConfigurationError | GatewayProtocolError) -> None:
        # Whoever may not even ask may not act in the next outage either. Other pages may be a stranger's.
        if isinstance(error, ConfigurationError) or error.status == HTTPStatus.FORBIDDEN:
            self._refusals.refuse(check)


# As the gateway takes ids.
_LONGEST_ID: Final = 255


def _approved_by(answer: Answer) -> str | None:
    """The approved request that would let a call through; only what can be an id is taken."""
    found = answer.headers.get("x-approval-id")
    return found if found and found.isprintable() and len(found) <= _LONGEST_ID else None


class GatewayClient(_Gateway):
    """Speaks with the gateway from any thread.

    Args:
        settings: Where it is and how long to try.
        transport: A transport of the HTTP library, or a gateway in this process, in place of the network.
        clock: Monotonic seconds; default the transport's, if it has one.
        sleep: Pauses between attempts, in seconds; default likewise.
        breaker: Knows whether the gateway answers; default one of its own.

    Attributes:
        clock: Monotonic seconds.
        sleep: Pauses, in seconds.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        transport: object | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], None] | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        local = transport if isinstance(transport, LocalGateway) else None
        self.clock = clock or (local.clock if local else time.monotonic)
        self.sleep = sleep or (local.sleep if local else time.sleep)
        super().__init__(settings, self.clock, breaker)
        self._wire: LocalWire | Wire = (
            LocalWire(local)
            if local
            else Wire(
                settings.http,
                transport,
                self.clock,
                proxies=proxies_allowed(settings.url),
                network=needed(settings.network, settings.url),
            )
        )

    def check(self, check: Check, seconds: float | None = None) -> Decision:
        """Ask whether an action is allowed (`POST /sdk/check`).

        Args:
            check: What is asked; the same one again is the same question.
            seconds: Deadline in place of the settings'.

        Raises:
            GatewayUnavailable: No gateway answered within the deadline.
            GatewayProtocolError: Something answered that decides nothing.
            ConfigurationError: The gateway refuses the API key.
        """
        request, gated = self._check(check), check.approval_id is None
        try:
            read = self._ask(request, _answer(check), self._deadline(seconds), gated=gated)
        except (ConfigurationError, GatewayProtocolError) as error:
            self._refused(check, error)
            raise
        return self._decision(check, read)

    def log(self, entry: Entry, seconds: float | None = None) -> dict[str, Any]:
        """Record what happened (`POST /sdk/log`) and return the log entry.

        Args:
            entry: What happened; sending it twice makes one log entry.
            seconds: Deadline in place of the settings'.

        Raises:
            GatewayUnavailable: No gateway answered within the deadline.
            GatewayProtocolError: The gateway refuses the entry; `status` says how.
            ConfigurationError: The gateway refuses the API key.
        """
        read = self._ask(self._log(entry), LogAnswer, self._deadline(seconds), gated=True)
        return read[0].as_dict()

    def approval(self, approval_id: str, wait: int) -> Approval:
        """What became of an approval request, asked for up to `wait` seconds (`GET /sdk/approvals/{id}`).

        Raises:
            GatewayUnavailable: No gateway answered within the deadline beyond `wait`.
            GatewayProtocolError: The gateway does not know the request, or what answered is no gateway.
            ConfigurationError: The gateway refuses the API key.
        """
        deadline = self._deadline(wait + self._settings.timeout)
        return self._became(self._ask(self._approval(approval_id, wait), ApprovalAnswer, deadline))

    def cancel(self, approval_id: str, seconds: float, *, rejected: bool = False) -> Approval:
        """Withdraw an approval request within `seconds` (`POST /sdk/approvals/{id}/cancel`).

        Args:
            approval_id: The request.
            seconds: The deadline.
            rejected: A user rejected the call in the agent's framework; its call id stays denied.

        Raises:
            GatewayUnavailable: No gateway answered in time.
            GatewayProtocolError: There is nothing left to withdraw; `status` says why.
            ConfigurationError: The gateway refuses the API key.
        """
        deadline = self._deadline(seconds)
        return self._became(self._ask(self._cancel(approval_id, rejected=rejected), ApprovalAnswer, deadline))

    def post(self, path: str, content: bytes, key: str | None, seconds: float) -> Answer:
        """Send one request, once, and return the answer whatever it says.

        Args:
            path: Below the gateway's address.
            content: JSON.
            key: Its Idempotency-Key, if it has one.
            seconds: Until nothing is waited for any more.

        Raises:
            TransportFault: No complete answer came.
            ConfigurationError: There is no way to send it.
        """
        named = {} if key is None else {"Idempotency-Key": key}
        headers = {**self._headers, "Content-Type": "application/json", **named}
        return self._wire.send(Request("POST", self._settings.url + path, headers, content), seconds)

    def read(self, answer: Answer, model: type[_Model]) -> _Model:
        """An answer as `model`; raises as `Reader.read`."""
        return self._reader.read(answer, model)

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    def _ask(
        self, request: Request, model: type[_Model], deadline: Deadline, *, gated: bool = False
    ) -> tuple[_Model, Answer]:
        def attempt() -> tuple[_Model, Answer]:
            trying.begins()
            try:
                answer = trying.heard(self._wire.send(request, deadline.left()))
            except TransportFault as error:
                raise trying.failed(error) from error
            return self._reader.read(answer, model, exactly=model is ApprovalAnswer), answer

        with self._trying(deadline, gated=gated) as trying:
            try:
                # Nearly always the first attempt is the last, and needs nobody who counts them.
                return attempt()
            except Transient as first:
                after = after_failure(first, attempt)
            try:
                return Retrying(sleep=self.sleep, **policy(deadline, trying.is_last))(after)
            except Transient as error:
                raise trying.given_up(error) from error.__cause__


class AsyncGatewayClient(_Gateway):
    """Speaks with the gateway from any task of any event loop.

    Args:
        settings: Where it is and how long to try.
        transport: A transport of the HTTP library, or a gateway in this process, in place of the network.
        clock: Monotonic seconds; default the transport's, if it has one.
        sleep: Pauses between attempts, in seconds; default likewise.
        breaker: Knows whether the gateway answers; default one of its own.

    Attributes:
        clock: Monotonic seconds.
        sleep: Pauses, in seconds.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        transport: object | None = None,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        local = transport if isinstance(transport, LocalGateway) else None
        self.clock = clock or (local.clock if local else time.monotonic)
        self.sleep = sleep or (local.asleep if local else asyncio.sleep)
        super().__init__(settings, self.clock, breaker)
        self._wire: AsyncLocalWire | AsyncWire = (
            AsyncLocalWire(local)
            if local
            else AsyncWire(
                settings.http,
                transport,
                proxies=proxies_allowed(settings.url),
                network=needed(settings.network, settings.url),
            )
        )

    async def check(self, check: Check, seconds: float | None = None) -> Decision:
        """As `GatewayClient.check`."""
        request, gated = self._check(check), check.approval_id is None
        try:
            read = await self._ask(request, _answer(check), self._deadline(seconds), gated=gated)
        except (ConfigurationError, GatewayProtocolError) as error:
            self._refused(check, error)
            raise
        return self._decision(check, read)

    async def log(self, entry: Entry, seconds: float | None = None) -> dict[str, Any]:
        """As `GatewayClient.log`."""
        read = await self._ask(self._log(entry), LogAnswer, self._deadline(seconds), gated=True)
        return read[0].as_dict()

    async def approval(self, approval_id: str, wait: int) -> Approval:
        """As `GatewayClient.approval`."""
        deadline = self._deadline(wait + self._settings.timeout)
        return self._became(await self._ask(self._approval(approval_id, wait), ApprovalAnswer, deadline))

    async def cancel(self, approval_id: str, seconds: float, *, rejected: bool = False) -> Approval:
        """As `GatewayClient.cancel`."""
        deadline = self._deadline(seconds)
        return self._became(
            await self._ask(self._cancel(approval_id, rejected=rejected), ApprovalAnswer, deadline)
        )

    async def aclose(self) -> None:
        """Close the running loop's connections; those of other loops close with their loop."""
        await self._wire.aclose()

    async def _ask(
        self, request: Request, model: type[_Model], deadline: Deadline, *, gated: bool = False
    ) -> tuple[_Model, Answer]:
        async def attempt() -> tuple[_Model, Answer]:
            trying.begins()
            try:
                answer = trying.heard(await self._wire.send(request, deadline.left()))
            except TransportFault as error:
                raise trying.failed(error) from error
            return self._reader.read(answer, model, exactly=model is ApprovalAnswer), answer

        with self._trying(deadline, gated=gated) as trying:
            try:
                return await attempt()
            except Transient as first:
                after = aafter_failure(first, attempt)
            try:
                return await AsyncRetrying(sleep=self.sleep, **policy(deadline, trying.is_last))(after)
            except Transient as error:
                raise trying.given_up(error) from error.__cause__


def _answer(check: Check) -> type[CheckAnswer]:
    return DryCheckAnswer if check.dry_run else CheckAnswer


def whose(headers: Mapping[str, str]) -> tuple[str, str] | None:
    """Organization and environment of the key that was used, if the answer names them."""
    organization, environment = (
        headers.get(f"x-toolgate-{name}") for name in ("organization", "environment")
    )
    return (organization, environment) if organization and environment else None


def _version() -> str:
    try:
        return version("toolgate")
    except PackageNotFoundError:
        return "0"
