"""Questions over MCP (elicitation), by which a client shows an approval request to its user.

The user's answer does not approve the call: an approver decides at the gateway.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

from mcp_types import (
    CallToolRequestParams,
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
)

from toolgate import ApprovalPending, ConfigurationError

__all__ = ["NOT_DECIDED", "ROUNDS", "Page", "Round", "Way", "way_to_ask"]

#: Number of questions about one pending call after which the call is cancelled; clients themselves stop after ten.
ROUNDS: Final = 8
#: Reason why a call did not run if it was cancelled without a decision; for the log entry and the model.
NOT_DECIDED: Final = (
    "The approval request was not decided and is cancelled. Calling the tool again creates a new request."
)
_DECLINED: Final = "The user declined the call in the client, and its approval request is cancelled. Do not call the tool again."
_KEY: Final = "toolgate"
_PLACE: Final = "{approval_id}"
_EMPTY_FORM: Final[dict[str, Any]] = {"type": "object", "properties": {}}
#: Form of a question: `url` opens the page of the approval request, `form` shows a message without input fields.
Way = Literal["url", "form"]


class Page:
    """Address of the web page on which approvers decide about an approval request.

    Args:
        template: The URL, with the placeholder `{approval_id}`; None if there is no page.

    Raises:
        ConfigurationError: `template` is not an HTTP URL with the placeholder.
    """

    def __init__(self, template: str | None) -> None:
        if template is not None and not _is_page(template):
            raise ConfigurationError(
                f"approval_page is {template!r}; use an address such as "
                "'https://toolgate.example.com/approvals/{approval_id}', or None"
            )
        self._template = template

    @property
    def exists(self) -> bool:
        """True if an approval page is configured."""
        return self._template is not None

    def question(
        self, way: Way, pending: ApprovalPending
    ) -> ElicitRequestURLParams | ElicitRequestFormParams:
        """Return the question about a pending call that the client shows to its user.

        The question contains the page or the command with which approvers decide.

        Args:
            way: Form in which the client can show the question.
            pending: The pending call.
        """
        waits = f"{pending.action!r} waits for a person's approval (approval {pending.approval_id})."
        if self._template is None:
            told = f"Decide with `toolgate approvals approve {pending.approval_id}`, or `deny`, then continue here."
            return ElicitRequestFormParams(message=f"{waits} {told}", requested_schema=_EMPTY_FORM)
        address = self._template.replace(_PLACE, quote(pending.approval_id, safe=""))
        if way == "form":
            told = f"Decide at {address}, then continue here."
            return ElicitRequestFormParams(message=f"{waits} {told}", requested_schema=_EMPTY_FORM)
        return ElicitRequestURLParams(
            message=f"{waits} Open the page of the request to decide.",
            url=address,
            elicitation_id=pending.approval_id,
        )


def way_to_ask(capabilities: ClientCapabilities | None, page: Page) -> Way | None:
    """Return how a client can show an approval request to its user: as a URL, as a form, or not at all (None).

    Args:
        capabilities: The client's declared capabilities.
        page: The page on which approvers decide.
    """
    elicits = None if capabilities is None else capabilities.elicitation
    if elicits is None:
        return None
    if elicits.url is not None and page.exists:
        return "url"
    # Older clients support only forms, and declare neither form nor URL.
    return "form" if elicits.form is not None or elicits.url is None else None


@dataclass(frozen=True, slots=True)
class Round:
    """Part of a tool call between two questions to the user; each answer of the user begins a new round.

    Attributes:
        guarded: Name of the guarded server; a question with another name is the tool's own.
        call_id: Id of the call, which is the same in all rounds.
        number: Number of questions that the user was asked in earlier rounds.
        answer: The user's answer to the last question, or None.
        state: The protocol's `requestState` that the tool returned with its own questions, or None.
        responses: The user's answers to the tool's own questions, or None.
    """

    guarded: str
    call_id: str
    number: int = 0
    answer: ElicitResult | None = None
    state: str | None = None
    responses: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, params: CallToolRequestParams, guarded: str) -> Round:
        """Create the round from a client's request; answers to the tool's own questions are kept for the tool.

        Args:
            params: Parameters of the request.
            guarded: Name of the guarded server.
        """
        given = params.model_dump(mode="json", by_alias=True, include={"input_responses"})
        responses = given.get("inputResponses")
        ours = _ours(params.request_state, guarded)
        if ours is None:
            return cls(guarded, secrets.token_hex(16), 0, None, params.request_state, responses)
        answer = (params.input_responses or {}).get(_KEY)
        return cls(
            guarded,
            ours["call"],
            ours["round"],
            answer if isinstance(answer, ElicitResult) else None,
            ours.get("state"),
            ours.get("responses"),
        )

    @property
    def asked(self) -> bool:
        """True if the guard already asked the user a question in an earlier round of this call."""
        return self.number > 0

    @property
    def given_up(self) -> str | None:
        """Reason why the user's answer cancels the call; None if there is no answer, or the user accepted."""
        if self.answer is None or self.answer.action == "accept":
            return None
        return _DECLINED if self.answer.action == "decline" else NOT_DECIDED

    def answered(self, answer: ElicitResult) -> Round:
        """Return the next round; used if the client sends the user's answer while the same request is still open."""
        return replace(self, number=self.number + 1, answer=answer)

    def required(self, question: ElicitRequestURLParams | ElicitRequestFormParams) -> InputRequiredResult:
        """Return a result that makes the client show the question to its user, and then send a new request."""
        kept: dict[str, Any] = {_KEY: self.guarded, "call": self.call_id, "round": self.number + 1}
        if self.state is not None:
            kept["state"] = self.state
        if self.responses is not None:
            kept["responses"] = self.responses
        return InputRequiredResult(
            input_requests={_KEY: ElicitRequest(params=question)}, request_state=json.dumps(kept)
        )

    def restored(self, params: CallToolRequestParams, arguments: dict[str, Any]) -> CallToolRequestParams:
        """Return the request that the tool receives: with its own state and answers, and with the approved arguments.

        Args:
            params: Parameters of the client's request.
            arguments: The approved arguments.
        """
        wire = params.model_dump(mode="json", by_alias=True, exclude_none=True)
        for name, value in (("requestState", self.state), ("inputResponses", self.responses)):
            wire.pop(name, None)
            if value is not None:
                wire[name] = value
        return CallToolRequestParams.model_validate({**wire, "arguments": arguments})


def _ours(state: str | None, guarded: str) -> dict[str, Any] | None:
    try:
        found = json.loads(state or "null")
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get(_KEY) != guarded:
        return None
    whole = isinstance(found.get("call"), str) and type(found.get("round")) is int
    return found if whole else None


def _is_page(template: object) -> bool:
    if not isinstance(template, str) or _PLACE not in template or not template.isprintable():
        return False
    try:
        parts = urlsplit(template)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.username is None
    except ValueError:
        return False
