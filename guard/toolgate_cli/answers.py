"""What the gateway answers on the management surface: read, or told as one line."""

import json
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from toolgate._capture.jsontext import read_decimal
from toolgate._http.messages import Response
from toolgate_cli.visible import visible

Model = TypeVar("Model", bound=BaseModel)

#: of something in front of the gateway, of a gateway that is just starting or stopping, or that is asked too often
_PASSING = frozenset({
    HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
})  # fmt: skip


class ManagementError(Exception):
    """The gateway refused or did not answer; the message is one line, for the user.

    Attributes:
        status: the answer's, or None when there was none that could be read.
        unanswered: nobody answered.
        detail: what the gateway said, without the rest of the message; safe to print.
        changing: it was a request that changes something.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        detail: str = "",
        unanswered: bool = False,
        changing: bool = False,
    ) -> None:
        super().__init__(message)
        self.unanswered = unanswered
        self.status = status
        self.detail = detail
        self.changing = changing

    @property
    def may_pass(self) -> bool:
        """Whether the same may be answered in a moment."""
        return self.unanswered or self.status in _PASSING

    @property
    def is_login_over(self) -> bool:
        """Whether the token does not work, or no longer."""
        return self.status == HTTPStatus.UNAUTHORIZED

    @property
    def leaves_unknown(self) -> bool:
        """Whether nobody can tell if what was asked for was done."""
        if self.unanswered or self.status is None:
            return self.changing
        # A refusal changes nothing; what is neither a refusal nor readable may have.
        refused = HTTPStatus.MULTIPLE_CHOICES <= self.status < HTTPStatus.INTERNAL_SERVER_ERROR
        return self.changing and not refused


def read_answer(answer: Response, method: str, path: str) -> Any:
    """Return what an answer says.

    Raises:
        ManagementError: it is a refusal, or no JSON.
    """
    try:
        # Decimals, so that what is shown has the digits that were sent.
        content = (
            json.loads(answer.body, parse_float=read_decimal, parse_constant=_no_number)
            if answer.body
            else None
        )
    except (ValueError, RecursionError):
        raise ManagementError(
            f"the gateway answered {method} {path!r} with {answer.status} and something else than JSON",
            status=answer.status,
            changing=method != "GET",
        ) from None
    if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        detail = _told(content)
        message = f"the gateway refused {method} {path!r} with {answer.status}: {detail}"
        raise ManagementError(message, status=answer.status, detail=detail, changing=method != "GET")
    return content


def read_as(model: type[Model], content: Any, kind: str) -> Model:
    """Return a thing from the gateway's JSON.

    Raises:
        ManagementError: it is none.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise ManagementError(
            f"the gateway answered with something that is no {kind}: its {visible(where)!r} is wrong"
        ) from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _told(content: Any) -> str:
    detail = content.get("detail", content.get("message")) if isinstance(content, dict) else content
    if isinstance(detail, dict):
        # Limits of the plan are objects with a message of their own (spec §7).
        if "error" in detail and isinstance(detail.get("message"), str):
            return visible(detail["message"])
        fields = (f"{name}: {', '.join(map(str, _listed(told)))}" for name, told in detail.items())
        return visible("; ".join(fields))
    return visible(detail)


def _listed(told: object) -> list[object]:
    return told if isinstance(told, list) else [told]
