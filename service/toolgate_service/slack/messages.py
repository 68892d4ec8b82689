"""Slack messages for webhook events.

Text from agents and users appears only in code, in which Slack does not interpret formatting, links or mentions. A
message has buttons only if it shows the complete context.

A context is shown as lines of a code block, in which no value can imitate another field. Strings and unusual names are
quoted, and invisible characters are escaped. Every line begins with a bar (│), and bars in values are escaped.
Therefore a reader can distinguish a new line from the rest of a line that Slack wraps.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain
from typing import Any

from toolgate_service.core import strict_json
from toolgate_service.core.text_safety import (
    hidden_names,
    in_reading_order,
    is_hidden,
    redacted_text,
    visible,
)
from toolgate_service.db.models import TEST
from toolgate_service.slack.schemas import APPROVE, DENY
from toolgate_service.webhooks.events import resource_name

#: Characters that are escaped in values, so that a value cannot imitate other parts of the message: the bar, with which
#: each line of a context begins; the backquote, which can end a code block; and each space after another space, because
#: many spaces move the text that follows them to where Slack shows the next line.
_RESERVED = re.compile("[`│]|(?<= ) +")


def in_code(text: object, *, quote: str = "") -> str:
    """Return a text for use in a code block, on one line, with invisible and reserved characters escaped."""
    return _RESERVED.sub(lambda found: "".join(map(_escape, found.group())), visible(text, quote=quote))


def escape_text(text: str) -> str:
    """Escape the three characters that start links, mentions and entities in Slack."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def span(text: object) -> str:
    """Return a text as inline code, in which Slack does not interpret formatting, links or mentions."""
    return f"`{escape_text(in_code(text))}`"


def _escape(char: str) -> str:
    return f"\\x{ord(char):02x}" if char.isascii() else f"\\u{ord(char):04x}"


#: limits of a shortened context: maximum characters of a string, and maximum members of a list or an object
MAX_TEXT = 500
MAX_MEMBERS = 30

WIDTH = 72
BAR = "│ "
#: maximum indent in characters, so that deeply nested values still have most of the line
_MAX_INDENT = 32
_STEP = 2
_MAX_NAME = 60
_MAX_NAME_COLUMN = 22
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")
_DIGEST = re.compile(r"[a-z0-9-]{1,20}:[0-9a-f]{8,128}")
# Matches one escape sequence or one character. Lines are wrapped only between two such pieces.
_PIECE = re.compile(r"\\(?:U[0-9a-f]{8}|u[0-9a-f]{4}|x[0-9a-f]{2}|.)|.", re.DOTALL)


