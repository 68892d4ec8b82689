"""Signing in and out, registering, and the pages that links in mails lead to."""

import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote, urlencode

from pydantic import ValidationError
from sqlmodel import select
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from toolgate_service.accounts import entering, forgotten, service
from toolgate_service.accounts.caller import peer
from toolgate_service.accounts.models import User
from toolgate_service.accounts.schemas import Login, Registration, ResetConfirmation, ResetRequest
from toolgate_service.console import cookies
from toolgate_service.console.door import PREFIX
from toolgate_service.console.forms import Form, read_open_form
from toolgate_service.console.inbox.waiting import count_waiting
from toolgate_service.console.problems import fields_of, words_of
from toolgate_service.console.rendering import bare_page
from toolgate_service.console.start.finding import has_begun
from toolgate_service.console.visits import Visit, visiting
from toolgate_service.errors import ApiError
from toolgate_service.gateway import Gateway
from toolgate_service.team.joining import join
from toolgate_service.team.schemas import Acceptance

SIGN_IN = f"{PREFIX}/sign-in"
REGISTER = f"{PREFIX}/register"
INBOX = f"{PREFIX}/approvals"
#: where somebody goes on whose organization is new
START = f"{PREFIX}/start"
OVERVIEW = f"{PREFIX}/overview"

#: where one may go on after signing in: pages of the console with what they are asked for, and nowhere else
_INSIDE = re.compile(r"/console(?:/[a-z0-9-]+)*(?:\?[A-Za-z0-9=&%+._~*-]*)?")
#: characters of it; every filter of the log fits
_LONGEST = 4_000


def sign_in_at(request: Request) -> RedirectResponse:
    """Lead somebody who is not signed in to where they can, and back afterwards."""
    asked = urlencode(request.query_params.multi_items())
    way = f"{request.url.path}?{asked}" if asked else request.url.path
    inside = request.method == "GET" and way != PREFIX and _is_inside(way)
    return RedirectResponse(f"{SIGN_IN}?next={quote(way)}" if inside else SIGN_IN, 303)


async def home(request: Request) -> Response:
    """Lead on to what waits, and where nothing does to the overview; until a call has arrived, to how one does."""
    visit = await visiting(request)
    async with visit.gateway.database.reading() as session:
        waiting = await count_waiting(session, visit.caller.organization_id, visit.environment)
        looks_back = not waiting and await has_begun(session, visit)
    return RedirectResponse(visit.url(OVERVIEW if looks_back else INBOX), 303)


async def sign_in_page(request: Request) -> Response:
    """Show the form; whoever is signed in goes on."""
    try:
        await visiting(request)
    except ApiError:
        if await _is_empty(request.app.state.gateway):
            return RedirectResponse(REGISTER, 303)
        return _form(request, "sign_in.html", next=_next(request.query_params.get("next", "")))
    return RedirectResponse(_next(request.query_params.get("next", "")), 303)


async def sign_in(request: Request) -> Response:
    """Begin a session."""
    form = await read_open_form(request)
    then = _next(form["next"])

    async def enter(gateway: Gateway, address: str | None) -> str:
        credentials = Login(email=form["email"], password=form["password"])
        return (await entering.log_in(gateway, credentials, address)).access_token

    return await _enter(request, form, enter, "sign_in.html", then, next=then)


async def register_page(request: Request) -> Response:
    """Show the form, or, if registration is closed, how an operator creates the first organization."""
    return _form(request, "register.html", is_empty=await _is_empty(request.app.state.gateway))


async def register(request: Request) -> Response:
    """Create an organization and begin its owner's session."""
    form = await read_open_form(request)

    async def enter(gateway: Gateway, address: str | None) -> str:
        registration = Registration(
            email=form["email"], password=form["password"], organization_name=form["organization_name"]
        )
        return (await entering.register(gateway, registration, address)).access_token

    return await _enter(request, form, enter, "register.html", START, is_empty=False)


async def invitation_page(request: Request) -> Response:
    """Show the form; the link's token is in the fragment, which our script puts into it."""
    return _form(request, "invitation.html")


async def accept_invitation(request: Request) -> Response:
    """Join, and begin a session."""
    form = await read_open_form(request)

    async def enter(gateway: Gateway, address: str | None) -> str:
        acceptance = Acceptance(token=_token(form), password=form["password"])
        return (await join(gateway, acceptance, address)).access_token

    return await _enter(request, form, enter, "invitation.html", INBOX)


async def reset_page(request: Request) -> Response:
    """Show the form; the link's token is in the fragment, which our script puts into it."""
    return _form(request, "password_reset.html")


async def reset(request: Request) -> Response:
    """Choose a new password; one signs in with it."""
    form = await read_open_form(request)
    gateway: Gateway = request.app.state.gateway
    try:
        confirmation = ResetConfirmation(token=_token(form), new_password=form["new_password"])
        await entering.reset_password(gateway, confirmation, peer(request))
    except (ApiError, ValidationError) as error:
        return _refused(request, form, error, "password_reset.html")
    return RedirectResponse(f"{SIGN_IN}?changed=1", 303)


async def forgotten_page(request: Request) -> Response:
    """Show the form."""
    return _form(request, "forgotten.html", told=None)


async def ask_for_link(request: Request) -> Response:
    """Have a link sent to whoever forgot the password; the answer is the same for an e-mail that nobody has."""
    form = await read_open_form(request)
    try:
        told = forgotten.ask_for_link(request.app.state.gateway, ResetRequest(email=form["email"]).email)
    except (ApiError, ValidationError) as error:
        return _refused(request, form, error, "forgotten.html", told=None)
    return _form(request, "forgotten.html", 202, form=form, told=told)


async def sign_out(visit: Visit, _form: Form) -> Response:
    """End the session and have the browser forget it."""
    async with visit.gateway.database.writing(visit.caller.organization_id) as session:
        await service.end_session(session, visit.caller)
    answer = RedirectResponse(SIGN_IN, 303)
    cookies.take(answer, visit.request, visit.gateway)
    return answer


async def _enter(
    request: Request,
    form: Form,
    enter: Callable[[Gateway, str | None], Awaitable[str]],
    template: str,
    then: str,
    **values: object,
) -> Response:
    gateway: Gateway = request.app.state.gateway
    try:
        token = await enter(gateway, peer(request))
    except (ApiError, ValidationError) as error:
        return _refused(request, form, error, template, **values)
    answer = RedirectResponse(then, 303)
    cookies.give(answer, request, gateway, token)
    return answer


def _refused(
    request: Request, form: Form, error: ApiError | ValidationError, template: str, **values: object
) -> Response:
    request.app.state.gateway.auth_failures.count(peer(request))
    status = error.status_code if isinstance(error, ApiError) else 400
    fields = fields_of(error)
    problem = None if fields else words_of(error)
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
    return bare_page(
        template,
        status,
        form=form or Form([]),
        problem=problem,
        fields=fields or {},
        no_registration=entering.NO_REGISTRATION.get(gateway.settings.registration),
        changed="changed" in request.query_params,
        **values,
    )


async def _is_empty(gateway: Gateway) -> bool:
    """Return whether the installation has no user yet."""
    async with gateway.database.reading() as session:
        return (await session.exec(select(User.id).limit(1))).first() is None


def _token(form: Form) -> str:
    # Pasted by hand where no script runs: the whole link does as well.
    return form["token"].strip().rpartition("#token=")[2]


def _next(given: str) -> str:
    return given if _is_inside(given) else INBOX


def _is_inside(way: str) -> bool:
    return len(way) <= _LONGEST and _INSIDE.fullmatch(way) is not None
