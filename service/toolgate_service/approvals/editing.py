"""Approving with an edited context: another request takes the place of the one that was asked (decisions §5).

The agent cannot be made to do something else than it asked for; it is offered another call, bound as tightly as the
first, and only a check with exactly that context and that request's id passes.
"""

from collections.abc import Iterator, Mapping

from sqlmodel import select
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service import exact_json
from toolgate_service.accounts.caller import Caller
from toolgate_service.approvals.ending import ALIKE, make_way, place_of
from toolgate_service.approvals.models import PENDING, REPLACED, Approval
from toolgate_service.approvals.telling import tell
from toolgate_service.audit import service as audit
from toolgate_service.canonical import canonical, digest
from toolgate_service.checks.decide import excess
from toolgate_service.errors import ApiError, FieldErrors
from toolgate_service.exact_json import Json
from toolgate_service.grants.ending import end_proposal
from toolgate_service.ids import new_id
from toolgate_service.permissions.models import Permission
from toolgate_service.storage.database import now
from toolgate_service.web.sdk_fields import SdkFields

#: what a hidden value is shown as; the SDK makes it
HIDDEN = "$digest"


async def edited(
    session: AsyncSession, caller: Caller, approval: Approval, context: Mapping[str, Json] | None
) -> Approval:
    """Return what is to be approved: the request itself, or the one with an edited context in its place.

    Raises:
        ApiError: 400 the context is none, edits what is hidden, or may not happen; 409 it waits already by itself.
    """
    if context is None:
        return approval
    fields = SdkFields({"context": dict(context)})
    fields.context("context")
    fields.finish()
    if fields.canonical == approval.context:
        return approval
    await _judge(session, approval, context)
    return await _replace(session, caller, approval, fields.canonical)


async def _judge(session: AsyncSession, approval: Approval, context: Mapping[str, Json]) -> None:
    asked = exact_json.loads_own(approval.context)
    before, after = dict(hidden(asked)), dict(hidden(dict(context)))
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            raise FieldErrors(
                {"context": [f"{path!r} is hidden and cannot be edited; send it as it was asked"]}
            )
    permission = (await session.exec(select(Permission).where(Permission.id == approval.permission_id))).one()
    reason = excess(permission.max_amount, permission.amount_required, approval.action, context)
    # As it was when the request was made, too: raising a maximum is no way to approve more than was asked for.
    then = excess(approval.max_amount, bool(approval.amount_required), approval.action, context)
    reason = reason or then
    if reason is not None:
        raise FieldErrors({"context": [reason]})


def hidden(value: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every hidden value, however deep."""
    match value:
        case dict() if HIDDEN in value:
            yield path, canonical(value)
        case dict():
            for name, member in value.items():
                yield from hidden(member, _within(path, name))
        case list():
            for index, item in enumerate(value):
                yield from hidden(item, f"{path}[{index}]")


def _within(path: str, name: str) -> str:
    # Written so that no two places look alike: a member "a.b" is not the member "b" of "a".
    if not name or set(name) & set(".[]"):
        return f"{path}[{name!r}]"
    return f"{path}.{name}" if path else name


async def _replace(session: AsyncSession, caller: Caller, approval: Approval, text: str) -> Approval:
    successor = Approval(
        id=new_id(),
        created_at=now(session),
        status=PENDING,
        context=text,
        digest=digest(text),
        replaces=approval.id,
        **approval.model_dump(
            include={
                "organization_id",
                "environment",
                "agent_id",
                "permission_id",
                "action",
                "run_id",
                "call_id",
                "key_id",
                "reason",
                # Nor other terms.
                "required_approvals",
                "separation_of_duties",
                "makers",
                "max_amount",
                "amount_required",
                # Editing gains nobody time.
                "expires_at",
                "remind_at",
            }
        ),
    )
    await make_way(session, successor)
    await _refuse_a_twin(session, successor)
    approval.status, approval.replaced_by, approval.remind_at = REPLACED, successor.id, None
    session.add_all([approval, successor])
    await session.flush()
    await end_proposal(session, approval)
    audit.record(
        session,
        caller,
        "approval.replaced",
        approval.id,
        environment=approval.environment,
        changes={"replaced_by": successor.id, "digest": successor.digest},
    )
    await tell(session, "replaced", approval)
    return successor


async def _refuse_a_twin(session: AsyncSession, successor: Approval) -> None:
    twin = (await session.exec(select(Approval.id).where(*ALIKE), params=place_of(successor))).first()
    if twin is not None:
        raise ApiError(409, f"A request with that very context waits already; decide about approval {twin!r}")
