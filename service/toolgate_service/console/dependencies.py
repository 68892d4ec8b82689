"""Authentication and authorization of console requests: the signed-in user, the environment, and the required role."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import urlencode

from sqlmodel import col, select
from starlette.requests import Request
from starlette.responses import Response

from toolgate_service.accounts.models import VIEWER, User
from toolgate_service.accounts.sessions import Caller
from toolgate_service.console import security
from toolgate_service.console.forms import Form, read_form
from toolgate_service.console.security import read_session_cookie
from toolgate_service.core.errors import ApiError
from toolgate_service.db.models import ENVIRONMENTS, PRODUCTION, TEST
from toolgate_service.gateway import Gateway
from toolgate_service.http.dependencies import admin, caller_of, changing, full_scope
from toolgate_service.organizations.models import Organization

#: value that is recorded as the channel of decisions made in the console
VIA = "console"
#: Request header that the console's scripts send if they expect an HTML fragment instead of a whole page.
PART = "x-toolgate-part"
#: Value of the header `PART` if the fragment is for the page of a single approval request, which shows all arguments.
WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class PageContext:
    """Request of a signed-in user.

    Attributes:
        caller: The user, in the form that the service functions require.
        email: The user's e-mail address.
        organization: Name of the user's organization.
        environment: Environment that the page shows: ``production`` or ``test``.
    """

    request: Request
    gateway: Gateway
    caller: Caller
    email: str
    organization: str
    environment: str

    @property
    def is_test(self) -> bool:
        """True if the page shows the test environment."""
        return self.environment == TEST

    @property
    def form_token(self) -> str:
        """CSRF token that every form of this session contains."""
        return security.form_token(self.gateway, self.caller.session_id)

    @property
    def wants_part(self) -> bool:
        """True if one of the console's scripts sent the request and expects an HTML fragment."""
        return PART in self.request.headers

    @property
    def wants_whole(self) -> bool:
        """True if the response shows all arguments in full, as the page of a single approval request does."""
        return self.request.headers.get(PART, WHOLE) == WHOLE

    @property
    def may_decide(self) -> bool:
        """True if the page shows forms that change data. The service functions check the role again."""
        return self.caller.role != VIEWER and self.caller.organization_is_active

    @property
    def may_administer(self) -> bool:
        """True if the page shows forms for administrators. The service functions check the role again."""
        return self.may_decide and self.caller.is_admin

    def url(self, path: str, **query: object) -> str:
        """Return the URL of a console page in the same environment."""
        if self.is_test:
            query = {"environment": TEST, **query}
        return f"{path}?{urlencode(query)}" if query else path


PageFunction: TypeAlias = Callable[[PageContext], Awaitable[Response]]
FormFunction: TypeAlias = Callable[[PageContext, Form], Awaitable[Response]]
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def page_handler(handle: PageFunction) -> Endpoint:
    """Return a Starlette endpoint for a page that every signed-in user may view."""

    async def endpoint(request: Request) -> Response:
        return await handle(await load_page_context(request))

    return endpoint


def form_handler(
    handle: FormFunction, *, authorize: Callable[[Caller], Awaitable[Caller]] | None = None
) -> Endpoint:
    """Return a Starlette endpoint for a submitted form. The endpoint checks the form's CSRF token.

    Args:
        handle: Function that processes the form.
        authorize: Function that raises an `ApiError` if the user may not submit the form. By default, users who may not
            decide approval requests are rejected.
    """

    async def endpoint(request: Request) -> Response:
        page = await load_page_context(request)
        form = await read_form(request)
        security.check_form_token(page.gateway, page.caller.session_id, form["token"])
        if authorize is not None:
            await authorize(page.caller)
        else:
            await full_scope(await changing(page.caller))
        return await handle(page, form)

    return endpoint


async def allow_user(caller: Caller) -> Caller:
    """Return the caller without a check: every signed-in user may submit the form."""
    return caller


async def require_editor(caller: Caller) -> Caller:
    """Return the caller if the caller is a member or administrator of an active organization.

    Raises:
        ApiError: 403 for other callers.
    """
    return await changing(caller)


async def require_admin(caller: Caller) -> Caller:
    """Return the caller if the caller is an administrator of an active organization.

    Raises:
        ApiError: 403 for other callers.
    """
    return await admin(await full_scope(await changing(caller)))


async def require_key_reader(caller: Caller) -> Caller:
    """Return the caller if the caller may view API keys in full. The organization may be inactive.

    Raises:
        ApiError: 403 for other callers.
    """
    return caller if caller.sees_keys else await require_admin(caller)


async def load_page_context(request: Request) -> PageContext:
    """Authenticate a request by its session cookie, and return its `PageContext`.

    Raises:
        ApiError: 401 if there is no valid session; 400 if the environment in the URL is unknown.
    """
    gateway: Gateway = request.app.state.gateway
    caller = replace(await caller_of(request, gateway, read_session_cookie(request, gateway)), via=VIA)
    environment = request.query_params.get("environment", PRODUCTION)
    if environment not in ENVIRONMENTS:
        raise ApiError(400, f"There is no environment {environment[:40]!r}; there are production and test")
    query = (
        select(User.email, Organization.name)
        .join(Organization, col(Organization.id) == User.organization_id)
        .where(User.id == caller.user_id)
    )
    async with gateway.database.reading() as session:
        email, organization = (await session.exec(query)).one()
    return PageContext(request, gateway, caller, email, organization, environment)
