"""Judges answers: which failure is whose, and what the error says. No request is made here."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from toolgate._capture.jsontext import loads
from toolgate._http.faults import from_a_proxy, reached_behind
from toolgate._http.messages import Answer
from toolgate._http.retries import Transient, retry_after
from toolgate.errors import ConfigurationError, GatewayProtocolError, GatewayUnavailable
from toolgate.settings import Settings, masked

__all__ = ["Reader"]

_Model = TypeVar("_Model", bound=BaseModel)
_MAX_DETAIL: Final = 300


class Reader:
    """Reads answers of the gateway at one address.

    Args:
        settings: Names the gateway in errors; the key in them is masked even if an answer echoes it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def read(self, answer: Answer, model: type[_Model], *, exactly: bool = False) -> _Model:
        """The answer as `model`, numbers with a fraction as decimals if they are to be compared `exactly`.

        Raises:
            Transient: 429 or 5xx: it may pass.
            ConfigurationError: The gateway refuses the API key.
            GatewayProtocolError: Anything else that is not the promised answer.
        """
        if answer.status != HTTPStatus.OK:
            raise self._failure(answer)
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise self._not_the_gateway(answer, f"the content is {kind or 'of no type'!r} and not JSON")
        try:
            return model.model_validate(_json(answer.body, exactly=exactly))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise self._not_the_gateway(answer, f"{where or 'answer'}: {first['msg']}") from error
        except (ValueError, RecursionError) as error:
            raise self._not_the_gateway(answer, "the content is no JSON") from error

    def _failure(self, answer: Answer) -> Exception:
        status, detail = answer.status, self._detail(answer)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return Transient(self._unavailable(answer, detail), _pause(answer))
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return Transient(self._unavailable(answer, detail), _pause(answer))
        if status == HTTPStatus.UNAUTHORIZED:
            return ConfigurationError(
                f"the gateway at {self._settings.url!r} refuses the API key {masked(self._settings.api_key)!r}: "
                f"{detail or 'no detail'}; set TOOLGATE_API_KEY to a valid key of an active organization"
            )
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            return self._not_the_gateway(
                answer, "a redirect, which is never followed; set TOOLGATE_URL to the gateway's own address"
            )
        return self._not_the_gateway(answer, detail or "no detail")

    def _unavailable(self, answer: Answer, detail: str) -> GatewayUnavailable:
        status, answered = answer.status, not from_a_proxy(answer.status, answer.headers)
        who = "the gateway" if answered else "a proxy before the gateway"
        return GatewayUnavailable(
            f"{who} at {self._settings.url!r} answers {status}: {detail or 'no detail'}",
            status=status,
            answered=answered,
            reached=reached_behind(status, answer.headers),
        )

    def _not_the_gateway(self, answer: Answer, what: str) -> GatewayProtocolError:
        return GatewayProtocolError(
            f"unexpected answer {answer.status} from {self._settings.url!r}: {what}", status=answer.status
        )

    def _detail(self, answer: Answer) -> str:
        try:
            body: Any = _json(answer.body)
        except (ValueError, RecursionError):
            return ""
        detail = body.get("detail", "") if isinstance(body, dict) else ""
        if isinstance(detail, dict):
            # Plan limits are objects with a message, validation errors map fields to messages (spec §7).
            told = detail.get("message")
            detail = told if isinstance(told, str) else str(detail)
        text = "".join(char if char.isprintable() else " " for char in str(detail))
        return text.replace(self._settings.api_key, masked(self._settings.api_key))[:_MAX_DETAIL]


def _json(body: bytes, *, exactly: bool = False) -> Any:
    # JSON between systems is UTF-8 (RFC 8259, 8.1). Left to itself the library guesses, also UTF-16 and
    # UTF-32, in which every ASCII character has a zero byte.
    body.decode()
    if b"\0" in body:
        raise ValueError("the text is no JSON in UTF-8")
    return loads(body, exactly=exactly)


def _pause(answer: Answer) -> float | None:
    return retry_after(answer.headers.get("retry-after"), datetime.now(UTC))
