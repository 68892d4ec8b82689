"""Answers and refusals of the fake gateway, in the shapes of the real one's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolgate._capture.jsontext import Json, dumps
from toolgate._http.messages import Response

__all__ = ["REQUIRED", "Refusal", "fields_refused", "json_answer"]

REQUIRED: Final = "This field is required"
_VERSION: Final = "2026-11-20"


class Refusal(Exception):
    """The request is answered with an error.

    Args:
        status: The answer's status.
        detail: What it says.
    """

    def __init__(self, status: int, detail: Json) -> None:
        super().__init__(str(detail))
        self.status = status
        self.detail = detail


def fields_refused(problems: Mapping[str, list[str]]) -> Refusal:
    """The 400 that names fields."""
    return Refusal(400, {name: list(messages) for name, messages in problems.items()})


def json_answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer of the gateway's own."""
    given = {"content-type": "application/json", "x-api-version": _VERSION, **(headers or {})}
    return Response(status, given, dumps(content).encode())
