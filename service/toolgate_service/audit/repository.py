"""Database queries for the audit log."""

from sqlmodel import col, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts.models import User
from toolgate_service.audit.models import AuditEntry
from toolgate_service.audit.schemas import AuditEntryView
from toolgate_service.core import strict_json
from toolgate_service.core.ids import is_id
from toolgate_service.core.schemas import is_action
from toolgate_service.db.models import PRODUCTION
from toolgate_service.db.pagination import Found, Page, find_page


async def list_audit(
    session: AsyncSession,
    organization_id: str,
    environment: str,
    page: Page,
    *,
    kind: str | None,
    user_id: str | None,
) -> Found[AuditEntryView]:
    """Return one page of audit events, newest first.

    Events that belong to no environment, such as changes of the team, are listed in the production environment.
    """
    # Skip the query if a filter has an invalid format, because no event can match it.
    if (kind is not None and not is_action(kind)) or (user_id is not None and not is_id(user_id)):
        return Found([], 0, None)
    query = select(AuditEntry).where(AuditEntry.organization_id == organization_id)
    if environment == PRODUCTION:
        query = query.where(
            or_(col(AuditEntry.environment) == environment, col(AuditEntry.environment).is_(None))
        )
    else:
        query = query.where(AuditEntry.environment == environment)
    if kind is not None:
        query = query.where(AuditEntry.kind == kind)
    if user_id is not None:
        query = query.where(AuditEntry.user_id == user_id)
    found = await find_page(session, query, AuditEntry, page)
    ids = {entry.user_id for entry in found.rows if entry.user_id is not None}
    emails = dict((await session.exec(select(User.id, User.email).where(col(User.id).in_(ids)))).all())
    return Found([_view(entry, emails) for entry in found.rows], found.total, found.last)


def _view(entry: AuditEntry, emails: dict[str, str]) -> AuditEntryView:
    changes = None if entry.changes is None else strict_json.loads_own(entry.changes)
    email = None if entry.user_id is None else emails.get(entry.user_id)
    added = {"type": entry.kind, "changes": changes, "user_email": email}
    return AuditEntryView.model_validate(entry.model_dump() | added)
