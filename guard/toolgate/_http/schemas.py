"""Strict models of the gateway's responses, and a parser that raises an exception for all other responses."""

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
from toolgate._http.exchange import Response, gateway_reached, is_from_proxy
from toolgate._http.retry import RetryableError, retry_after
from toolgate._settings import Settings, masked
from toolgate.errors import ConfigurationError, GatewayProtocolError, GatewayUnavailable

__all__ = [
    "ApprovalResponse",
    "CheckResponse",
    "DryRunResponse",
    "LogResponse",
    "ResponseParser",
    "media_type",
]

_STRICT = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


def _unicode(text: str) -> str:
    # JSON strings can contain lone surrogates, which cannot be encoded as UTF-8. Such a string is rejected, because the
    # SDK could not send it back to the gateway in a log entry.
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text is not valid Unicode") from None
    return text


_Text: TypeAlias = Annotated[str, AfterValidator(_unicode)]
_Id: TypeAlias = Annotated[_Text, StringConstraints(min_length=1)]


class CheckResponse(BaseModel):
    """Response of `POST /sdk/check`."""

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
            raise ValueError(
                "'allowed' is true, but the response also contains a reason, an approval or requires_approval"
            )
        if self.requires_approval and not self.approval_id and not self._dry:
            raise ValueError("'requires_approval' is true without an approval_id")
        if not self.requires_approval and self.approval_id is not None:
            raise ValueError("the response contains an 'approval_id', although 'requires_approval' is false")
        if not self.allowed and not self.requires_approval and self.reason is None:
            raise ValueError("the response denies the action without a reason")
        return self


class DryRunResponse(CheckResponse):
    """Response of `POST /sdk/check` with `dry_run`, which creates no approval request."""

    _dry: ClassVar[bool] = True


class ApprovalResponse(BaseModel):
    """Response of `GET /sdk/approvals/{id}` and `POST …/cancel`; the model omits fields that the SDK does not use."""

    model_config = _STRICT

    id: str
    status: Literal["pending", "approved", "denied", "expired", "cancelled", "replaced", "consumed"]
    note: _Text | None = None
    # The following fields are optional, because older gateways do not send them.
    agent_id: _Text | None = None
    action: _Text | None = None
    context: dict[_Text, Any] | None = None
    replaced_by: _Id | None = None
    approved_context: dict[_Text, Any] | None = None


class LogResponse(BaseModel):
    """Response of `POST /sdk/log`: a log entry with all its fields."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, hide_input_in_errors=True)

    id: str
    agent_id: str
    action: str
    status: str

    def as_dict(self) -> dict[str, Any]:
        """Return the entry as the gateway sent it."""
        return self.model_dump()


_Model = TypeVar("_Model", bound=BaseModel)
_MAX_DETAIL: Final = 300


class ResponseParser:
    """Parses responses of one gateway.

    Args:
        settings: Settings that contain the gateway's address and the API key. Error messages contain the address; the
            API key is masked in them.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def parse(self, response: Response, model: type[_Model], *, exact_numbers: bool = False) -> _Model:
        """Validate a response and return it as `model`; `exact_numbers` parses numbers with a fraction as `Decimal`.

        Raises:
            RetryableError: For the statuses 429 and 5xx.
            ConfigurationError: If the gateway rejects the API key.
            GatewayProtocolError: For any other response that does not have the documented form.
        """
        if response.status != HTTPStatus.OK:
            raise self._failure(response)
        content_type = media_type(response)
        if content_type != "application/json":
            raise self._unexpected(response, f"the content type is {content_type!r} and not JSON")
        try:
            return model.model_validate(_json(response.body, exact_numbers=exact_numbers))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise self._unexpected(response, f"{where or 'response'}: {first['msg']}") from error
        except (ValueError, RecursionError) as error:
            raise self._unexpected(response, "the content is not valid JSON") from error

    def _failure(self, response: Response) -> Exception:
        status, detail = response.status, self._detail(response)
        if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            pause = retry_after(response.headers.get("retry-after"), datetime.now(UTC))
            return RetryableError(self._unavailable(response, detail), pause)
        if status == HTTPStatus.UNAUTHORIZED:
            return ConfigurationError(
                f"the gateway at {self._settings.url!r} refuses the API key {masked(self._settings.api_key)!r}: "
                f"{detail or 'no detail'}; set TOOLGATE_API_KEY to a valid key of an active organization"
            )
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            return self._unexpected(
                response, "the SDK follows no redirects; set TOOLGATE_URL to the gateway's own address"
            )
        return self._unexpected(response, detail or "no detail")

    def _unavailable(self, response: Response, detail: str) -> GatewayUnavailable:
        answered = not is_from_proxy(response.status, response.headers)
        sender = "the gateway" if answered else "a proxy before the gateway"
        return GatewayUnavailable(
            f"{sender} at {self._settings.url!r} answers {response.status}: {detail or 'no detail'}",
            status=response.status,
            answered=answered,
            reached=gateway_reached(response.status, response.headers),
        )

    def _unexpected(self, response: Response, reason: str) -> GatewayProtocolError:
        return GatewayProtocolError(
            f"unexpected response with status {response.status} from {self._settings.url!r}: {reason}",
            status=response.status,
        )

    def _detail(self, response: Response) -> str:
        try:
            body: Any = _json(response.body)
        except (ValueError, RecursionError):
            return ""
        detail = body.get("detail", "") if isinstance(body, dict) else ""
        if isinstance(detail, dict):
            # If a limit of the organization's plan is exceeded, `detail` is an object with the member `message`. After
            # a validation error, `detail` maps fields to messages.
            message = detail.get("message")
            detail = message if isinstance(message, str) else str(detail)
        text = "".join(char if char.isprintable() else " " for char in str(detail))
        return text.replace(self._settings.api_key, masked(self._settings.api_key))[:_MAX_DETAIL]


def media_type(response: Response) -> str:
    """Return the content type of a response in lower case, without parameters such as `charset`."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _json(body: bytes, *, exact_numbers: bool = False) -> Any:
    # JSON between systems must be UTF-8 (RFC 8259, section 8.1). Without this check, `json` would also accept UTF-16
    # and UTF-32.
    body.decode()
    if b"\0" in body:
        raise ValueError("the text is not JSON in UTF-8")
    return loads(body, exactly=exact_numbers)
