"""Shared parts of all console pages: submitted forms, the signed-in user, the environment, and role checks."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias
from urllib.parse import parse_qsl, urlencode

from pydantic import ValidationError
from sqlmodel import col, select
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolgate_service.accounts.models import VIEWER, User
from toolgate_service.accounts.sessions import Caller
from toolgate_service.console import security
from toolgate_service.core import strict_json
from toolgate_service.core.concurrency import BodyParser
from toolgate_service.core.errors import REQUIRED, ApiError, FieldErrors
from toolgate_service.core.strict_json import Json
from toolgate_service.db.models import ENVIRONMENTS, PRODUCTION, TEST
from toolgate_service.gateway import Gateway
from toolgate_service.http.body_limit import MAX_OPEN_BODY, limit_body
from toolgate_service.http.dependencies import admin, caller_of, changing, full_scope
from toolgate_service.organizations.models import Organization
from toolgate_service.rate_limit.auth_failures import AuthFailures

_MEDIA_TYPE = "application/x-www-form-urlencoded"
#: Maximum number of fields in a submitted form. The largest form of the console has fewer.
_MAX_FIELDS = 400

_TITLES = {
    400: "The request is not valid",
    401: "You are not signed in",
    403: "You are not allowed to do this",
    404: "Page not found",
    405: "This page does not support the HTTP method of the request",
    409: "The data has changed since you opened the page",
    413: "The request is too large",
    421: "Unknown host name",
    429: "Too many requests",
    500: "The gateway failed",
    503: "The gateway's database is unavailable",
}


class Form:
    """Fields of a submitted HTML form.

    `form[name]` is the first value of the named field, or an empty string if the form does not contain the field.
    """

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return next((value for key, value in self._fields if key == name), "")

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self._fields)

    def all(self, name: str) -> list[str]:
        """Return all values of the named field, such as one value per checked box of a group of checkboxes."""
        return [value for key, value in self._fields if key == name]

    def text(self, name: str) -> str | None:
        """Return the text of the named field with line breaks as LF; None if the field is missing or blank."""
        return self[name].replace("\r\n", "\n").strip() or None


async def read_open_form(request: Request) -> Form:
    """Parse a form that users submit before they are signed in, such as the sign-in form.

    The form may contain only a few kilobytes. An invalid form counts as a failed sign-in of the client's IP address.

    Raises:
        ApiError: 429 after too many failures of this IP address; 400 if the body is not a valid form; 413 if the body
            is too large.
    """
    failures: AuthFailures = request.app.state.gateway.auth_failures
    address = request.client.host if request.client else None
    await failures.admit_open(address)
    limit_body(request.scope, MAX_OPEN_BODY)
    try:
        return await read_form(request)
    except ApiError:
        failures.count(address)
        raise


async def read_form(request: Request) -> Form:
    """Parse the form in the request body.

    Raises:
        ApiError: 400 if the body is not a valid form, 413 if the body is too large.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _MEDIA_TYPE:
        raise ApiError(400, f"The form must be sent as {_MEDIA_TYPE}")
    body = await request.body()
    parser: BodyParser = request.app.state.gateway.parser
    try:
        fields = await parser.run(len(body), partial(_fields, body))
    except ValueError:
        raise ApiError(400, "The form cannot be read; reload the page and try again") from None
    if any("\0" in name or "\0" in value for name, value in fields):
        raise ApiError(400, "The form contains a NUL character; remove it and try again")
    return Form(fields)


def _fields(body: bytes) -> list[tuple[str, str]]:
    text = body.decode("ascii")
    return parse_qsl(
        text,
        keep_blank_values=True,
        strict_parsing=bool(text),
        errors="strict",
        max_num_fields=_MAX_FIELDS,
    )


def read_number(form: Form, name: str) -> Json:
    """Return the number in the named field without rounding; None if the field is blank.

    Raises:
        FieldErrors: The field contains text that is not a number.
    """
    text = form.text(name)
    if text is None:
        return None
    try:
        value = strict_json.loads(text.encode())
    except strict_json.InvalidJson:
        value = None
    if isinstance(value, bool | str | list | dict) or value is None:
        raise FieldErrors({name: [f"{text[:40]!r} is not a number; enter a number such as 49.90"]})
    return value


