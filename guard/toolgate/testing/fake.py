"""Fake gateway in memory for tests of agents."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any, Final, Unpack
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from toolgate._capture.jsontext import dumps, exact, loads
from toolgate._guard import Guard
from toolgate._http.exchange import InProcessGateway, Request, Response, TransportError
from toolgate._models import ApprovalRequest
from toolgate._options import Actions, Limits, read_limits, read_permissions
from toolgate._settings import MEMORY
from toolgate.errors import ConfigurationError
from toolgate.testing.budgets import AtLimit, read_budget
from toolgate.testing.decisions import DecisionEngine
from toolgate.testing.records import Checked, Logged, Records
from toolgate.testing.rules import (
    Effect,
    Rule,
    StoredApproval,
    Then,
    When,
    find_amount_violation,
    read_freeze,
    read_rule,
)

__all__ = ["ApprovalRequest", "Checked", "FakeGateway", "Logged"]

_HEADERS: Final = {"content-type": "application/json", "x-api-version": "2026-11-20"}
_LONGEST_BREAKER_PAUSE: Final = 30.0  # longest pause of an open circuit breaker, in seconds
_FLUSH_TIMEOUT: Final = 5.0  # time limit of a flush, in seconds


class FakeGateway(InProcessGateway, DecisionEngine, Records):
    """Gateway in memory for tests. It decides as the test specifies, and records all checks and log entries.

    It denies every action that the test has not allowed. Its rules apply to all agents. It has its own clock: instead
    of sleeping, a guard sets this clock forward, so that an outage takes no time in a test. Permissions, amounts and
    approvals have the same rules as in the real gateway. Other features of the real gateway are missing: test them with
    `Guard.embedded(":memory:", …)`.

    Args:
        allow: Actions that are allowed: names, or names with limits like `{"refund": {"max_amount": 100}}`.
        require_approval: Actions that require approval, in the same form.

    Attributes:
        api_key: The API key that the fake gateway accepts, and that its guards use.
        agent_id: Id of the agent whose calls the guards make, unless `guard` is called with another id.
    """

    def __init__(self, allow: Actions = (), require_approval: Actions = ()) -> None:
        super().__init__(read_permissions(allow, require_approval))
        self.api_key = "ak_" + "0fake" * 7 + "00"
        self.agent_id = "test-agent"
        # Denied actions are stored per gateway address. With one shared address, a denial would affect other tests.
        self._url = f"http://{uuid4().hex}.fake.invalid"
        self._lock = threading.RLock()
        self._jumped = 0.0
        self._outage: tuple[int | None] | None = None
        self._checks: list[Checked] = []
        self._entries: list[Logged] = []
        self._entries_by_key: dict[str, dict[str, Any]] = {}
        self._guards: list[Guard] = []

    def guard(self, agent_id: str | None = None, *, timeout: float | None = None) -> Guard:
        """Return a new guard that is connected to this gateway; its agent is `agent_id`, by default `self.agent_id`."""
        guard = Guard(
            self._url,
            self.api_key,
            agent_id or self.agent_id,
            timeout=timeout,
            allow_insecure=True,
            transport=self,
            # Log entries of tests are kept in memory, so that they do not get into the user's outbox.
            outbox=MEMORY,
        )
        self._guards.append(guard)
        return guard

    @contextmanager
    def replacing(self, guard: Guard) -> Iterator[Guard]:
        """Connect `guard`, and all functions that it guards, to this gateway inside the `with` block."""
        fake_guard = self.guard()
        replaced, guard._guard_state = guard._guard_state, fake_guard._guard_state  # noqa: SLF001 - of this package
        try:
            yield guard
        finally:
            guard._guard_state = replaced  # noqa: SLF001 - the attribute is internal to this package

    def allow(self, action: str, **limits: Unpack[Limits]) -> None:
        """Allow an action from now on.

        Args:
            action: Action of the call, such as `stripe.refund`.
            limits: `max_amount` is the highest amount that is allowed; `amount_required=False` also allows calls
                without an amount.
        """
        self._rules[action] = Rule(read_limits(action, limits, held=False))

    def require_approval(self, action: str, *, then: Then | None = None, **limits: Unpack[Limits]) -> None:
        """Require approval for an action from now on.

        Args:
            action: Action of the call, such as `stripe.refund`.
            limits: Limits of the amount, as for `allow`.
            then: `approved` or `denied`: the gateway decides each request in this way at once. `ignored`: requests stay
                pending, and a call that waits for an approval reaches its time limit at once. None: the test decides
                with `approve` and `deny`.
        """
        if then not in {None, "approved", "denied", "ignored"}:
            raise ConfigurationError(f"Invalid then {then!r}: expected 'approved', 'denied' or 'ignored'")
        self._rules[action] = Rule(read_limits(action, limits, held=True), then=then)

    def block(self, action: str, reason: str | None = None) -> None:
        """Deny an action from now on, and cancel its approval requests.

        Args:
            action: Action of the call, such as `stripe.refund`.
            reason: Reason that the decision contains; by default the text that the real gateway uses.
        """
        read_limits(action, None, held=False)
        with self._lock:
            self._rules[action] = Rule(None, reason)
            for approval in self._approvals.values():
                if approval.check["action"] == action and self._status(approval) in {"pending", "approved"}:
                    approval.change("cancelled")

    def freeze(self, action: str | None = None, *, reason: str = "frozen by a test") -> None:
        """Deny all calls of an action until `unfreeze`, whatever its rule is; approval requests stay as they are.

        Args:
            action: Action of the calls, or a prefix and `*`, such as `stripe.*`; None freezes all actions.
            reason: Reason that the decision contains.

        Raises:
            ConfigurationError: If the action or the reason is invalid.
        """
        freeze = read_freeze(action, reason)
        with self._lock:
            self._freezes.append(freeze)

    def unfreeze(self) -> None:
        """Lift all freezes, so that the rules of the actions decide again."""
        with self._lock:
            self._freezes.clear()

    def rule(
        self,
        effect: Effect,
        actions: str | Iterable[str] = "*",
        *,
        when: When | None = None,
        name: str = "rule of a test",
    ) -> str:
        """Forbid calls, require approval for them, or allow them from now on, and return the id of this rule.

        Args:
            effect: `forbid`, `require_approval` or `allow`.
            actions: Actions of the calls, or prefixes and `*`, such as `stripe.*`.
            when: Function of the arguments that returns True if the rule applies, in place of a CEL expression, which
                the fake does not evaluate. If an argument is missing, the rule applies unless it allows calls.
            name: Name of the rule, which the reason of a decision contains.

        Raises:
            ConfigurationError: If a value is invalid.
        """
        rule = read_rule(effect, actions, when, name)
        with self._lock:
            self._conditional_rules.append(rule)
        return rule.rule_id

    def budget(
        self,
        limit: float | Decimal,
        *actions: str,
        measure: str = "count",
        at_limit: AtLimit = "deny",
        name: str = "budget of a test",
    ) -> None:
        """Limit the number of calls, or the sum of an argument, from now on.

        An allowed check reserves the amount of its call. A log entry with the status `failed` or `denied` releases it.
        A budget has one total for all agents and runs, which never starts again: windows, scopes and currencies are not
        supported.

        Args:
            limit: Maximum of the number or the sum, compared exactly.
            actions: Actions of the calls, or prefixes and `*`, such as `stripe.*`; by default all.
            measure: `count`, or `sum(args.NAME)` for the sum of an argument, such as `sum(args.amount)`.
            at_limit: Effect on a call that would exceed the limit: `deny` or `require_approval`.
            name: Name of the budget, which the reason of a decision contains.

        Raises:
            ConfigurationError: If a value is invalid.
        """
        budget = read_budget(limit, actions, measure, at_limit, name)
        with self._lock:
            self._budgets.add(budget)

    def pending(self) -> list[ApprovalRequest]:
        """Return the pending approval requests, oldest first."""
        with self._lock:
            return [
                ApprovalRequest(
                    each.approval_id,
                    each.check["action"],
                    each.check["agent_id"],
                    each.context,
                    each.check.get("reason"),
                )
                for each in self._approvals.values()
                if self._status(each) == "pending"
            ]

    def approve(
        self,
        approval_id: str | None = None,
        *,
        note: str | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Approve an approval request, so that the call is allowed once when it is repeated.

        Args:
            approval_id: Id of the request; by default, the only pending request is approved.
            note: Text that the agent receives.
            context: All arguments of the call as the approver edited them; None approves the requested arguments.

        Raises:
            ConfigurationError: If the request is unknown or no longer pending, or the context exceeds a limit.
        """
        with self._lock:
            approval = self._find_pending(approval_id)
            # The context is converted to JSON and back, because the real gateway receives it as JSON over HTTP.
            edited: Any = None if context is None else loads(dumps(dict(context)), exactly=True)
            if edited is None or exact(edited) == exact(approval.context):
                return approval.change("approved", note)
            rule = self._rules.get(approval.check["action"], Rule(None))
            if rule.permitted and (found := find_amount_violation(rule.permitted, edited)):
                raise ConfigurationError(f"Invalid edit of approval {approval.approval_id!r}: {found.reason}")
            successor = StoredApproval({**approval.check, "context": edited}, approval.expires_at)
            if any(
                self._status(each) == "pending" and each.equals(successor)
                for each in self._approvals.values()
            ):
                raise ConfigurationError(
                    "An equal request is already pending, so the edit is not applied; decide that request "
                    "instead"
                )
            successor.status, successor.note, successor.approved_context = "approved", note, edited
            self._approvals[successor.approval_id] = successor
            approval.replaced_by, approval.approved_context = successor.approval_id, edited
            return approval.change("replaced")

    def deny(self, approval_id: str | None = None, *, note: str | None = None) -> None:
        """Reject an approval request, by default the only pending one; the agent receives `note`.

        Raises:
            ConfigurationError: If the request is unknown or no longer pending.
        """
        with self._lock:
            self._find_pending(approval_id).change("denied", note)

    @contextmanager
    def outage(self, status: int | None = None) -> Iterator[None]:
        """Make the gateway unavailable inside the `with` block.

        Each request fails without a response, or, if `status` is given, receives a response with this HTTP status.
        """
        before, self._outage = self._outage, (status,)
        try:
            yield
        finally:
            self._outage = before
            self.sleep(_LONGEST_BREAKER_PAUSE)

    @property
    def checks(self) -> list[Checked]:
        """The checks that the gateway received, in order."""
        with self._lock:
            return list(self._checks)

    @property
    def entries(self) -> list[Logged]:
        """The log entries that the gateway received, in order. Guards first send entries that are still queued."""
        for guard in self._guards:
            guard.flush(_FLUSH_TIMEOUT)
        with self._lock:
            return list(self._entries)

    def send(self, request: Request, seconds: float) -> Response:
        """Return the response to a request of a guard."""
        if (waiter := self._waiter(request)) is not None:
            with suppress(TimeoutError):
                waiter.result(seconds)
        return self._respond(request)

    async def asend(self, request: Request, seconds: float) -> Response:
        """Asynchronous form of `send`."""
        if (waiter := self._waiter(request)) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asyncio.wrap_future(waiter)
        return self._respond(request)

    def clock(self) -> float:
        """Return the time of the gateway's own clock, in monotonic seconds."""
        return time.monotonic() + self._jumped

    def sleep(self, seconds: float) -> None:
        """Advance the gateway's clock by `seconds` instead of sleeping."""
        with self._lock:
            self._jumped += max(0.0, seconds)

    async def asleep(self, seconds: float) -> None:
        """Advance the gateway's clock by `seconds` instead of sleeping, and let other tasks run."""
        self.sleep(seconds)
        await asyncio.sleep(0)

    def _waiter(self, request: Request) -> Future[None] | None:
        """Return a future that ends when the polled approval request changes; None if the gateway responds at once."""
        url = urlsplit(request.url)
        wait = float(parse_qs(url.query).get("wait", ["0"])[0])
        with self._lock:
            approval = self._approvals.get(unquote(url.path.rpartition("/")[2]))
            if self._outage or not wait or approval is None or self._status(approval) != "pending":
                return None
            if approval.is_ignored:
                self.sleep(wait)
                return None
            approval.waiters.append(Future())
            return approval.waiters[-1]

    def _respond(self, request: Request) -> Response:
        if self._outage is not None:
            (status,) = self._outage
            if status is None:
                raise TransportError("the fake gateway is unavailable", answered=False, reached=False)
            return Response(status, {"content-type": "text/html"}, b"<html>unavailable</html>")
        headers = {name.lower(): value for name, value in request.headers.items()}
        if headers.get("x-api-key") != self.api_key:
            return _response({"detail": "Invalid API key"}, 401)
        url = urlsplit(request.url)
        body: Any = loads(request.body, exactly=True) if request.body else {}
        with self._lock:
            match request.method, *url.path.split("/")[1:]:
                case ["POST", "sdk", "check"]:
                    return self._check(body)
                case ["POST", "sdk", "log"]:
                    return _response(self._log(body, headers.get("idempotency-key")))
                case ["POST", "sdk", "logs"]:
                    entries = [self._log(each, each.get("idempotency_key")) for each in body["entries"]]
                    return _response({"results": [{"status": 200, "entry": each} for each in entries]})
                case ["GET" | "POST", "sdk", "approvals", approval_id, *cancel]:
                    approval = self._approvals.get(unquote(approval_id))
                    if approval is None:
                        return _response({"detail": "Approval not found"}, 404)
                    return self._cancel(approval, url.query) if cancel else self._show(approval)
        return _response({"detail": "Not Found"}, 404)

    def _check(self, body: dict[str, Any]) -> Response:
        decision = self._decide(body)
        self._checks.append(
            Checked(
                body["action"],
                body["agent_id"],
                body.get("context") or {},
                decision.outcome,
                decision.reason,
                decision.approval_id or body.get("approval_id"),
                body.get("run_id"),
                body.get("dry_run", False),
                body.get("reason"),
            )
        )
        content = {
            "allowed": decision.outcome == "allowed",
            "requires_approval": decision.outcome == "held",
            "reason": decision.reason,
            "approval_id": decision.approval_id,
        }
        headers = {"x-decision-id": str(uuid4()), "x-reason-code": decision.code, **decision.headers}
        if decision.outcome == "allowed":
            left = self._budgets.reserve(body, headers["x-decision-id"])
            if left is not None:
                headers["x-budget-left"] = left
        return _response(content, headers=headers)

    def _log(self, body: dict[str, Any], key: str | None) -> dict[str, Any]:
        if key is not None and key in self._entries_by_key:
            return self._entries_by_key[key]
        self._budgets.settle(body)
        self._entries.append(
            Logged(
                body["action"],
                body["agent_id"],
                body["status"],
                body.get("context") or {},
                body.get("approval_id"),
                body.get("run_id"),
            )
        )
        shown = {name: body.get(name) for name in ("agent_id", "action", "status", "context")}
        entry_id = str(uuid4())
        self._entries_by_key[key or entry_id] = shown | {"id": entry_id}
        return self._entries_by_key[key or entry_id]

    def _cancel(self, approval: StoredApproval, query: str) -> Response:
        if (status := self._status(approval)) not in {"pending", "approved"}:
            return _response({"detail": f"Approval is no longer open: it is {status}"}, 409)
        approval.is_rejected = "rejected=true" in query
        approval.change("cancelled")
        return self._show(approval)

    def _show(self, approval: StoredApproval) -> Response:
        content = {
            **{name: approval.check.get(name) for name in ("agent_id", "action", "run_id", "call_id")},
            **{
                name: getattr(approval, name)
                for name in ("context", "note", "replaced_by", "approved_context")
            },
            "id": approval.approval_id,
            "status": self._status(approval),
        }
        return _response(content)

    def _find_pending(self, approval_id: str | None) -> StoredApproval:
        if approval_id is None:
            pending = self.pending()
            if len(pending) != 1:
                raise ConfigurationError(f"{len(pending)} approval requests are pending; pass the id of one")
            approval_id = pending[0].approval_id
        if (approval := self._approvals.get(approval_id)) is None:
            raise ConfigurationError(f"Approval not found: {approval_id!r}")
        if (status := self._status(approval)) != "pending":
            raise ConfigurationError(f"Approval {approval_id!r} is no longer pending: it is {status}")
        return approval


def _response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, {**_HEADERS, **(headers or {})}, dumps(content).encode())
