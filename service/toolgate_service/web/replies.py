"""Answers as exact JSON: decimals keep their digits, moments their microseconds."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel
from starlette.responses import Response

from toolgate_service import exact_json

NO_STORE = {"Cache-Control": "no-store"}


class Reply(Response):
    """A JSON answer made of models, lists of them, or plain values."""

    media_type = "application/json"

    def __init__(self, content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(_plain(content), status_code=status, headers=headers)

    def render(self, content: object) -> bytes:
        """Write the content."""
        return exact_json.dumps(content).encode()


class NoContent(Response):
    """204, no body."""

    def __init__(self) -> None:
        super().__init__(status_code=204)


def _plain(content: object) -> object:
    match content:
        case BaseModel():
            return content.model_dump()
        case str() | bytes():
            return content
        case Sequence():
            return [_plain(item) for item in content]
    return content
