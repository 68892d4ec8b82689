"""Methods of `Guard` that run no tool: `check`, `approval`, `cancel`, `log` and `record`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, get_args

from toolgate._approval_flow import MAX_EDITS, unknown_approval
from toolgate._call import log_entry, new_entry
from toolgate._capture.context import Captured, Rules, capture, clip, copy_context, describe_error
from toolgate._capture.jsontext import Json
from toolgate._identity import (
    current_reason,
    identify,
    sendable_reason,
    valid_approval_id,
    valid_id,
    with_current_run,
)
from toolgate._models import Approval, Check, Entry, LogStatus
from toolgate._options import valid_action
from toolgate._process_state import ensure_not_finalizing
from toolgate._telemetry import log_event
from toolgate.errors import ConfigurationError, GatewayProtocolError

if TYPE_CHECKING:
    from toolgate._models import Decision
    from toolgate._state import GuardState

__all__ = ["GatewayRequests"]


class GatewayRequests:
    """Base class of `Guard` with the methods that run no tool: `check`, `approval`, `cancel`, `log` and `record`."""

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
        """Send a check and return the gateway's decision. No tool is run.

        If an approval allows the call, the check consumes it, unless `dry_run` is set.

            decision = guard.check("stripe.refund", {"amount": 20}, dry_run=True)

        Args:
            action: Action of the call, such as `stripe.refund`.
            context: The arguments, which the gateway compares and an approver reads.
            agent_id: Id of the agent; takes precedence over `acting_as`.
            approval_id: Id of the approval that must cover the call; by default, any matching approval may cover it.
            call_id: The id of the call, as for `tool_call`.
            reason: Why the agent makes the call, for the approver to read; default is the text of `toolgate.reason`.
            dry_run: Pass True to create no approval request and consume no approval.

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
            approval_id: Id of the approval request, from `ApprovalPending.approval_id`.
            newest: Each edit by an approver replaces the request by a new request. If True, return the last of these
                requests. If False, return the request with this id.

        Raises:
            GatewayUnavailable: No gateway responded within the deadline.
            GatewayProtocolError: The response contains no approval.
            ConfigurationError: If the approval request does not exist, or the gateway rejects the API key.
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
        """Withdraw a pending or approved request, so that no call can use it afterwards.

        Args:
            approval_id: Id of the approval request, from `ApprovalPending.approval_id`.
            rejected: Pass True if a user rejected the call in the agent framework. Further checks with its call id are
                then denied, even if the framework resumes the run from an earlier state.

        Returns:
            The approval request, with the status `cancelled` or an earlier final status such as `consumed`.

        Raises:
            GatewayUnavailable: No gateway responded within the deadline.
            GatewayProtocolError: The response contains no approval.
            ConfigurationError: If the approval request does not exist, or the gateway rejects the API key.
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
        """Send a log entry immediately, and return the stored entry. Raise an error if the gateway does not store it.

        Args:
            action: Action of the call, such as `stripe.refund`.
            status: `success`, `failed`, `pending` or `denied`.
            context: Details to store.
            agent_id: Id of the agent; takes precedence over `acting_as`.
            approval_id: Id of the approval request of the call.
            decision_id: Id of the decision about the call.
            ip_address: Address of the caller; default is the address from which the gateway received the request.
            idempotency_key: Entries with the same key within 24 hours are stored once; default is a new key.

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
        """Send a log entry immediately, and return the stored entry; asynchronous form of `log`."""
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
        """Write a log entry to the outbox, as guarded calls do; it is sent in the background.

        If the gateway is unavailable, this method raises no error, and the entry is sent later.

        Args:
            action: Action of the call, such as `stripe.refund`.
            status: `success`, `failed`, `pending` or `denied`.
            context: Details to store.
            agent_id: Id of the agent; takes precedence over `acting_as`.
            approval_id: Id of the approval request of the call.
            decision_id: Id of the decision about the call.
            call_id: The id of the call, as for `tool_call`. If a pending or denied call is repeated with the same id,
                the gateway stores only one entry.
            reason: Why the call is pending or denied. It does not replace a value `reason` that `context` contains.
            error: The tool's exception; values that are redacted in `context` are redacted in its message too.
            facts: Further details of the run, such as `duration_ms`. They do not replace values of the same name in
                `context`.

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
        ensure_not_finalizing()
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
    """Return the id of the request that replaced this request after an edit, or None; add the id to `seen`.

    Raises:
        GatewayProtocolError: The ids form a cycle, or there are more than `MAX_EDITS` edits.
    """
    if approval.status != "replaced" or approval.replaced_by is None:
        return None
    if approval.replaced_by in seen or len(seen) >= MAX_EDITS:
        raise GatewayProtocolError(
            f"the approval request {approval.approval_id!r} is part of a cycle, or of a too long chain, of "
            "approval requests that replace each other"
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
