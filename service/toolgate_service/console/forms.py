"""Parsing of submitted HTML forms, and the error messages for invalid forms."""

from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import parse_qsl

from pydantic import ValidationError
from starlette.requests import Request

from toolgate_service.core import strict_json
from toolgate_service.core.concurrency import BodyParser
from toolgate_service.core.errors import REQUIRED, ApiError, FieldErrors
from toolgate_service.core.strict_json import Json
from toolgate_service.http.body_limit import MAX_OPEN_BODY, limit_body
from toolgate_service.rate_limit.auth_failures import AuthFailures

_MEDIA_TYPE = "application/x-www-form-urlencoded"
#: maximum number of fields of a submitted form; the console's forms have fewer
_MAX_FIELDS = 400

_TITLES = {
    400: "That cannot be done",
    401: "You are not signed in",
    403: "You may not do that",
    404: "There is no such page",
    405: "That is not how it is done",
    409: "Somebody was faster",
    413: "That is too much",
    421: "Unknown host name",
    429: "Too many requests",
    500: "The gateway failed",
    503: "The gateway's database cannot be used just now",
}


class Form:
    """Fields of a submitted form. `form[name]` is the first value of a field, or an empty string if it is missing."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return next((value for key, value in self._fields if key == name), "")

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self._fields)

    def all(self, name: str) -> list[str]:
        """Return all values of a field, such as those of several checkboxes with the same name."""
        return [value for key, value in self._fields if key == name]

    def text(self, name: str) -> str | None:
        """Return a field's text with normalized line breaks (LF); None if the field is missing or blank."""
        return self[name].replace("\r\n", "\n").strip() or None


async def read_open_form(request: Request) -> Form:
    """Parse a form that users submit without a session, such as the sign-in form.

    The form has a small size limit. An invalid form counts as a failed authentication of the client's address.

    Raises:
        ApiError: 429 after too many failures from this address; otherwise as in `read_form`.
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
        raise ApiError(400, f"A form is sent as {_MEDIA_TYPE}")
    body = await request.body()
    parser: BodyParser = request.app.state.gateway.parser
    try:
        fields = await parser.run(len(body), partial(_fields, body))
    except ValueError:
        raise ApiError(400, "The form cannot be read; reload the page and try again") from None
    if any("\0" in name or "\0" in value for name, value in fields):
        raise ApiError(400, "The form has a NUL character in it")
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
    """Return the number in a field without rounding; None if the field is blank.

    Raises:
        FieldErrors: The field's text is not a number.
    """
    text = form.text(name)
    if text is None:
        return None
    try:
        value = strict_json.loads(text.encode())
    except strict_json.InvalidJson:
        value = None
    if isinstance(value, bool | str | list | dict) or value is None:
        raise FieldErrors({name: [f"{text[:40]!r} is no number; write for instance 49.90"]})
    return value


def error_title(status: int) -> str:
    """Return the headline of the error page for a status code."""
    return _TITLES.get(status, "That did not work")


def error_status(error: ApiError | ValidationError) -> int:
    """Return the HTTP status of a page that shows a form again together with its error.

    Raises:
        ApiError: `error` itself if its status is 401: the session has ended, so the page must not be shown.
    """
    if not isinstance(error, ApiError):
        return 400
    if error.status_code == 401:  # noqa: PLR2004 - HTTP status
        raise error
    return error.status_code


def field_errors(error: ApiError | ValidationError) -> Mapping[str, str]:
    """Return error messages by field name; an empty mapping if the error does not concern specific fields."""
    if isinstance(error, ValidationError):
        found: dict[str, str] = {}
        for problem in error.errors():
            name = ".".join(str(part) for part in problem["loc"]) or "form"
            missing = problem["type"] in {"missing", "string_too_short"} and not problem.get("input")
            message = REQUIRED if missing else str(problem["msg"]).removeprefix("Value error, ")
            found.setdefault(name, message)
        return found
    detail = error.detail
    if error.status_code == 400 and isinstance(detail, Mapping):  # noqa: PLR2004 - of `FieldErrors`
        return {name: "; ".join(_messages(message)) for name, message in detail.items()}
    return {}


def error_message(error: ApiError | ValidationError) -> str:
    """Return an error as one line of text for an error page."""
    fields = field_errors(error)
    if fields:
        return "; ".join(f"{name}: {message}" for name, message in fields.items())
    detail = error.detail if isinstance(error, ApiError) else str(error)
    if isinstance(detail, Mapping):
        return str(detail.get("message") or detail.get("error") or error_title(400))
    return detail


def _messages(message: object) -> list[str]:
    return [str(one) for one in message] if isinstance(message, list) else [str(message)]
