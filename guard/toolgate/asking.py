"""What a guard asks and tells of itself, besides the calls it guards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, get_args

from toolgate._capture.context import Captured, Rules, capture, copy_context
from toolgate._capture.facts import clip, describe_error, with_facts
from toolgate._capture.jsontext import Json
from toolgate._outbox.entries import Entry, new_entry
from toolgate.action_name import valid_action
from toolgate.errors import ConfigurationError, GatewayProtocolError
from toolgate.held import LONGEST_CHAIN
from toolgate.identity import identify, valid_approval_id, valid_id
from toolgate.naming import in_run
from toolgate.stated_reason import current_reason, sendable_reason
from toolgate.steps import Approval, Check, LogStatus, Record
from toolgate.telling import entry_of, tell_decision

if TYPE_CHECKING:
    from toolgate.decision import Decision
    from toolgate.runtime import Runtime

__all__ = ["Asking"]


class Asking:
    """The operations of the gateway that run nothing."""

    _runtime: Runtime

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
        """Ask whether an action is allowed, and run nothing.

        An approved request is used up by the check that passes (decisions §5).

        Args:
            action: The action identifier.
            context: What the gateway compares and an approver reads.
            agent_id: The agent that acts; wins over `acting_as`.
            approval_id: Pass only by this approval.
            call_id: The call it is about, as `calling` names it.
            reason: Why the agent makes the call, for the approver to read; default that of `toolgate.reason`.
            dry_run: Only look: no request is made and no approval used up.

        Raises:
            GatewayUnavailable: No gateway answered within the deadline.
            GatewayProtocolError: Something answered that decides nothing.
            ConfigurationError: If an argument or setting is wrong, or the gateway refuses the API key.
        """
        check = self._check(action, context, agent_id, approval_id, call_id, reason=reason, dry_run=dry_run)
        return tell_decision(check, self._runtime.client().check(check))

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
        """As `check`."""
        check = self._check(action, context, agent_id, approval_id, call_id, reason=reason, dry_run=dry_run)
        return tell_decision(check, await self._runtime.async_client().check(check))

    def approval(self, approval_id: str, *, newest: bool = False) -> Approval:
        """What has become of an approval request (decisions §5).

        Args:
            approval_id: The approval, from `ApprovalPending.approval_id`.
            newest: Of the one that stands for it after all edits.

        Raises:
            GatewayUnavailable: No gateway answered within the deadline.
            GatewayProtocolError: Something answered that is no approval.
            ConfigurationError: If the gateway does not know the approval or refuses the API key.
        """
        client, seen = self._runtime.client(), {approval_id}
        with _known(approval_id):
            approval = client.approval(approval_id, 0)
            while newest and (successor := _successor(approval, seen)):
                approval = client.approval(successor, 0)
        return approval

    async def aapproval(self, approval_id: str, *, newest: bool = False) -> Approval:
        """As `approval`."""
        client, seen = self._runtime.async_client(), {approval_id}
        with _known(approval_id):
            approval = await client.approval(approval_id, 0)
            while newest and (successor := _successor(approval, seen)):
                approval = await client.approval(successor, 0)
        return approval

    def cancel(self, approval_id: str, *, rejected: bool = False) -> Approval:
        """Withdraw an approval request, decided or not: what has not been carried out will not be by it.

        Args:
            approval_id: The approval, from `ApprovalPending.approval_id`.
            rejected: A user rejected the call in the agent's framework: checks with its call id stay denied, also
                where an earlier state of the run is resumed.

        Returns:
            What has become of it: `cancelled`, or what it had come to before, such as `consumed`.

        Raises:
            GatewayUnavailable: No gateway answered within the deadline.
            GatewayProtocolError: Something answered that is no approval.
            ConfigurationError: If the gateway does not know the approval or refuses the API key.
        """
        client, seconds = self._runtime.client(), self._runtime.settings.timeout
        with _known(approval_id):
            try:
                return client.cancel(approval_id, seconds, rejected=rejected)
            except GatewayProtocolError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
            return client.approval(approval_id, 0)

    async def acancel(self, approval_id: str, *, rejected: bool = False) -> Approval:
        """As `cancel`."""
        client, seconds = self._runtime.async_client(), self._runtime.settings.timeout
        with _known(approval_id):
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
        """Record what happened, now, and return the log entry; unlike a guarded call this reports failure.

        Args:
            action: The action identifier.
            status: `success`, `failed`, `pending` or `denied` (spec §2).
            context: Details to keep.
            agent_id: The agent that acted; wins over `acting_as`.
            approval_id: The approval request it belongs to.
            decision_id: The decision it belongs to.
            ip_address: Where it came from; default the address the gateway sees.
            idempotency_key: The same key makes one log entry within 24 hours; default a new one.

        Raises:
            GatewayUnavailable: No gateway answered within the deadline.
            GatewayProtocolError: The gateway refuses the entry; `status` says how.
            ConfigurationError: If an argument or setting is wrong, or the gateway refuses the API key.
        """
        details = {"approval_id": approval_id, "decision_id": decision_id, "ip_address": ip_address}
        entry = self._entry(action, status, context, agent_id, idempotency_key, details)
        return self._runtime.client().log(entry)

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
        """As `log`."""
        details = {"approval_id": approval_id, "decision_id": decision_id, "ip_address": ip_address}
        entry = self._entry(action, status, context, agent_id, idempotency_key, details)
        return await self._runtime.async_client().log(entry)

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
        """Record what happened as guarded calls do: written down, sent behind the caller's back; never fails for that.

        Args:
            action: The action identifier.
            status: `success`, `failed`, `pending` or `denied` (spec §2).
            context: Details to keep.
            agent_id: The agent that acted; wins over `acting_as`.
            approval_id: The approval request it belongs to.
            decision_id: The decision it belongs to.
            call_id: The call it is about, as `calling` names it: held or refused again it is the same log entry.
            reason: Why it was held or refused; stands beside a detail of that name, never in its place.
            error: What the tool raised; it is told without what is hidden in the details.
            facts: More to be said, such as `duration_ms`; it stands beside details, as `reason` does.

        Raises:
            ConfigurationError: If an argument is wrong.
        """
        _valid_status(status)
        check = self._check(action, context, agent_id, approval_id, call_id)
        told: dict[str, Json] = {} if reason is None else {"reason": clip(reason)}
        if error is not None:
            captured = self._capture(context)
            told["error"] = describe_error(error, captured.hidden, captured.patterns)
        step = Record(
            check.action,
            check.who,
            status,
            with_facts(check.context, {**told, **(facts or {})}),
            approval_id,
            decision_id,
            reason=reason,
        )
        self._runtime.recorder.record(entry_of(step))

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
        who = in_run(identify(explicit, self._runtime.ensure_open().settings.agent_id))
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
        return capture(given, Rules(), self._runtime.hider)


def _successor(approval: Approval, seen: set[str]) -> str | None:
    """The approval that took another's place."""
    if approval.status != "replaced" or approval.replaced_by is None:
        return None
    if approval.replaced_by in seen or len(seen) >= LONGEST_CHAIN:
        raise GatewayProtocolError(
            f"the approval request {approval.approval_id!r} was replaced by another without end"
        )
    seen.add(approval.replaced_by)
    return approval.replaced_by


def _valid_status(status: object) -> None:
    if status not in get_args(LogStatus):
        raise ConfigurationError(f"status is {status!r}; use one of {', '.join(get_args(LogStatus))}")


@contextmanager
def _known(approval_id: str) -> Iterator[None]:
    valid_approval_id(approval_id)
    try:
        yield
    except GatewayProtocolError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise ConfigurationError(
            f"approval {approval_id!r} is not known to the gateway, or not this key's; "
            "pass the approval_id of an ApprovalPending of this agent"
        ) from error