def error_title(status: int) -> str:
    """Return the headline of the error page for a status code."""
    return _TITLES.get(status, "The request failed")


def error_status(error: ApiError | ValidationError) -> int:
    """Return the HTTP status for the page that shows a rejected form again, together with the error message.

    Raises:
        ApiError: `error` itself, if its status is 401: the user's session has ended, so the page must not be shown.
    """
    if not isinstance(error, ApiError):
        return 400
    if error.status_code == 401:  # noqa: PLR2004 - HTTP status
        raise error
    return error.status_code


def field_errors(error: ApiError | ValidationError) -> Mapping[str, str]:
    """Return error messages by field name; an empty mapping if the error does not belong to specific fields."""
    if isinstance(error, ValidationError):
        found: dict[str, str] = {}
        for problem in error.errors():
            name = ".".join(str(part) for part in problem["loc"]) or "form"
            missing = problem["type"] in {"missing", "string_too_short"} and not problem.get("input")
            message = REQUIRED if missing else str(problem["msg"]).removeprefix("Value error, ")
            found.setdefault(name, message)
        return found
    detail = error.detail
    if error.status_code == 400 and isinstance(detail, Mapping):  # noqa: PLR2004 - status of `FieldErrors`
        return {name: "; ".join(_messages(message)) for name, message in detail.items()}
    return {}


def error_message(error: ApiError | ValidationError) -> str:
    """Return the error message for a page, as one line of text."""
    fields = field_errors(error)
    if fields:
        return "; ".join(f"{name}: {message}" for name, message in fields.items())
    detail = error.detail if isinstance(error, ApiError) else str(error)
    if isinstance(detail, Mapping):
        return str(detail.get("message") or detail.get("error") or error_title(400))
    return detail


def _messages(message: object) -> list[str]:
    return [str(one) for one in message] if isinstance(message, list) else [str(message)]


#: Value that is stored with each decision to mark that it was made in the console. Decisions made in Slack have
#: ``slack``.
VIA = "console"
#: Request header that the console's scripts send when they need an HTML fragment instead of a whole page.
PART = "x-toolgate-part"
#: Value of the header `PART` in a request for a fragment that contains all arguments in full. The script of the page
#: that shows a single approval request sends this value.
WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class PageContext:
    """Request of a signed-in user to a console page.

    Attributes:
        caller: The signed-in user with role and organization. Service functions check permissions against it.
        email: The user's e-mail address.
        organization: Name of the user's organization.
        environment: Environment whose data the page shows: ``production`` or ``test``.
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
        """Token that every form on the page contains as protection against cross-site request forgery (CSRF)."""
        return security.form_token(self.gateway, self.caller.session_id)

    @property
    def wants_part(self) -> bool:
        """True if a script of the console sent the request and needs an HTML fragment instead of a whole page."""
        return PART in self.request.headers

    @property
    def wants_whole(self) -> bool:
        """True if the response must contain all arguments in full, as on the page of one approval request."""
        return self.request.headers.get(PART, WHOLE) == WHOLE

    @property
    def may_decide(self) -> bool:
        """True if the user may decide approval requests. Pages show forms that change data only to these users.

        Hiding a form is not an access check: the service functions check the role.
        """
        return self.caller.role != VIEWER and self.caller.organization_is_active

    @property
    def may_administer(self) -> bool:
        """True if the user may change settings, so that pages show the forms for administrators.

        This only hides forms from other users; the service functions check the role.
        """
        return self.may_decide and self.caller.is_admin

    def param(self, name: str) -> str:
        """Return the named parameter of the request's URL path, such as `agent_id`."""
        value: str = self.request.path_params[name]
        return value

    def url(self, path: str, **query: object) -> str:
        """Return the URL of a console page for the same environment, production or test, as this page."""
        if self.is_test:
            query = {"environment": TEST, **query}
        return f"{path}?{urlencode(query)}" if query else path


PageFunction: TypeAlias = Callable[[PageContext], Awaitable[Response]]
FormFunction: TypeAlias = Callable[[PageContext, Form], Awaitable[Response]]
#: Function that shows a page again after the gateway rejected its form. Its arguments are the page, the HTTP status and
#: `message`. If the page keeps the user's input, the function also accepts `typed`.
ErrorFunction: TypeAlias = Callable[..., Awaitable[Response]]


