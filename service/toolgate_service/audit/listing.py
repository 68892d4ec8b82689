"""Reading the management audit (decisions §3)."""

from sqlmodel import col, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.accounts.caller import Caller
from toolgate_service.accounts.models import User
from toolgate_service.audit.models import AuditEntry
from toolgate_service.audit.schemas import AuditEntryView
from toolgate_service.ids import is_id
from toolgate_service.storage.base import PRODUCTION
from toolgate_service.web.fields import is_action
from toolgate_service.web.paging import Found, Page, find_page


async def list_audit(
    session: AsyncSession,
    caller: Caller,
    environment: str,
    page: Page,
    *,
    kind: str | None,
    user_id: str | None,
) -> Found[AuditEntryView]:
    """Return a page of audit entries, newest first.

    What belongs to no environment, such as a change of the team, is listed with production.
    """
    # A kind is made of the same characters as an action.
    if (kind is not None and not is_action(kind)) or (user_id is not None and not is_id(user_id)):
        return Found([], 0, None)
    query = select(AuditEntry).where(AuditEntry.organization_id == caller.organization_id)
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
    changes = None if entry.changes is None else exact_json.loads_own(entry.changes)
    email = None if entry.user_id is None else emails.get(entry.user_id)
    return AuditEntryView.model_validate(entry.model_dump() | {"changes": changes, "user_email": email})
