"""Users whom no mail reaches: the first admin of an organization, and a user's forgotten password (decisions §3)."""

import secrets

from pydantic import ValidationError
from sqlmodel.ext.asyncio.session import AsyncSession

from toolgate_service.accounts import resets, service, single_use
from toolgate_service.accounts.models import User
from toolgate_service.accounts.passwords import Passwords
from toolgate_service.accounts.schemas import Registration
from toolgate_service.accounts.users import find_user, user_of
from toolgate_service.admin.desk import Desk, Lines, at_desk
from toolgate_service.audit import service as audit
from toolgate_service.errors import ApiError, StartError
from toolgate_service.sealed import verified_vault
from toolgate_service.secret_file import secret_path
from toolgate_service.settings import Settings
from toolgate_service.storage.database import ACCOUNTS
from toolgate_service.vault import Vault


def create_organization(name: str, email: str) -> Lines:
    """Create an organization and its first admin, and return a link with which the admin chooses a password.

    Works whatever ``TOOLGATE_REGISTRATION`` is. The organization gets the default plan.
    """

    async def work(desk: Desk) -> Lines:
        registration = _registration(name, email)
        password_hash = await Passwords(threads=1, queue=0).hash(registration.password)
        vault = await _vault(desk)
        async with desk.database.writing(ACCOUNTS) as session:
            try:
                user = await service.create_organization(
                    session, vault, registration, password_hash, desk.settings.default_plan
                )
            except ApiError as error:
                raise StartError(f"{email!r}: {error.reply_detail}") from None
            link = await _issue_link(session, user, desk.settings)
        plan = desk.settings.default_plan
        return [
            f"created {registration.organization_name!r} on the {plan} plan; its admin is {user.email}",
            *link,
        ]

    return at_desk(work)


def reset_password(email: str) -> Lines:
    """Return a link that lets a user choose a new password, once, for an hour; earlier links stop working."""

    async def work(desk: Desk) -> Lines:
        async with desk.database.reading() as session:
            found = await find_user(session, email)
        if found is None:
            raise StartError(f"nobody with the e-mail {email!r} is registered here")
        async with desk.database.writing(found.organization_id) as session:
            user = await user_of(session, found.id)
            if user is None:
                raise StartError(f"the user with the e-mail {email!r} has just been removed")
            return await _issue_link(session, user, desk.settings)

    return at_desk(work)


async def _vault(desk: Desk) -> Vault:
    vault = await verified_vault(desk.database, desk.settings)
    if vault is None:
        # A secret made here could not be the one of the gateway that serves this database.
        raise StartError(
            f"the gateway's secret is not in {str(secret_path())!r}; run this as the user who runs the gateway, or set "
            "TOOLGATE_SECRET"
        )
    return vault


def _registration(name: str, email: str) -> Registration:
    try:
        # A random password, which the link replaces.
        return Registration(organization_name=name, email=email, password=secrets.token_urlsafe(32))
    except ValidationError as error:
        problem = error.errors()[0]
        option = {"organization_name": "NAME", "email": "EMAIL"}[str(problem["loc"][0])]
        raise StartError(f"{option}: {problem['msg'].removeprefix('Value error, ')}") from None


async def _issue_link(session: AsyncSession, user: User, settings: Settings) -> Lines:
    token = await resets.issue(session, user)
    audit.record_outside(session, user.organization_id, "user.password_reset_issued", resource_id=user.id)
    link = single_use.link(settings.public_url or "", single_use.RESET_PAGE, token)
    hours = int(resets.LIFETIME.total_seconds() // 3600)
    lines = [link, f"works once, for {hours} hour; it sets the password of {user.email}"]
    if settings.public_url is None:
        lines.append("put the gateway's address in front, or set TOOLGATE_PUBLIC_URL to have it there")
    return lines
