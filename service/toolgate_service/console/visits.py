"""A request of somebody who is signed in, and how one becomes it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import urlencode

from sqlmodel import col, select
from starlette.requests import Request
from starlette.responses import Response

from toolgate_service.accounts.caller import Caller, admin, caller_of, changing, full_scope
from toolgate_service.accounts.models import VIEWER, User
from toolgate_service.console import safety
from toolgate_service.console.cookies import token_in
from toolgate_service.console.forms import Form, read_form
from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway
from toolgate_service.organizations.models import Organization
from toolgate_service.storage.base import ENVIRONMENTS, PRODUCTION, TEST

#: how the credential of a decision names a session of the console
VIA = "console"
#: a request by our own script, which wants a piece of a page
PART = "x-toolgate-part"
#: says that it wants it for a request's own page
WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of somebody who is signed in.

    Attributes:
        request: as it came.
        gateway: the gateway.
        caller: who it is, as for the API.
        email: theirs.
        organization: its name.
        environment: which of the organization's two worlds is looked at.
    """

    request: Request
    gateway: Gateway
    caller: Caller
    email: str
    organization: str
    environment: str

    @property
    def is_test(self) -> bool:
        """Whether the test environment is looked at."""
        return self.environment == TEST

    @property
    def form_token(self) -> str:
        """What every form carries."""
        return safety.form_token(self.gateway, self.caller.session_id)

    @property
    def wants_part(self) -> bool:
        """Whether our own script asks, and wants a piece of a page."""
        return PART in self.request.headers

    @property
    def wants_whole(self) -> bool:
        """Whether arguments of any length are to be shown: on a request's own page."""
        return self.request.headers.get(PART, WHOLE) == WHOLE

    @property
    def may_decide(self) -> bool:
        """Whether the role lets one change anything; the services say so again, and they count."""
        return self.caller.role != VIEWER and self.caller.organization_is_active

    @property
    def may_administer(self) -> bool:
        """Whether the role lets one grant and loosen permissions; the services say so again."""
        return self.may_decide and self.caller.is_admin

    def url(self, path: str, **query: object) -> str:
        """Return the way to a page in the same environment."""
        if self.is_test:
            query = {"environment": TEST, **query}
        return f"{path}?{urlencode(query)}" if query else path


Page: TypeAlias = Callable[[Visit], Awaitable[Response]]
Deed: TypeAlias = Callable[[Visit, Form], Awaitable[Response]]
Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def page(show: Page) -> Endpoint:
    """Return the endpoint of a page, for whoever is signed in."""

    async def endpoint(request: Request) -> Response:
        return await show(await visiting(request))

    return endpoint


def deed(do: Deed, *, by: Callable[[Caller], Awaitable[Caller]] | None = None) -> Endpoint:
    """Return the endpoint of a form: of our own page, with its session's token, by somebody who may.

    Args:
        do: what the form does.
        by: who may, as the API's routes have it; by default whoever may decide.
    """

    async def endpoint(request: Request) -> Response:
        visit = await visiting(request)
        form = await read_form(request)
        safety.refuse_without_token(visit.gateway, visit.caller.session_id, form["token"])
        if by is not None:
            await by(visit.caller)
        else:
            await full_scope(await changing(visit.caller))
        return await do(visit, form)

    return endpoint


async def by_anybody(caller: Caller) -> Caller:
    """Let through everybody who is signed in."""
    return caller


async def by_changers(caller: Caller) -> Caller:
    """Let through whoever may change anything.

    Raises:
        ApiError: 403.
    """
    return await changing(caller)


async def by_admins(caller: Caller) -> Caller:
    """Let through admins.

    Raises:
        ApiError: 403.
    """
    return await admin(await full_scope(await changing(caller)))


async def by_key_readers(caller: Caller) -> Caller:
    """Let through whoever sees API keys whole, in an organization that is not active too.

    Raises:
        ApiError: 403.
    """
    return caller if caller.sees_keys else await by_admins(caller)


async def visiting(request: Request) -> Visit:
    """Return the visit that a request is.

    Raises:
        ApiError: 401, nobody is signed in; 400, there is no such environment.
    """
    gateway: Gateway = request.app.state.gateway
    caller = replace(await caller_of(request, gateway, token_in(request, gateway)), via=VIA)
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
    return Visit(request, gateway, caller, email, organization, environment)
