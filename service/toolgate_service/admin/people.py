"""A user's forgotten password, where no mail is set up (decisions §3)."""

from toolgate_service.accounts import resets, single_use
from toolgate_service.accounts.users import find_user, user_of
from toolgate_service.admin.desk import Desk, Lines, at_desk
from toolgate_service.audit import service as audit
from toolgate_service.errors import StartError


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
            token = await resets.issue(session, user)
            audit.record_outside(
                session, user.organization_id, "user.password_reset_issued", resource_id=user.id
            )
        link = single_use.link(desk.settings.public_url or "", single_use.RESET_PAGE, token)
        hours = int(resets.LIFETIME.total_seconds() // 3600)
        lines = [link, f"works once, for {hours} hour; whoever opens it chooses the password of {user.email}"]
        if desk.settings.public_url is None:
            lines.append("put the gateway's address in front, or set TOOLGATE_PUBLIC_URL to have it there")
        return lines

    return at_desk(work)
