"""Console pages for users who are not signed in: sign-in, registration, invitation and password reset."""

import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote, urlencode

from pydantic import ValidationError
from sqlmodel import select
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from toolgate_service.accounts import service
from toolgate_service.accounts.models import User
from toolgate_service.accounts.schemas import Login, Registration, ResetConfirmation, ResetRequest
from toolgate_service.console import security
from toolgate_service.console.dependencies import (
    Form,
    PageContext,
    error_message,
    field_errors,
    load_page_context,
    read_open_form,
)
from toolgate_service.console.mount import PREFIX
from toolgate_service.console.queries import count_pending
from toolgate_service.console.start import has_begun
from toolgate_service.console.templates import render_public_page
from toolgate_service.core.errors import ApiError
from toolgate_service.gateway import Gateway
from toolgate_service.http.dependencies import peer
from toolgate_service.organizations.service import REGISTRATION_REFUSALS
from toolgate_service.organizations.service import register as register_organization
from toolgate_service.team.schemas import Acceptance
from toolgate_service.team.service import join

SIGN_IN = f"{PREFIX}/sign-in"
REGISTER = f"{PREFIX}/register"
INBOX = f"{PREFIX}/approvals"
#: Page that the owner of a new organization sees first.
START = f"{PREFIX}/start"
OVERVIEW = f"{PREFIX}/overview"

#: Pattern of the URLs to which the console may redirect after sign-in. Only pages of the console match, so that an
#: attacker's link cannot redirect users to another web site.
_CONSOLE_URL = re.compile(r"/console(?:/[a-z0-9-]+)*(?:\?[A-Za-z0-9=&%+._~*-]*)?")
#: Maximum length in characters of the URL to which the console redirects after sign-in. The longest URL, that of the
#: log page with all filters, is shorter.
_MAX_URL_LENGTH = 4_000


def redirect_to_sign_in(request: Request) -> RedirectResponse:
    """Redirect to the sign-in page. After sign-in, the user returns to the page that this request asked for."""
    query = urlencode(request.query_params.multi_items())
    url = f"{request.url.path}?{query}" if query else request.url.path
    leads_back = request.method == "GET" and url != PREFIX and _is_console_url(url)
    return RedirectResponse(f"{SIGN_IN}?next={quote(url)}" if leads_back else SIGN_IN, 303)


async def redirect_home(request: Request) -> Response:
    """Redirect to the inbox or to the overview.

    The user sees the inbox if an approval request is pending, or if the environment has never received a tool call.
    Otherwise, the user sees the overview.
    """
    page = await load_page_context(request)
    async with page.gateway.database.reading() as session:
        waiting = await count_pending(session, page.caller.organization_id, page.environment)
        shows_overview = not waiting and await has_begun(session, page)
    return RedirectResponse(page.url(OVERVIEW if shows_overview else INBOX), 303)


async def show_sign_in(request: Request) -> Response:
    """Show the sign-in form.

    A user who is already signed in is redirected to the console. If no user exists yet, the browser is redirected to
    the registration form.
    """
    try:
        await load_page_context(request)
    except ApiError:
        if await _is_empty(request.app.state.gateway):
            return RedirectResponse(REGISTER, 303)
        return _form(request, "sign_in.html", next=_next(request.query_params.get("next", "")))
    return RedirectResponse(_next(request.query_params.get("next", "")), 303)


async def sign_in(request: Request) -> Response:
    """Sign in a user by e-mail address and password."""
    form = await read_open_form(request)
    then = _next(form["next"])

    async def authenticate(gateway: Gateway, address: str | None) -> str:
        credentials = Login(email=form["email"], password=form["password"])
        return (await service.log_in(gateway, credentials, address)).access_token

    return await _sign_in(request, form, authenticate, "sign_in.html", then, next=then)


async def show_register(request: Request) -> Response:
    """Show the registration form.

    If registration is closed, the page explains how the operator creates an organization.
    """
    return _form(request, "register.html", is_empty=await _is_empty(request.app.state.gateway))


async def register(request: Request) -> Response:
    """Create an organization and sign in its owner."""
    form = await read_open_form(request)

    async def authenticate(gateway: Gateway, address: str | None) -> str:
        registration = Registration(
            email=form["email"], password=form["password"], organization_name=form["organization_name"]
        )
        return (await register_organization(gateway, registration, address)).access_token

    return await _sign_in(request, form, authenticate, "register.html", START, is_empty=False)


