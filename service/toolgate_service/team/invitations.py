"""The rules of invitations: 72 hours, once, for an e-mail that nobody has (decisions §3, §9)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import ColumnElement
from sqlmodel import col, func, select, update
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts import single_use
from toolgate_service.accounts.caller import Caller, Person, still
from toolgate_service.accounts.models import Invitation, User
from toolgate_service.accounts.users import find_user
from toolgate_service.audit import service as audit
from toolgate_service.errors import ApiError, not_found
from toolgate_service.ids import new_id
from toolgate_service.organizations.models import Organization
from toolgate_service.plans import Plans
from toolgate_service.storage.database import now
from toolgate_service.team.schemas import NewInvitation
from toolgate_service.team.service import refuse_beyond_plan

LIFETIME = timedelta(hours=72)
#: invitations that an organization may make in a day: the mails go to strangers
MOST_A_DAY = 100
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Invited:
    """A new invitation, its organization, and the token that nobody will see again."""

    invitation: Invitation
    organization: Organization
    token: str


async def list_open(session: AsyncSession, organization_id: str) -> Sequence[Invitation]:
    """Return the invitations that may still be accepted, newest first."""
    query = (
        select(Invitation)
        .where(Invitation.organization_id == organization_id, *_open(session))
        .order_by(col(Invitation.created_at).desc(), col(Invitation.id).desc())
    )
    return (await session.exec(query)).all()


async def invite(session: AsyncSession, plans: Plans, caller: Caller, new: NewInvitation) -> Invited:
    """Invite somebody. An open invitation of the same e-mail is replaced: its link works no more.

    The plan's team members are counted with everybody who is invited, and once more at acceptance.

    Args:
        session: a write transaction with the turns `ACCOUNTS` and the organization's.
        plans: what each plan allows.
        caller: the admin who invites.
        new: whom, as what.

    Raises:
        ApiError: 400 the e-mail is registered, 401 the caller's token has stopped working, 429 too many today.
        PlanLimitExceeded: the plan's team members are used up.
    """
    await still(session, caller)
    if await find_user(session, new.email) is not None:
        raise ApiError(400, "E-mail already registered")
    organization = await _organization(session, caller.organization_id)
    await _end(session, caller.organization_id, col(Invitation.email) == new.email)
    waiting = await list_open(session, caller.organization_id)
    await refuse_beyond_plan(session, plans, organization, invited=len(waiting))
    await _refuse_many(session, caller.organization_id)
    moment, token = now(session), single_use.mint()
    invitation = Invitation(
        id=new_id(),
        organization_id=caller.organization_id,
        email=new.email,
        role=new.role,
        token_hash=single_use.token_hash(token),
        invited_by=caller.user_id,
        created_at=moment,
        expires_at=moment + LIFETIME,
    )
    session.add(invitation)
    audit.record(session, caller, "team.invited", invitation.id, changes=new.model_dump())
    return Invited(invitation, organization, token)


async def revoke(session: AsyncSession, caller: Caller, invitation_id: str) -> None:
    """Take an invitation back; its link works no more.

    Raises:
        ApiError: 404, there is none of that id that could be accepted; 401 as for `invite`.
    """
    await still(session, caller)
    query = select(Invitation).where(
        Invitation.id == invitation_id,
        Invitation.organization_id == caller.organization_id,
        *_open(session),
    )
    invitation = (await session.exec(query)).first()
    if invitation is None:
        raise not_found("Invitation")
    invitation.revoked_at = now(session)
    session.add(invitation)
    audit.record(
        session, caller, "team.invitation_revoked", invitation.id, changes={"email": invitation.email}
    )


async def find_open(session: AsyncSession, token: str) -> Invitation:
    """Return the invitation that a token stands for.

    Raises:
        ApiError: 400, it is unknown, accepted, revoked, or has expired.
    """
    query = select(Invitation).where(Invitation.token_hash == single_use.token_hash(token), *_open(session))
    invitation = (await session.exec(query)).first()
    if invitation is None:
        raise ApiError(400, "This invitation was used already, revoked, or has expired; ask for another")
    return invitation


async def accept(
    session: AsyncSession, plans: Plans, token: str, password_hash: str, ip_address: str | None
) -> User:
    """Use an invitation up and make its e-mail a user.

    Args:
        session: a write transaction with the turns `ACCOUNTS` and the organization's.
        plans: what each plan allows.
        token: the token of the link.
        password_hash: of the password that was chosen.
        ip_address: where the request came from.

    Raises:
        ApiError: 400 the token works no more or the e-mail is registered, 403 the organization is not active.
        PlanLimitExceeded: the plan's team members are used up.
    """
    invitation = await find_open(session, token)
    organization = await _organization(session, invitation.organization_id)
    if not organization.is_active:
        raise ApiError(403, "Organization is not active")
    if await find_user(session, invitation.email) is not None:
        raise ApiError(400, "E-mail already registered")
    await refuse_beyond_plan(session, plans, organization)
    moment = now(session)
    user = User(
        id=new_id(),
        organization_id=organization.id,
        email=invitation.email,
        password_hash=password_hash,
        role=invitation.role,
        created_at=moment,
    )
    session.add(user)
    invitation.accepted_at = moment
    session.add(invitation)
    await session.flush()
    person = Person(user.id, organization.id, ip_address)
    changes = {"email": user.email, "role": user.role, "invitation": invitation.id}
    audit.record(session, person, "team.joined", user.id, changes=changes)
    return user


def _open(session: AsyncSession) -> tuple[ColumnElement[bool], ...]:
    return (
        col(Invitation.accepted_at).is_(None),
        col(Invitation.revoked_at).is_(None),
        col(Invitation.expires_at) > now(session),
    )


async def _organization(session: AsyncSession, organization_id: str) -> Organization:
    return (await session.exec(select(Organization).where(Organization.id == organization_id))).one()


async def _end(session: AsyncSession, organization_id: str, which: ColumnElement[bool]) -> None:
    await session.exec(
        update(Invitation)
        .where(col(Invitation.organization_id) == organization_id, which, *_open(session))
        .values(revoked_at=now(session))
    )


async def _refuse_many(session: AsyncSession, organization_id: str) -> None:
    made = select(func.count()).where(
        Invitation.organization_id == organization_id,
        col(Invitation.created_at) > now(session) - DAY,
    )
    if (await session.exec(made)).one() >= MOST_A_DAY:
        raise ApiError(
            429,
            f"More than {MOST_A_DAY} invitations within a day; retry after 3600 seconds",
            {"Retry-After": "3600"},
        )
