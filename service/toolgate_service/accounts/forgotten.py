"""A forgotten password from the wish to the letter, for the API and for the console (decisions §3)."""

from toolgate_service.accounts import resets, single_use
from toolgate_service.accounts.users import find_user
from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway
from toolgate_service.mail.letters import Letter, password_reset
from toolgate_service.storage.races import anew

SENT = "If the e-mail is registered here, a link to choose a new password is on its way to it"
NO_MAIL = "This gateway sends no mail; ask its operator, who gets a link from 'toolgate admin reset-password'"
RETRY_AFTER = 60


def ask_for_link(gateway: Gateway, email: str) -> str:
    """Have a link sent to whoever forgot the password, and return what to say.

    It is the same, and as quick, whether the e-mail is registered or not: it is looked up afterwards.

    Raises:
        ApiError: 429, too many mails are on their way.
    """
    if gateway.post is None:
        return NO_MAIL
    if not gateway.post.write_and_send(lambda: anew(lambda: _letter(gateway, email))):
        raise ApiError(
            429,
            f"Too many mails are on their way; retry after {RETRY_AFTER} seconds",
            {"Retry-After": str(RETRY_AFTER)},
        )
    return SENT


async def _letter(gateway: Gateway, email: str) -> Letter | None:
    async with gateway.database.reading() as session:
        user = await find_user(session, email)
    if user is None or gateway.settings.public_url is None:
        return None
    async with gateway.database.writing(user.organization_id) as session:
        issued = await resets.issue_for_mail(session, user.id)
    if issued is None:
        return None
    address, token = issued
    return password_reset(address, single_use.link(gateway.settings.public_url, single_use.RESET_PAGE, token))
