"""Forms as browsers send them."""

from collections.abc import Sequence
from urllib.parse import parse_qsl

from starlette.requests import Request

from toolgate_service.errors import ApiError

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


async def read_form(request: Request) -> Form:
    """Read a request's form.

    Raises:
        ApiError: 400, it is none; 413, it is too large.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _MEDIA_TYPE:
        raise ApiError(400, f"A form is sent as {_MEDIA_TYPE}")
    try:
        text = (await request.body()).decode("ascii")
        fields = parse_qsl(
            text,
            keep_blank_values=True,
            strict_parsing=bool(text),
            errors="strict",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError:
        raise ApiError(400, "The form cannot be read; reload the page and try again") from None
    if any("\0" in name or "\0" in value for name, value in fields):
        raise ApiError(400, "The form has a NUL character in it")
    return Form(fields)
