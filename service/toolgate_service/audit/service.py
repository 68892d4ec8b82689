"""Functions that add audit events to the database transaction of the change that they describe."""

from collections.abc import Mapping
from typing import Protocol

from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.audit.models import AuditEntry
from toolgate_service.core import strict_json
from toolgate_service.core.ids import new_id
from toolgate_service.db.database import now


class Actor(Protocol):
    """Interface of objects that identify who makes a change.

    Examples are a signed-in user, a user with an e-mailed link, and the operator.
    """

    @property
    def organization_id(self) -> str:
        """Id of the organization in which the change is made."""

    @property
    def user_id(self) -> str | None:
        """Id of the user who makes the change; None for the operator and the payment provider."""

    @property
    def ip_address(self) -> str | None:
        """IP address of the client; None if it is unknown."""


def record(
    session: AsyncSession,
    caller: Actor,
    kind: str,
    resource_id: str,
    *,
    environment: str | None = None,
    changes: Mapping[str, object] | None = None,
) -> None:
    """Add an audit event about a change by `caller`, in the write transaction of the change.

    `kind` is the type of the event, such as ``permission.created``. `changes` contains the new values, without secrets.
    """
    session.add(
        AuditEntry(
            id=new_id(),
            organization_id=caller.organization_id,
            environment=environment,
            user_id=caller.user_id,
            kind=kind,
            resource_id=resource_id,
            changes=_serialize(changes),
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
    ip_address: str | None = None,
) -> None:
    """Add an audit event about a change that the operator, the payment provider or the gateway made instead of a user.

    If `resource_id` is None, the changed resource is the organization.
    """
    session.add(
        AuditEntry(
            id=new_id(),
            organization_id=organization_id,
            environment=environment,
            kind=kind,
            resource_id=resource_id or organization_id,
            changes=_serialize(changes),
            ip_address=ip_address,
            created_at=now(session),
        )
    )


def _serialize(changes: Mapping[str, object] | None) -> str | None:
    return strict_json.dumps(dict(changes)) if changes else None
