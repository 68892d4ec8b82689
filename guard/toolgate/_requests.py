"""Requests of a guard that run no tool: check, read and withdraw approvals, log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, get_args

from toolgate._approval_flow import MAX_EDITS, unknown_approval
from toolgate._call import log_entry
from toolgate._capture.context import Captured, Rules, capture, copy_context
from toolgate._capture.facts import clip, describe_error
from toolgate._capture.jsontext import Json
from toolgate._identity import (
    current_reason,
    identify,
    sendable_reason,
    valid_approval_id,
    valid_id,
    with_current_run,
)
from toolgate._logging import log_event
from toolgate._models import Approval, Check, LogStatus
from toolgate._options import valid_action
from toolgate._outbox.entries import Entry, new_entry
from toolgate.errors import ConfigurationError, GatewayProtocolError

if TYPE_CHECKING:
    from toolgate._models import Decision
    from toolgate._state import GuardState

__all__ = ["GatewayRequests"]


class GatewayRequests:
    """Methods of `Guard` that send one request and run no tool."""

    _guard_state: GuardState

    def check(
        self,
        action: str,
        context: Mapping[str, object] | None = None,
        *,
        agent_id: str | None = None,
        approval_id: str | None = None,
        call_id: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Decision:
        """Return the gateway's decision about an action, and run nothing.

        A check that is allowed by an approval consumes it.

            decision = guard.check("stripe.refund", {"amount": 20}, dry_run=True)

        Args:
            action: The action.
            context: The arguments, which the gateway compares and an approver reads.
            agent_id: The agent; wins over `acting_as`.
            approval_id: The approval that must cover the call; default any.
            call_id: The id of the call, as for `tool_call`.
            reason: Why the agent makes the call, for the approver to read; default that of `toolgate.reason`.
            dry_run: Create no approval request and consume no approval.

        Raises:
            GatewayUnavailable: No gateway responded within the deadline.
            GatewayProtocolError: The response contains no valid decision.
            ConfigurationError: If an argument or setting is wrong, or the gateway rejects the API key.
        """
        check = self._check(action, context, agent_id, approval_id, call_id, reason=reason, dry_run=dry_run)
        return _logged(check, self._guard_state.client().check(check))

    async def acheck(
        self,
        action: str,
        context: Mapping[str, object] | None = None,
        *,
        agent_id: str | None = None,
        approval_id: str | None = None,
        call_id: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Decision:
        """Return the gateway's decision; asynchronous form of `check`."""
        check = self._check(action, context, agent_id, approval_id, call_id, reason=reason, dry_run=dry_run)
        return _logged(check, await self._guard_state.async_client().check(check))

    def approval(self, approval_id: str, *, newest: bool = False) -> Approval:
        """Return the state of an approval request.

        Args:
            approval_id: The approval request, from `ApprovalPending.approval_id`.
            newest: Follow the approvers' edits to the last request.

        Raises:
            GatewayUnavailable: No gateway responded within the deadline.
            GatewayProtocolError: The response contains no approval.
            ConfigurationError: If the gateway does not know the approval or rejects the API key.
        """
        client, seen = self._guard_state.client(), {approval_id}
        with _unknown_is_configuration_error(approval_id):
            approval = client.approval(approval_id, 0)
            while newest and (successor := _successor(approval, seen)):
                approval = client.approval(successor, 0)
        return approval

    async def aapproval(self, approval_id: str, *, newest: bool = False) -> Approval:
        """Return the state of an approval request; asynchronous form of `approval`."""
        client, seen = self._guard_state.async_client(), {approval_id}
        with _unknown_is_configuration_error(approval_id):
            approval = await client.approval(approval_id, 0)
            while newest and (successor := _successor(approval, seen)):
                approval = await client.approval(successor, 0)
        return approval

    def cancel(self, approval_id: str, *, rejected: bool = False) -> Approval:
        """Withdraw an approval request, decided or not: no call can use it afterwards.

        Args:
            approval_id: The approval request, from `ApprovalPending.approval_id`.
            rejected: A user rejected the call in the agent's framework: checks with its call id stay denied, also
                when an earlier state of the run is resumed.

        Returns:
            Its state: `cancelled`, or an earlier final state such as `consumed`.

        Raises:
            GatewayUnavailable: No gateway responded within the deadline.
            GatewayProtocolError: The response contains no approval.
            ConfigurationError: If the gateway does not know the approval or rejects the API key.
        """
        client, seconds = self._guard_state.client(), self._guard_state.settings.timeout
        with _unknown_is_configuration_error(approval_id):
            try:
                return client.cancel(approval_id, seconds, rejected=rejected)
            except GatewayProtocolError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
            return client.approval(approval_id, 0)

    async def acancel(self, approval_id: str, *, rejected: bool = False) -> Approval:
        """Withdraw an approval request; asynchronous form of `cancel`."""
        client, seconds = self._guard_state.async_client(), self._guard_state.settings.timeout
        with _unknown_is_configuration_error(approval_id):
            try:
                return await client.cancel(approval_id, seconds, rejected=rejected)
            except GatewayProtocolError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
            return await client.approval(approval_id, 0)

    def log(
        self,
        action: str,
        status: LogStatus,
        context: Mapping[str, object] | None = None,
        *,
        agent_id: str | None = None,
        approval_id: str | None = None,
        decision_id: str | None = None,
        ip_address: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Send a log entry now and return it; unlike a guarded call this raises if that fails.

        Args:
            action: The action.
            status: `success`, `failed`, `pending` or `denied`.
            context: Details to store.
            agent_id: The agent; wins over `acting_as`.
            approval_id: The approval request it belongs to.
            decision_id: The decision it belongs to.
            ip_address: Address of the caller; default the address that the gateway sees.
            idempotency_key: The same key creates one log entry within 24 hours; default a new one.

        Raises:
            GatewayUnavailable: No gateway responded within the deadline.
            GatewayProtocolError: The gateway rejects the entry; `status` is the HTTP status.
            ConfigurationError: If an argument or setting is wrong, or the gateway rejects the API key.
        """
        details = {"approval_id": approval_id, "decision_id": decision_id, "ip_address": ip_address}
        entry = self._entry(action, status, context, agent_id, idempotency_key, details)
        return self._guard_state.client().log(entry)

    async def alog(
        self,
        action: str,
        status: LogStatus,
        context: Mapping[str, object] | None = None,
        *,
        agent_id: str | None = None,
        approval_id: str | None = None,
        decision_id: str | None = None,
        ip_address: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Send a log entry now and return it; asynchronous form of `log`."""
        details = {"approval_id": approval_id, "decision_id": decision_id, "ip_address": ip_address}
        entry = self._entry(action, status, context, agent_id, idempotency_key, details)
        return await self._guard_state.async_client().log(entry)

    def record(
        self,
        action: str,
        status: LogStatus,
        context: Mapping[str, object] | None = None,
        *,
        agent_id: str | None = None,
        approval_id: str | None = None,
        decision_id: str | None = None,
        call_id: str | None = None,
        reason: str | None = None,
        error: BaseException | None = None,
        facts: Mapping[str, Json] | None = None,
    ) -> None:
        """Write a log entry to the outbox, as guarded calls do: it is sent in the background, and never fails for that.

        Args:
            action: The action.
            status: `success`, `failed`, `pending` or `denied`.
            context: Details to store.
            agent_id: The agent; wins over `acting_as`.
            approval_id: The approval request it belongs to.
            decision_id: The decision it belongs to.
            call_id: The id of the call, as for `tool_call`: pending or denied again, it is the same log entry.
            reason: Why it is pending or denied; logged beside a detail of that name, never in its place.
            error: The tool's exception; values that are redacted in the details are redacted in it too.
            facts: Further details, such as `duration_ms`; logged beside the others, as `reason` is.

        Raises:
            ConfigurationError: If an argument is wrong.
        """
        _valid_status(status)
        check = self._check(action, context, agent_id, approval_id, call_id)
        details: dict[str, Json] = {} if reason is None else {"reason": clip(reason)}
        if error is not None:
            captured = self._capture(context)
            details["error"] = describe_error(error, captured.hidden, captured.patterns)
        entry = log_entry(
            check,
            status,
            {**details, **(facts or {})},
            approval_id=approval_id,
            decision_id=decision_id,
            reason=reason,
        )
        self._guard_state.recorder.record(entry)

    def _check(
        self,
        action: str,
        context: Mapping[str, object] | None,
        agent_id: str | None,
        approval_id: str | None,
        call_id: str | None = None,
        *,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Check:
        explicit = None if agent_id is None else valid_id(agent_id, "agent_id")
        who = with_current_run(identify(explicit, self._guard_state.ensure_open().settings.agent_id))
        if call_id is not None:
            who = replace(who, call_id=valid_id(call_id, "call_id"))
        if not isinstance(dry_run, bool):
            raise ConfigurationError(f"dry_run is {dry_run!r}; use True or False")
        return Check(
            valid_action(action),
            who,
            self._capture(context).context,
            approval_id,
            dry_run=dry_run,
            reason=current_reason() if reason is None else sendable_reason(reason),
        )

    def _entry(
        self,
        action: str,
        status: str,
        context: Mapping[str, object] | None,
        agent_id: str | None,
        key: str | None,
        details: Mapping[str, str | None],
    ) -> Entry:
        _valid_status(status)
        check = self._check(action, context, agent_id, None)
        return new_entry(
            action=check.action,
            agent_id=check.who.agent_id,
            status=status,
            context=check.context,
            key=None if key is None else valid_id(key, "idempotency_key"),
            **details,
            run_id=check.who.run_id,
        )

    def _capture(self, context: Mapping[str, object] | None) -> Captured:
        given = {} if context is None else copy_context(context)
        return capture(given, Rules(), self._guard_state.fingerprinter)


def _logged(check: Check, decision: Decision) -> Decision:
    log_event(
        "decision",
        check.action,
        check.who.agent_id,
        decision.outcome,
        reason=decision.reason,
        approval_id=decision.approval_id or check.approval_id,
    )
    return decision


def _successor(approval: Approval, seen: set[str]) -> str | None:
    """Return the id of the request that replaced an edited one, or None."""
    if approval.status != "replaced" or approval.replaced_by is None:
        return None
    if approval.replaced_by in seen or len(seen) >= MAX_EDITS:
        raise GatewayProtocolError(
            f"the approval request {approval.approval_id!r} was replaced by another without end"
        )
    seen.add(approval.replaced_by)
    return approval.replaced_by


def _valid_status(status: object) -> None:
    if status not in get_args(LogStatus):
        raise ConfigurationError(f"status is {status!r}; use one of {', '.join(get_args(LogStatus))}")


@contextmanager
def _unknown_is_configuration_error(approval_id: str) -> Iterator[None]:
    valid_approval_id(approval_id)
    try:
        yield
    except GatewayProtocolError as error:
        unknown = unknown_approval(approval_id, error, "pass")
        if unknown is None:
            raise
        raise unknown from error