def page_route(path: str, show: PageFunction) -> Route:
    """Return the route of a console page that every signed-in user may view."""

    async def endpoint(request: Request) -> Response:
        return await show(await load_page_context(request))

    return Route(path, endpoint, methods=["GET"])


def form_route(
    path: str,
    handle: FormFunction,
    *,
    authorize: Callable[[Caller], Awaitable[Caller]] | None = None,
    on_error: ErrorFunction | None = None,
    keeps_input: bool = False,
) -> Route:
    """Return the route to which browsers submit a form.

    The route checks the form's CSRF token before it calls `handle`.

    Args:
        path: URL path of the route.
        handle: Function that processes the form.
        authorize: Function that raises an `ApiError` if the user may not submit the form. By default, users who may not
            decide approval requests are rejected.
        on_error: Function that shows the form again after `handle` has rejected it. By default, an error page is shown.
        keeps_input: True if the form that `on_error` shows contains the rejected input, so that the user can correct
            it.
    """

    async def endpoint(request: Request) -> Response:
        page = await load_page_context(request)
        form = await read_form(request)
        security.check_form_token(page.gateway, page.caller.session_id, form["token"])
        if authorize is not None:
            await authorize(page.caller)
        else:
            await full_scope(await changing(page.caller))
        if on_error is None:
            return await handle(page, form)
        try:
            return await handle(page, form)
        except (ApiError, ValidationError) as error:
            typed = {"typed": form} if keeps_input else {}
            return await on_error(page, error_status(error), message=error_message(error), **typed)

    return Route(path, endpoint, methods=["POST"])


REPEATED = (
    "This form was submitted before, or another user changed the same data first, so nothing was changed now. Open the "
    "page again and check whether your change is still needed"
)


def check_not_repeated(form: Form, newest: str | None) -> None:
    """Check that a form that creates an object has not been submitted before.

    A new secret must not be part of a URL, so the page that shows it is the direct response to the form, and reloading
    the page submits the form again. Each form therefore contains the id of the newest object at the time when the form
    was rendered. If a newer object exists now, the form is rejected.

    Args:
        form: The submitted form.
        newest: Id of the newest object now; None or empty if none exists.

    Raises:
        ApiError: 409 if a newer object exists than at the time when the form was rendered.
    """
    if form["newest"] != (newest or ""):
        raise ApiError(409, REPEATED)


async def allow_user(caller: Caller) -> Caller:
    """Return the caller without a check, for forms that every signed-in user may submit."""
    return caller


async def require_editor(caller: Caller) -> Caller:
    """Return the caller if it is a member or an administrator of an active organization.

    Raises:
        ApiError: 403 if the caller is only a viewer, or the organization is inactive.
    """
    return await changing(caller)


async def require_admin(caller: Caller) -> Caller:
    """Return the caller if it is an administrator of an active organization.

    Raises:
        ApiError: 403 if the caller has another role, or the organization is inactive.
    """
    return await admin(await full_scope(await changing(caller)))


async def require_key_reader(caller: Caller) -> Caller:
    """Return the caller if it may view API keys in full. The organization may be inactive.

    Raises:
        ApiError: 403 if the caller may not view API keys.
    """
    return caller if caller.sees_keys else await require_admin(caller)


async def load_page_context(request: Request) -> PageContext:
    """Authenticate the user by the session cookie, and return the context of the requested page.

    Raises:
        ApiError: 401 if the request has no valid session; 400 if the environment in the URL is unknown.
    """
    gateway: Gateway = request.app.state.gateway
    caller = replace(
        await caller_of(request, gateway, security.read_session_cookie(request, gateway)), via=VIA
    )
    environment = request.query_params.get("environment", PRODUCTION)
    if environment not in ENVIRONMENTS:
        raise ApiError(400, f"Unknown environment {environment[:40]!r}: expected production or test")
    query = (
        select(User.email, Organization.name)
        .join(Organization, col(Organization.id) == User.organization_id)
        .where(User.id == caller.user_id)
    )
    async with gateway.database.reading() as session:
        email, organization = (await session.exec(query)).one()
    return PageContext(request, gateway, caller, email, organization, environment)
