"""Validation of contexts that an approver edited.

An edit does not change the original approval request. It creates a second request with the edited context. Only a check
that sends exactly this context and the id of the second request consumes it.
"""

from collections.abc import Iterator, Mapping

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.approvals.models import Approval
from toolgate_service.core import strict_json
from toolgate_service.core.errors import FieldErrors
from toolgate_service.core.sdk_fields import SdkFields
from toolgate_service.core.strict_json import Json, canonical
from toolgate_service.permissions.models import Permission, find_amount_violation

#: name of the JSON member that the SDK puts into the object that replaces a redacted value
DIGEST_MEMBER = "$digest"


async def validate_edit(session: AsyncSession, approval: Approval, context: Mapping[str, Json]) -> str:
    """Validate an edited context and return its canonical JSON.

    Raises:
        FieldErrors: The context is invalid, or changes a redacted value, or its amount exceeds the permission's limit.
            Both the current limit and the limit at the creation of the request apply.
    """
    fields = SdkFields({"context": dict(context)})
    fields.context("context")
    fields.finish()
    if fields.canonical == approval.context:
        return fields.canonical
    before = dict(redacted_values(strict_json.loads_own(approval.context)))
    after = dict(redacted_values(dict(context)))
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            raise FieldErrors(
                {"context": [f"{path!r} is hidden and cannot be edited; send it as it was asked"]}
            )
    permission = (await session.exec(select(Permission).where(Permission.id == approval.permission_id))).one()
    for limit in (permission, approval):
        required = bool(limit.amount_required)
        violation = find_amount_violation(limit.max_amount, required, approval.action, context)
        if violation is not None:
            raise FieldErrors({"context": [violation.reason]})
    return fields.canonical


def redacted_values(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the canonical JSON of every redacted value, at any depth."""
    match value:
        case dict() if DIGEST_MEMBER in value:
            yield path, canonical(value)
        case dict():
            for name, member in value.items():
                yield from redacted_values(member, _member_path(path, name))
        case list():
            for index, item in enumerate(value):
                yield from redacted_values(item, f"{path}[{index}]")


def _member_path(path: str, name: str) -> str:
    # Names with dots or brackets are quoted, so that the member "a.b" is distinct from the member "b" of "a".
    if not name or set(name) & set(".[]"):
        return f"{path}[{name!r}]"
    return f"{path}.{name}" if path else name
