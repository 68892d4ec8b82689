"""Pydantic models of the gateway's responses, and the errors for responses that match none."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    StringConstraints,
    ValidationError,
    model_validator,
)

from toolgate._capture.jsontext import loads
from toolgate._http.connection import from_a_proxy, reached_behind
from toolgate._http.messages import Answer
from toolgate._http.retry import Transient, retry_after
from toolgate.errors import ConfigurationError, GatewayProtocolError, GatewayUnavailable
from toolgate.settings import Settings, masked

__all__ = ["ApprovalAnswer", "CheckAnswer", "DryCheckAnswer", "LogAnswer", "Reader"]

_STRICT = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


def _unicode(text: str) -> str:
    # JSON can spell half a character. Nothing that contains one can be sent on, not even in a log entry.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text is no Unicode") from None
    return text


_Text: TypeAlias = Annotated[str, AfterValidator(_unicode)]
_Id: TypeAlias = Annotated[_Text, StringConstraints(min_length=1)]


class CheckAnswer(BaseModel):
    """Answer of `POST /sdk/check` (spec §2, Check result)."""

    model_config = _STRICT

    allowed: bool
    requires_approval: bool
    reason: _Text | None
    approval_id: _Text | None

    _dry: ClassVar[bool] = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.allowed and (
            self.requires_approval or self.reason is not None or self.approval_id is not None
        ):
            raise ValueError("'allowed' is true beside a reason, an approval or requires_approval")
        if self.requires_approval and not self.approval_id and not self._dry:
            raise ValueError("'requires_approval' is true without an approval_id")
        if not self.requires_approval and self.approval_id is not None:
            raise ValueError("'approval_id' is set although nothing requires approval")
        if not self.allowed and not self.requires_approval and self.reason is None:
            raise ValueError("the action is blocked without a reason")
        return self


class DryCheckAnswer(CheckAnswer):
    """The answer when nobody was to be asked: what would be held has no approval yet (decisions §4)."""

    _dry: ClassVar[bool] = True


class ApprovalAnswer(BaseModel):
    """Answer of `GET /sdk/approvals/{id}` and its `cancel` (decisions §3), as far as a waiting call needs it."""

    model_config = _STRICT

    id: str
    status: Literal["pending", "approved", "denied", "expired", "cancelled", "replaced", "consumed"]
    note: _Text | None = None
    # Absent from older gateways.
    agent_id: _Text | None = None
    action: _Text | None = None
    context: dict[_Text, Any] | None = None
    replaced_by: _Id | None = None
    approved_context: dict[_Text, Any] | None = None


class LogAnswer(BaseModel):
    """Answer of `POST /sdk/log` (spec §4): a log entry, handed on whole."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, hide_input_in_errors=True)

    id: str
    agent_id: str
    action: str
    status: str

    def as_dict(self) -> dict[str, Any]:
        """The entry as the gateway sent it."""
        return self.model_dump()


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
