"""Reading one log entry of a request, alone or among others (spec §4, decisions §6)."""

import hashlib
from collections.abc import Iterable

from toolgate_service.clock import wire
from toolgate_service.hotpath.standing import Standing
from toolgate_service.logs.entries import NewEntry
from toolgate_service.logs.models import STATUSES
from toolgate_service.plans import UNLIMITED, Plan
from toolgate_service.storage.base import TEST
from toolgate_service.web.sdk_fields import SdkFields
from toolgate_service.webhooks.kinds import FEATURE


def read_entry(
    fields: SdkFields,
    standing: Standing,
    plan: Plan,
    peer: str | None,
    key: str | None,
    *,
    test_log_bytes: int,
) -> NewEntry:
    """Return the entry that is described.

    Args:
        fields: its members.
        standing: whose key was sent.
        plan: the organization's.
        peer: the address that the request came from.
        key: the idempotency key.
        test_log_bytes: how much a test environment may hold.

    Raises:
        FieldErrors: something is wrong with it; all complaints together.
    """
    context = fields.context("context")
    agent_id, action = fields.text("agent_id"), fields.action("action")
    status = fields.choice("status", STATUSES)
    address, occurred_at = fields.address("ip_address"), fields.moment("occurred_at")
    decision_id, approval_id = fields.reference("decision_id"), fields.reference("approval_id")
    call_id, run_id = fields.reference("call_id"), fields.reference("run_id")
    fields.finish()
    canonical = None if context is None else fields.canonical
    happened = None if occurred_at is None else wire(occurred_at)
    said = (agent_id, action, status, canonical, address, happened, decision_id, approval_id, call_id, run_id)
    return NewEntry(
        organization_id=standing.organization_id,
        environment=standing.environment,
        plan=standing.plan,
        max_logs_per_month=plan.max_logs_per_month,
        max_log_bytes=test_log_bytes if standing.environment == TEST else UNLIMITED,
        key_id=standing.key_id,
        acts_as=standing.key_agent_id,
        agent_id=agent_id,
        action=action,
        status=status,
        context=canonical,
        ip_address=address or peer,
        address_seen=peer,
        occurred_at=occurred_at,
        decision_id=decision_id,
        approval_id=approval_id,
        call_id=call_id,
        run_id=run_id,
        idempotency_key=key,
        fingerprint=_fingerprint(said),
        tells=FEATURE in plan.features,
    )


def nobodys_entry(standing: Standing, plan: Plan, peer: str | None, key: str) -> NewEntry:
    """Return an entry that no agent sent, to find out what its key was answered before: it is never stored."""
    return NewEntry(
        organization_id=standing.organization_id,
        environment=standing.environment,
        plan=standing.plan,
        max_logs_per_month=plan.max_logs_per_month,
        max_log_bytes=UNLIMITED,
        key_id=standing.key_id,
        acts_as=standing.key_agent_id,
        agent_id="",
        action="",
        status="",
        context=None,
        ip_address=peer,
        address_seen=peer,
        occurred_at=None,
        decision_id=None,
        approval_id=None,
        call_id=None,
        run_id=None,
        idempotency_key=key,
        fingerprint="",
    )


def _fingerprint(said: Iterable[str | None]) -> str:
    # Of what is said and not of how it is written: an entry sent alone and sent again among others is the same. No
    # part contains a NUL, and none that was sent is empty.
    return hashlib.sha256("\0".join(part or "" for part in said).encode()).hexdigest()
