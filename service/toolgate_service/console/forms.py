"""Forms as browsers send them."""

from collections.abc import Sequence
from functools import partial
from urllib.parse import parse_qsl

from starlette.requests import Request

from toolgate_service.errors import ApiError
from toolgate_service.web.auth_failures import AuthFailures
from toolgate_service.web.parsing import BodyParser
from toolgate_service.web.sizes import MAX_OPEN_BODY, limit_body

_MEDIA_TYPE = "application/x-www-form-urlencoded"
#: far more than any form of ours has
_MOST_FIELDS = 400


class Form:
    """A form's fields; what was not sent is empty."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return next((value for key, value in self._fields if key == name), "")

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self._fields)

    def all(self, name: str) -> list[str]:
        """Return every value of a field."""
        return [value for key, value in self._fields if key == name]

    def text(self, name: str) -> str | None:
        """Return a field's words; None when there are none. Line breaks are one character, as elsewhere."""
        return self[name].replace("\r\n", "\n").strip() or None


async def read_open_form(request: Request) -> Form:
    """Read a form that is sent without a session; it must be small.

    Raises:
        ApiError: as for `read_form`.
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
    """Read a request's form.

    Raises:
        ApiError: 400, it is none; 413, it is too large.
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
        max_num_fields=_MOST_FIELDS,
    )
