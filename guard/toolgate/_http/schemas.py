"""The wire shapes the SDK reads, strictly: what is not exactly as promised decides nothing."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, model_validator

__all__ = ["ApprovalAnswer", "CheckAnswer", "DryCheckAnswer", "LogAnswer"]

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
