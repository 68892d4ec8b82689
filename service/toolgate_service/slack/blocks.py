"""Slack messages for webhook events.

Text from agents and users appears only in code, in which Slack does not interpret formatting, links or mentions. A
message has buttons only if it shows the complete context.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from toolgate_service.core import strict_json
from toolgate_service.core.ids import is_id
from toolgate_service.core.text_safety import hidden_names
from toolgate_service.db.models import TEST
from toolgate_service.slack.layout import Layout, escape_text, in_code, labelled, quoted, span
from toolgate_service.webhooks.events import resource_name

APPROVE = "toolgate.approve"
DENY = "toolgate.deny"

_VALUE = re.compile(r"v1\.([0-9a-f-]{36})\.([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pressed:
    """Press of the button "Approve" or "Deny" in a message.

    Attributes:
        approval_id: Id of the approval request.
        digest: Digest of the context that the message showed.
        approves: True for the button "Approve", False for "Deny".
    """

    approval_id: str
    digest: str
    approves: bool


def buttons(approval_id: str, digest: str) -> dict[str, Any]:
    """Return the block with the buttons of a request. The value of each button contains the request's id and digest."""
    value = f"v1.{approval_id}.{digest}"
    return {
        "type": "actions",
        "block_id": "toolgate.decide",
        "elements": [
            _button(APPROVE, "Approve", "primary", value),
            _button(DENY, "Deny", "danger", value),
        ],
    }


def parse_button(action_id: str, value: str) -> Pressed | None:
    """Parse the action id and the value of a pressed button; None if it is not a button of the gateway."""
    found = _VALUE.fullmatch(value)
    if action_id not in {APPROVE, DENY} or found is None or not is_id(found.group(1)):
        return None
    return Pressed(found.group(1), found.group(2), action_id == APPROVE)


def _button(action_id: str, text: str, style: str, value: str) -> dict[str, Any]:
    return {
        "type": "button",
        "action_id": action_id,
        "text": {"type": "plain_text", "text": text, "emoji": False},
        "style": style,
        "value": value,
    }


#: maximum number of characters in a section of a message; Slack allows 3000
MAX_SECTION = 2900
#: maximum number of characters of a context in a message; Slack allows more, but sends the message back with each
#: button press, with up to 16 bytes per character
MAX_CONTEXT = 10_000
_MOST_NAMES = 10

_FENCE = "```"
_TITLES = {
    "approval.requested": "An agent asks for approval",
    "approval.reminder": "An agent still waits for approval",
    "approval.approved": "Approved",
    "approval.denied": "Denied",
    "approval.expired": "Nobody decided in time, or it was approved and not used",
    "approval.cancelled": "Withdrawn",
    "approval.consumed": "Approved before, and now let through",
    "approval.replaced": "Approved with changes, as a request of its own",
}
#: types of events whose messages can have buttons
WAITING = frozenset({"approval.requested", "approval.reminder"})


def slack_message(payload: str) -> str:
    """Return the message for an event, as the JSON body of a request to an incoming webhook of Slack.

    Args:
        payload: JSON of the event. The context may be missing from it.
    """
    event: Any = strict_json.loads_own(payload)
    kind, data = str(event["type"]), event["data"]
    resource: dict[str, Any] = data[resource_name(kind)]
    suffix = f" · *{TEST} environment*" if data["environment"] == TEST else ""
    if resource_name(kind) == "approval":
        blocks = _approval(kind, resource, suffix)
        summary = f"{_TITLES[kind]}: {span(resource['agent_name'])} {span(resource['action'])}"
    else:
        blocks = [_section(f"*{kind}*{suffix}"), *_resource_blocks(resource)]
        summary = kind
    notice = f"[{TEST}] {summary}" if suffix else summary
    # The JSON is pure ASCII, so that no proxy can change it by Unicode normalization.
    return json.dumps({"text": notice, "blocks": blocks, "unfurl_links": False, "unfurl_media": False})


