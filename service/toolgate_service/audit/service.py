"""Recording a management change in the change's own transaction (decisions §3)."""

from collections.abc import Mapping
from typing import Protocol

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.audit.models import AuditEntry
from toolgate_service.ids import new_id
from toolgate_service.storage.database import now


class Actor(Protocol):
    """Who changes something: a caller, somebody who holds a link, or the operator (who is no user)."""

    @property
    def organization_id(self) -> str:
        """Whose things are changed."""

    @property
    def user_id(self) -> str | None:
        """The user; None is the operator or the payment provider."""

    @property
    def ip_address(self) -> str | None:
        """From where."""


def record(
    session: AsyncSession,
    caller: Actor,
    kind: str,
    resource_id: str,
    *,
    environment: str | None = None,
    changes: Mapping[str, object] | None = None,
) -> None:
    """Add an audit entry.

    Args:
        session: the change's write transaction.
        caller: who changed it, and from where.
        kind: for instance ``permission.created``.
        resource_id: what was changed.
        environment: where the change belongs to one.
        changes: the new values; never a secret.
    """
    session.add(
        AuditEntry(
            id=new_id(),
            organization_id=caller.organization_id,
            environment=environment,
            user_id=caller.user_id,
            kind=kind,
            resource_id=resource_id,
            changes=exact_json.dumps(dict(changes)) if changes else None,
            ip_address=caller.ip_address,
            created_at=now(session),
        )
    )


def record_outside(
    session: AsyncSession,
    organization_id: str,
    kind: str,
    *,
    resource_id: str | None = None,
    environment: str | None = None,
    changes: Mapping[str, object] | None = None,
) -> None:
    """Add an audit entry for what no user did, but the operator, the payment provider or the gateway itself.

    Args:
        session: the change's write transaction.
        organization_id: whose change it is.
        kind: for instance ``organization.plan_changed``.
        resource_id: what was changed; the organization itself when left out.
        environment: where the change belongs to one.
        changes: the new values; never a secret.
    """
    session.add(
        AuditEntry(
            id=new_id(),
            organization_id=organization_id,
            environment=environment,
            kind=kind,
            resource_id=resource_id or organization_id,
            changes=exact_json.dumps(dict(changes)) if changes else None,
            created_at=now(session),
        )
    )