class Layout:
    """Formatter of a context.

    Args:
        full: True to format the complete context; False to shorten long values.

    Attributes:
        cut: Number of values that were shortened.
    """

    def __init__(self, *, full: bool) -> None:
        self._full = full
        self.cut = 0

    def context(self, context: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines of a context. Important fields, such as amounts and recipients, come first."""
        if is_hidden(context):
            yield from _wrapped(BAR, "", _hidden(context))
        elif not context:
            yield f"{BAR}(no arguments)"
        else:
            yield from self._members([(_name(name), value) for name, value in in_reading_order(context)], 0)

    def _members(self, members: list[tuple[str, Any]], depth: int) -> Iterator[str]:
        shown = members if self._full else members[:MAX_MEMBERS]
        column = min(max((len(name) for name, _ in shown), default=0), _MAX_NAME_COLUMN) + 2
        margin = BAR + " " * min(depth * _STEP, _MAX_INDENT)
        for name, value in shown:
            if _has_members(value):
                yield from _wrapped(margin, name, "")
                yield from self._members(_inside(value), depth + 1)
            else:
                yield from _wrapped(margin, f"{name:<{column}}", self._one(value))
        if len(shown) < len(members):
            self.cut += 1
            yield f"{margin}… {len(members) - len(shown):,} more, not shown"

    def _one(self, value: Any) -> str:
        if is_hidden(value):
            return _hidden(value)
        if (text := redacted_text(value)) is not None:
            return f"{self._text(text)} ({_hidden(value, 'partly hidden from you')})"
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bool) or value is None:
            return {True: "true", False: "false", None: "null"}[value]
        if isinstance(value, Decimal):
            return f"{value:f}"
        return "{}" if isinstance(value, dict) else "[]" if isinstance(value, list) else in_code(value)

    def _text(self, value: str) -> str:
        if self._full or len(value) <= MAX_TEXT:
            return quoted(value)
        self.cut += 1
        return f"{quoted(value[:MAX_TEXT])} … {len(value) - MAX_TEXT:,} more characters, not shown"


def labelled(label: str, text: str) -> Iterator[str]:
    """Yield the lines that show a label and, after it, a text that is already escaped."""
    yield from _wrapped(BAR, f"{label + ' ':<13}", text)


def quoted(value: str) -> str:
    """Return a string in double quotes, escaped for use in a code block."""
    return f'"{in_code(value, quote=chr(34))}"'


def _wrapped(margin: str, label: str, text: str) -> Iterator[str]:
    # Continuation lines are aligned with the text, or indented by four spaces if the label is long.
    under = text and len(label) <= _MAX_NAME_COLUMN + 2
    hanging = margin + " " * (len(label) if under else 4)
    line, room = margin, WIDTH - _cells(margin)
    for piece in _PIECE.findall(label + text):
        if _cells(piece) > room:
            yield line
            line, room = hanging, WIDTH - _cells(hanging)
        line += piece
        room -= _cells(piece)
    yield line


def _inside(value: dict[str, Any] | list[Any]) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(_name(name), member) for name, member in in_reading_order(value)]
    return [(f"[{index}]", member) for index, member in enumerate(value)]


def _name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    if len(name) <= _MAX_NAME:
        return quoted(name)
    return f"{quoted(name[:_MAX_NAME])}…({len(name):,} characters)"


def _has_members(value: Any) -> bool:
    leaf = is_hidden(value) or redacted_text(value) is not None
    return isinstance(value, dict | list) and bool(value) and not leaf


def _hidden(value: Mapping[str, Any], label: str = "hidden from you") -> str:
    size, digest = value.get("bytes"), str(value["$digest"])
    if "$object" in value:
        label += f", a {in_code(str(value['$object'])[:_MAX_NAME])}"
    if isinstance(size, int) and not isinstance(size, bool):
        label += f", {size:,} bytes"
    # Eight digits of the digest suffice to recognize equal redacted values in two requests.
    return f"{label} ({digest[: digest.index(':') + 9]}…)" if _DIGEST.fullmatch(digest) else label


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


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
#: Maximum number of characters of a context in a message. Slack allows more, but with each button press it sends the
#: message back to the gateway, with up to 16 bytes per character.
MAX_CONTEXT = 10_000
_MAX_NAMES = 10

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


def ephemeral_message(text: str) -> str:
    """Return the JSON of a message that only one user sees. The message with the buttons remains unchanged."""
    return json.dumps({"response_type": "ephemeral", "replace_original": False, "text": escape_text(text)})


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
        more = f" and {len(hidden) - _MAX_NAMES} more" if len(hidden) > _MAX_NAMES else ""
        names = ", ".join(in_code(name[:100]) for name in hidden[:_MAX_NAMES])
        yield from labelled("hidden", names + more)


def _quorum(approval: Mapping[str, Any]) -> str:
    required = approval["required_approvals"]
    if required == 1:
        return ""
    approved = sum(vote["decision"] == "approved" for vote in approval["votes"])
    return f" · {approved} of {required} approved"


def _full_lines(context: Mapping[str, Any]) -> Sequence[str] | None:
    """Return all lines of a context; None if the context is too long for a message."""
    # The length of the JSON is compared first: if it is too long, the lines are too long as well, because they are
    # never much shorter than the JSON.
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