def _approval(kind: str, approval: Mapping[str, Any], suffix: str) -> list[dict[str, Any]]:
    waits = kind in WAITING
    lines = [f"*{_TITLES[kind]}*{suffix}"]
    if waits:
        lines.append(f"Waits until {_format_time(approval['expires_at'])}{_quorum(approval)}")
    blocks = [_section("\n".join(lines)), *_code(_fact_lines(approval))]
    context = approval.get("context")
    whole = None if context is None else _full_lines(context)
    if context is not None:
        blocks.append(_section("*With*"))
        blocks += _code(whole) if whole is not None else _abridged_blocks(context)
    if waits and whole is not None:
        blocks.append(buttons(approval["id"], approval["digest"]))
    elif waits:
        blocks.append(_section(_cli_hint(approval["id"], hidden=context is None)))
    blocks.append(_footer(f"Approval {approval['id']} · SHA-256 {approval['digest'][:16]}…"))
    return blocks


def _resource_blocks(resource: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    plain = {name: value for name, value in resource.items() if value is not None}
    plain = strict_json.loads_own(strict_json.dumps(plain))  # type: ignore[assignment]  # an object stays one
    whole = _full_lines(plain)
    yield from _code(whole) if whole is not None else _abridged_blocks(plain)


def _fact_lines(approval: Mapping[str, Any]) -> Iterator[str]:
    yield from labelled("agent", quoted(approval["agent_name"]))
    yield from labelled("action", in_code(approval["action"]))
    for label, name in (
        ("reason (not verified)", "reason"),
        ("run", "run_id"),
        ("call", "call_id"),
        ("note", "note"),
    ):
        if approval.get(name):
            yield from labelled(label, quoted(approval[name]))
    if approval.get("cancel_reason"):
        yield from labelled("why", quoted(approval["cancel_reason"]))
    if approval.get("replaced_by"):
        yield from labelled("goes on as", in_code(approval["replaced_by"]))
    if hidden := list(hidden_names(approval.get("context"))):
        more = f" and {len(hidden) - _MOST_NAMES} more" if len(hidden) > _MOST_NAMES else ""
        names = ", ".join(in_code(name[:100]) for name in hidden[:_MOST_NAMES])
        yield from labelled("hidden", names + more)


def _quorum(approval: Mapping[str, Any]) -> str:
    required = approval["required_approvals"]
    if required == 1:
        return ""
    approved = sum(vote["decision"] == "approved" for vote in approval["votes"])
    return f" · {approved} of {required} approved"


def _full_lines(context: Mapping[str, Any]) -> Sequence[str] | None:
    """Return all lines of a context; None if the context is too long for a message."""
    # If the JSON is too long, the lines are too: they are never much shorter than the JSON.
    if len(strict_json.dumps(dict(context))) > MAX_CONTEXT:
        return None
    lines, left = [], MAX_CONTEXT
    for line in Layout(full=True).context(context):
        left -= len(escape_text(line)) + 1
        if left < 0:
            return None
        lines.append(line)
    return lines


def _abridged_blocks(context: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    lines, left = [], MAX_CONTEXT
    for line in Layout(full=False).context(context):
        left -= len(escape_text(line)) + 1
        if left < 0:
            break
        lines.append(line)
    yield from _code(lines)
    yield _section("*This is not all of it.*")


def _code(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the lines as one or more code blocks, each of which fits into a section."""
    text = ""
    for line in chain(map(escape_text, lines), (None,)):
        if text and (line is None or len(text) + len(line) + 1 > MAX_SECTION):
            yield _section(f"{_FENCE}\n{text}{_FENCE}")
            text = ""
        if line is not None:
            text += f"{line}\n"


def _section(text: str) -> dict[str, Any]:
    # `verbatim` prevents Slack from turning text into links.
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _footer(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}


def _cli_hint(approval_id: str, *, hidden: bool) -> str:
    why = (
        "What it would be done with is not told to Slack"
        if hidden
        else "It is too long to be shown here whole"
    )
    return f"{why}, so it cannot be decided here. Look at it and decide with `toolgate approvals show {approval_id}`."


def _format_time(text: str) -> str:
    moment = datetime.fromisoformat(text).astimezone(UTC)
    # Slack shows the time in the reader's time zone. The text after the bar is the fallback.
    return f"<!date^{int(moment.timestamp())}^{{date_short_pretty}} {{time}}|{moment:%Y-%m-%d %H:%M} UTC>"
