"""A gateway of a few tables, in memory: for tests of agents."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from typing import Any, Final
from uuid import uuid4

from toolgate._capture.jsontext import dumps, loads
from toolgate._http.messages import InProcessGateway, Request, Response, TransportError
from toolgate._outbox.place import MEMORY
from toolgate.errors import ConfigurationError
from toolgate.guard import Guard
from toolgate.identity import valid_id
from toolgate.permitted import Actions, Permitted, read_limits, read_permissions
from toolgate.requested import ApprovalRequest
from toolgate.testing.answers import Refusal
from toolgate.testing.approvals import Asked, Then
from toolgate.testing.asserting import Assertions
from toolgate.testing.checks import Rule
from toolgate.testing.roads import Roads
from toolgate.testing.seen import Checked, Logged

__all__ = ["FakeGateway"]

_AGENT: Final = "test-agent"
_KEY: Final = "ak_" + "0fake" * 7 + "00"
_TO_FLUSH: Final = 5.0
# The circuit breaker's longest pause.
_RECOVERY: Final = 30.0


class FakeGateway(InProcessGateway, Assertions):
    """Answers as the real gateway does, in this process, and remembers what it was asked.

    What it was not told to allow is blocked. Its clock leaps: an outage, a latency or a time nobody decides
    costs a test no time. What it does not have: plans, rates, roles, several approvers, grants, and the
    block after ten denials. Its permissions are those of every agent.

    Args:
        allow: Actions that are allowed: names, or names with limits like `{"refund": {"max_amount": 100}}`.
        hold: Actions that wait for a person, in the same form.
        agents: The agents it knows; default every agent there is.

    Attributes:
        api_key: The key it takes; any other is refused.
        agent_id: The agent of the guards it makes.
    """

    def __init__(
        self, allow: Actions = (), hold: Actions = (), *, agents: Iterable[str] | None = None
    ) -> None:
        permissions = read_permissions(allow, hold)
        known = None if agents is None else tuple(valid_id(agent, "agents") for agent in agents)
        self.api_key: str = _KEY
        self.agent_id: str = _AGENT if known is None or not known else known[0]
        # Its own: what this process remembers of a gateway is no other's.
        self._url = f"http://{uuid4().hex}.fake.invalid"
        self._roads = Roads(_KEY, known)
        self._guards: list[Guard] = []
        self._latency = 0.0
        self._away: tuple[int | None] | None = None
        for permitted in permissions:
            self._set(permitted.action, Rule(permitted))

    def __repr__(self) -> str:
        return f"FakeGateway(actions={sorted(self._roads.checks.rules)!r})"

    def guard(self, agent_id: str | None = None, *, timeout: float | None = None) -> Guard:
        """A guard that asks this gateway, for `agent_id` or the usual agent."""
        guard = Guard(
            self._url,
            self.api_key,
            agent_id or self.agent_id,
            timeout=timeout,
            allow_insecure=True,
            transport=self,
            # A test leaves nothing behind, least of all in the user's own outbox.
            outbox=MEMORY,
        )
        self._guards.append(guard)
        return guard

    @contextmanager
    def replacing(self, guard: Guard) -> Iterator[Guard]:
        """Have `guard`, and whatever it guards, ask this gateway inside the block, as the usual agent.

        Yields:
            The same guard.
        """
        ours = self.guard()
        theirs, guard._runtime = guard._runtime, ours._runtime  # noqa: SLF001 - two guards of ours change places
        try:
            yield guard
        finally:
            guard._runtime = theirs  # noqa: SLF001 - likewise

    def allow(
        self,
        action: str,
        *,
        max_amount: float | Decimal | None = None,
        amount_required: bool | None = None,
    ) -> None:
        """Allow an action from now on, up to an amount if one is given.

        Raises:
            ConfigurationError: The action or the amount can be none.
        """
        self._set(action, Rule(_limited(action, max_amount, amount_required, held=False)))

    def hold(
        self,
        action: str,
        *,
        then: Then | None = None,
        max_amount: float | Decimal | None = None,
        amount_required: bool | None = None,
    ) -> None:
        """Hold an action from now on until a person decides.

        Args:
            action: The action.
            then: What comes of it by itself: `approved` or `denied` at once, or `ignored`: nobody ever decides,
                and who waits finds the time gone. Without it the test decides, by `approve` and `deny`.
            max_amount: As for `allow`.
            amount_required: As for `allow`.

        Raises:
            ConfigurationError: The action or the amount can be none.
        """
        if then not in {None, "approved", "denied", "ignored"}:
            raise ConfigurationError(f"then is {then!r}; use 'approved', 'denied', 'ignored' or None")
        permitted = _limited(action, max_amount, amount_required, held=True)
        self._set(action, Rule(permitted, then=then))

    def block(self, action: str, reason: str | None = None) -> None:
        """Refuse an action from now on, with the real gateway's reason or the test's own; what waits is cancelled.

        Raises:
            ConfigurationError: The action can be none.
        """
        read_limits(action, None, held=False)
        with self._roads.lock:
            self._roads.ledger.cancel(lambda asked: asked.action == action)
            self._set(action, Rule(None, reason))

    def switch_off(self, agent_id: str | None = None) -> None:
        """Make an agent, or the usual one, inactive; what it waits for is cancelled."""
        agent_id = agent_id or self.agent_id
        with self._roads.lock:
            self._roads.checks.switched_off.add(agent_id)
            self._roads.ledger.cancel(lambda asked: asked.agent_id == agent_id)

    def switch_on(self, agent_id: str | None = None) -> None:
        """Make an agent, or the usual one, active again."""
        with self._roads.lock:
            self._roads.checks.switched_off.discard(agent_id or self.agent_id)

    def pending(self) -> list[ApprovalRequest]:
        """The requests that wait for a decision, the oldest first."""
        with self._roads.lock:
            return [
                ApprovalRequest(asked.approval_id, asked.action, asked.agent_id, asked.context, asked.reason)
                for asked in self._roads.ledger.pending()
            ]

    def approve(
        self,
        approval_id: str | None = None,
        *,
        note: str | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Approve a request as a person would: the same call passes once.

        Args:
            approval_id: The request; default the only one that waits.
            note: What is told beside the decision.
            context: The whole context as it may happen instead.

        Raises:
            ConfigurationError: The request is unknown or no longer pending, or the context cannot be.
        """
        with self._deciding(approval_id) as asked:
            approved = asked if context is None else self._edited(asked, context)
            self._roads.ledger.approve(approved, note)

    def deny(self, approval_id: str | None = None, *, note: str | None = None) -> None:
        """Refuse a request as a person would; `block` is the gateway's own no.

        Args:
            approval_id: The request; default the only one that waits.
            note: The reason, told to whoever asked.

        Raises:
            ConfigurationError: The request is unknown or no longer pending.
        """
        with self._deciding(approval_id) as asked:
            self._roads.ledger.deny(asked, note)

    @contextmanager
    def outage(self, status: int | None = None) -> Iterator[None]:
        """Response nothing inside the block; when it ends enough time has passed for every guard to ask again.

        Args:
            status: What a proxy answers in the gateway's place, such as 503; default nobody answers.
        """
        before, self._away = self._away, (status,)
        try:
            yield
        finally:
            self._away = before
            self.advance(_RECOVERY)

    @contextmanager
    def latency(self, seconds: float) -> Iterator[None]:
        """Take `seconds` for each answer inside the block, by the gateway's clock.

        Where that is longer than a guard waits, the gateway has done its work and the answer is lost. When it
        ends enough time has passed for every guard to ask again.
        """
        before, self._latency = self._latency, seconds
        try:
            yield
        finally:
            self._latency = before
            self.advance(_RECOVERY)

    def advance(self, seconds: float) -> None:
        """Let time pass by the gateway's clock: requests run out, denials are forgotten."""
        with self._roads.lock:
            self._roads.clock.leap(seconds)
            self._roads.ledger.tell_all()

    @property
    def checks(self) -> list[Checked]:
        """The checks it answered, in order."""
        with self._roads.lock:
            return list(self._roads.seen)

    @property
    def entries(self) -> list[Logged]:
        """The log entries it took, in order; what its guards still hold is delivered first."""
        for guard in self._guards:
            guard.flush(_TO_FLUSH)
        with self._roads.lock:
            return list(self._roads.logbook.entries)

    def send(self, request: Request, seconds: float) -> Response:
        """Response a request of a guard's."""
        waited = self._begin(request)
        if waited is not None:
            changed = threading.Event()
            end = self._roads.ledger.watch(waited[0], changed.set)
            try:
                if self._roads.waits_for(request) is not None:
                    changed.wait(waited[1])
            finally:
                end()
        return self._finish(request, seconds)

    async def asend(self, request: Request, seconds: float) -> Response:
        """As `send`; other tasks of the loop go on meanwhile."""
        waited = self._begin(request)
        if waited is not None:
            changed, loop = asyncio.Event(), asyncio.get_running_loop()
            end = self._roads.ledger.watch(waited[0], partial(_from_any_thread, loop, changed))
            try:
                if self._roads.waits_for(request) is not None:
                    async with asyncio.timeout(waited[1]):
                        await changed.wait()
            except TimeoutError:
                pass
            finally:
                end()
        return self._finish(request, seconds)

    def clock(self) -> float:
        """Monotonic seconds, which leap."""
        return self._roads.clock.now()

    def sleep(self, seconds: float) -> None:
        """Let `seconds` have passed."""
        self._roads.clock.leap(seconds)

    async def asleep(self, seconds: float) -> None:
        """As `sleep`; other tasks have a turn."""
        self._roads.clock.leap(seconds)
        await asyncio.sleep(0)

    def _begin(self, request: Request) -> tuple[str, int] | None:
        waited = None if self._away else self._roads.waits_for(request)
        if waited is None:
            return None
        with self._roads.lock:
            if self._roads.ledger.find(waited[0]).then != "ignored":
                return waited
            self._roads.clock.leap(waited[1])
        return None

    def _finish(self, request: Request, seconds: float) -> Response:
        if self._away is not None:
            (status,) = self._away
            if status is None:
                raise TransportError("the fake gateway is away", answered=False, reached=False)
            return Response(status, {"content-type": "text/html"}, b"<html>the gateway is away</html>")
        answer = self._roads.answer(request)
        if self._latency:
            self._roads.clock.leap(min(self._latency, seconds))
            if self._latency >= seconds:
                raise TransportError(f"no answer within {seconds:.1f} s", answered=False)
        return answer

    def _set(self, action: str, rule: Rule) -> None:
        with self._roads.lock:
            before = self._roads.checks.rules.pop(action, None)
            if before is not None and before.permitted is not None and rule.permitted is not None:
                # A permission that is changed is the same one: what waits for it goes on waiting.
                rule = Rule(rule.permitted, rule.reason, rule.then, before.permission_id)
            self._roads.checks.rules[action] = rule

    @contextmanager
    def _deciding(self, approval_id: str | None) -> Iterator[Asked]:
        with self._roads.lock:
            try:
                yield self._roads.ledger.find(self._only() if approval_id is None else approval_id)
            except Refusal as refusal:
                raise ConfigurationError(f"approval {approval_id!r}: {refusal.detail}") from None

    def _only(self) -> str:
        pending = self._roads.ledger.pending()
        if len(pending) != 1:
            raise ConfigurationError(f"{len(pending)} requests wait for a decision; name one of pending()")
        return pending[0].approval_id

    def _edited(self, asked: Asked, context: Mapping[str, Any]) -> Asked:
        # As it would come over the wire.
        read: dict[str, Any] = loads(dumps(dict(context)), exactly=True)
        rule = self._roads.checks.rules.get(asked.action)
        return self._roads.ledger.edited(asked, read, rule.permitted if rule else None)


def _from_any_thread(loop: asyncio.AbstractEventLoop, changed: asyncio.Event) -> None:
    loop.call_soon_threadsafe(changed.set)


def _limited(
    action: str,
    max_amount: float | Decimal | None,
    amount_required: bool | None,  # noqa: FBT001 - handed on by name
    *,
    held: bool,
) -> Permitted:
    limits: dict[str, Any] = {"max_amount": max_amount}
    if amount_required is not None:
        limits["amount_required"] = amount_required
    return read_limits(action, limits, held=held)