async def show_invitation(request: Request) -> Response:
    """Show the form with which an invited user creates an account.

    The invitation link contains the token in its URL fragment, from which a script copies it into the form.
    """
    return _form(request, "invitation.html")


async def accept_invitation(request: Request) -> Response:
    """Create the account of an invited user and sign in the user."""
    form = await read_open_form(request)

    async def authenticate(gateway: Gateway, address: str | None) -> str:
        acceptance = Acceptance(token=_token(form), password=form["password"])
        return (await join(gateway, acceptance, address)).access_token

    return await _sign_in(request, form, authenticate, "invitation.html", INBOX)


async def show_reset(request: Request) -> Response:
    """Show the form for a new password.

    The link in the e-mail contains the token in its URL fragment, from which a script copies it into the form.
    """
    return _form(request, "password_reset.html")


async def reset_password(request: Request) -> Response:
    """Set a new password and redirect to the sign-in page."""
    form = await read_open_form(request)
    gateway: Gateway = request.app.state.gateway
    try:
        confirmation = ResetConfirmation(token=_token(form), new_password=form["new_password"])
        await service.reset_password(gateway, confirmation, peer(request))
    except (ApiError, ValidationError) as error:
        return _refused(request, form, error, "password_reset.html")
    return RedirectResponse(f"{SIGN_IN}?changed=1", 303)


async def show_forgotten(request: Request) -> Response:
    """Show the form with which a user who forgot the password requests a reset link."""
    return _form(request, "forgotten.html", told=None)


async def request_reset_link(request: Request) -> Response:
    """Send a password reset link by e-mail.

    The response is identical for known and unknown e-mail addresses, so it does not reveal which addresses have
    accounts.
    """
    form = await read_open_form(request)
    try:
        told = service.request_password_reset(
            request.app.state.gateway, ResetRequest(email=form["email"]).email
        )
    except (ApiError, ValidationError) as error:
        return _refused(request, form, error, "forgotten.html", told=None)
    return _form(request, "forgotten.html", 202, form=form, told=told)


async def sign_out(page: PageContext, _form: Form) -> Response:
    """End the user's session and delete the session cookie."""
    await service.log_out(page.gateway, page.caller)
    response = RedirectResponse(SIGN_IN, 303)
    security.clear_session_cookie(response, page.request, page.gateway)
    return response


async def _sign_in(
    request: Request,
    form: Form,
    authenticate: Callable[[Gateway, str | None], Awaitable[str]],
    template: str,
    then: str,
    **values: object,
) -> Response:
    gateway: Gateway = request.app.state.gateway
    try:
        token = await authenticate(gateway, peer(request))
    except (ApiError, ValidationError) as error:
        return _refused(request, form, error, template, **values)
    response = RedirectResponse(then, 303)
    security.set_session_cookie(response, request, gateway, token)
    return response


def _refused(
    request: Request, form: Form, error: ApiError | ValidationError, template: str, **values: object
) -> Response:
    request.app.state.gateway.auth_failures.count(peer(request))
    status = error.status_code if isinstance(error, ApiError) else 400
    fields = field_errors(error)
    problem = None if fields else error_message(error)
    return _form(request, template, status, form=form, problem=problem, fields=fields, **values)


def _form(
    request: Request,
    template: str,
    status: int = 200,
    *,
    form: Form | None = None,
    problem: str | None = None,
    fields: Mapping[str, str] | None = None,
    **values: object,
) -> Response:
    gateway: Gateway = request.app.state.gateway
    return render_public_page(
        template,
        status,
        form=form or Form([]),
        problem=problem,
        fields=fields or {},
        no_registration=REGISTRATION_REFUSALS.get(gateway.settings.registration),
        changed="changed" in request.query_params,
        **values,
    )


async def _is_empty(gateway: Gateway) -> bool:
    """Return True if this gateway's database contains no users yet."""
    async with gateway.database.reading() as session:
        return (await session.exec(select(User.id).limit(1))).first() is None


def _token(form: Form) -> str:
    # If the browser does not run scripts, users paste the token or the whole link into the field by hand.
    return form["token"].strip().rpartition("#token=")[2]


def _next(given: str) -> str:
    return given if _is_console_url(given) else INBOX


def _is_console_url(url: str) -> bool:
    return len(url) <= _MAX_URL_LENGTH and _CONSOLE_URL.fullmatch(url) is not None
