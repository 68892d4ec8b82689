"""Slack messages for webhook events, such as a new approval request.

Text from agents and users appears only inside code formatting, where Slack does not interpret formatting, links or
mentions. A message has buttons only if it shows all arguments of the call.

The arguments of a call (its `context`) are displayed as lines of a code block. No argument's value can imitate another
argument: strings and unusual names are quoted, invisible characters are escaped, every line begins with a bar (│), and
bars in values are escaped. Readers can therefore tell a new line from a line that Slack wrapped.
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

#: Characters that are escaped in values, so that a value cannot imitate other parts of a message: the bar (│), because
#: it begins each line of the arguments; the backquote, because it can end a code block; and repeated spaces, because
#: they can move the text after them to where Slack shows the next line.
_RESERVED = re.compile("[`│]|(?<= ) +")


def in_code(text: object, *, quote: str = "") -> str:
    """Escape a text for a code block. The result is one line that cannot imitate other parts of the message.

    If the text will be put in quotes, `quote` is the quote character, which is then escaped too.
    """
    return _RESERVED.sub(lambda found: "".join(map(_escape, found.group())), visible(text, quote=quote))


def escape_text(text: str) -> str:
    """Escape the characters ``&``, ``<`` and ``>``, with which Slack marks entities, links and mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def span(text: object) -> str:
    """Format a text as inline code, in which Slack does not interpret formatting, links or mentions."""
    return f"`{escape_text(in_code(text))}`"


def _escape(char: str) -> str:
    return f"\\x{ord(char):02x}" if char.isascii() else f"\\u{ord(char):04x}"


#: Limits for shortened arguments: characters of a string, and members of a list or an object.
MAX_TEXT = 500
MAX_MEMBERS = 30

WIDTH = 72
BAR = "│ "
#: Maximum indentation in characters, so that most of the line remains for deeply nested values.
_MAX_INDENT = 32
_STEP = 2
_MAX_NAME = 60
_MAX_NAME_COLUMN = 22
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,59}")
_DIGEST = re.compile(r"[a-z0-9-]{1,20}:[0-9a-f]{8,128}")
# Pattern for one escape sequence or one character. Long lines are wrapped only between two matches.
_PIECE = re.compile(r"\\(?:U[0-9a-f]{8}|u[0-9a-f]{4}|x[0-9a-f]{2}|.)|.", re.DOTALL)


class Layout:
    """Formatter that turns the arguments of a call into lines of text.

    Args:
        full: True to format all arguments completely; False to shorten long values.

    Attributes:
        cut: Number of values that the formatter has shortened so far.
    """

    def __init__(self, *, full: bool) -> None:
        self._full = full
        self.cut = 0

    def context(self, context: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines for the arguments of a call.

        Important arguments, such as amounts and recipients, come first.
        """
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
            return f"{self._text(text)} ({_hidden(value, 'partly redacted')})"
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
    """Yield the lines for a label and a text. The text must already be escaped."""
    yield from _wrapped(BAR, f"{label + ' ':<13}", text)


def quoted(value: str) -> str:
    """Return a string in double quotes, escaped for a code block."""
    return f'"{in_code(value, quote=chr(34))}"'


def _wrapped(margin: str, label: str, text: str) -> Iterator[str]:
    # Continuation lines are indented as far as the text after the label or, if the label is long, by four spaces.
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


def _hidden(value: Mapping[str, Any], label: str = "redacted") -> str:
    size, digest = value.get("bytes"), str(value["$digest"])
    if "$object" in value:
        label += f", a {in_code(str(value['$object'])[:_MAX_NAME])}"
    if isinstance(size, int) and not isinstance(size, bool):
        label += f", {size:,} bytes"
    # Eight digits of the digest are enough to see whether two requests hide an equal value.
    return f"{label} ({digest[: digest.index(':') + 9]}…)" if _DIGEST.fullmatch(digest) else label


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def buttons(approval_id: str, digest: str) -> dict[str, Any]:
    """Return the message block with the buttons "Approve" and "Reject".

    The value of each button contains the id of the approval request and the digest of its arguments. Slack returns this
    value when a user clicks the button.
    """
    value = f"v1.{approval_id}.{digest}"
    return {
        "type": "actions",
        "block_id": "toolgate.decide",
        "elements": [
            _button(APPROVE, "Approve", "primary", value),
            _button(DENY, "Reject", "danger", value),
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


#: Maximum number of characters in one section of a message. Slack's limit is 3000.
MAX_SECTION = 2900
#: Maximum number of characters that the arguments take up in a message. Slack allows more, but returns the whole
#: message to the gateway with each button click, and each character then takes up to 16 bytes.
MAX_CONTEXT = 10_000
_MAX_NAMES = 10

_FENCE = "```"
_TITLES = {
    "approval.requested": "An agent needs an approval",
    "approval.reminder": "Reminder: an agent still waits for an approval",
    "approval.approved": "Approved",
    "approval.denied": "Rejected",
    "approval.expired": "Expired: the request was not decided in time, or its approval was not used in time",
    "approval.cancelled": "Cancelled",
    "approval.consumed": "Approval used: the gateway allowed the approved call",
    "approval.replaced": "Approved with changed arguments, as a new request",
}
#: Types of events about pending approval requests. Only their messages can have buttons.
WAITING = frozenset({"approval.requested", "approval.reminder"})


def slack_message(payload: str) -> str:
    """Return the message for an event as the JSON body of a request to a Slack incoming webhook.

    Args:
        payload: The event as JSON. It may lack the arguments of the call (`context`).
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
    # The JSON contains only ASCII characters, so that no proxy can change it by Unicode normalization.
    return json.dumps({"text": notice, "blocks": blocks, "unfurl_links": False, "unfurl_media": False})


def ephemeral_message(text: str) -> str:
    """Return the JSON of a message that only one user sees. The message with the buttons stays unchanged."""
    return json.dumps({"response_type": "ephemeral", "replace_original": False, "text": escape_text(text)})


def _approval(kind: str, approval: Mapping[str, Any], suffix: str) -> list[dict[str, Any]]:
    waits = kind in WAITING
    lines = [f"*{_TITLES[kind]}*{suffix}"]
    if waits:
        lines.append(f"Can be decided until {_format_time(approval['expires_at'])}{_quorum(approval)}")
    blocks = [_section("\n".join(lines)), *_code(_fact_lines(approval))]
    context = approval.get("context")
    whole = None if context is None else _full_lines(context)
    if context is not None:
        blocks.append(_section("*Arguments*"))
        blocks += _code(whole) if whole is not None else _abridged_blocks(context)
    if waits and whole is not None:
        blocks.append(buttons(approval["id"], approval["digest"]))
    elif waits:
        blocks.append(_section(_cli_hint(approval["id"], hidden=context is None)))
    blocks.append(
        _footer(f"Approval request {approval['id']} · SHA-256 of the arguments {approval['digest'][:16]}…")
    )
    return blocks


def _resource_blocks(resource: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    plain = {name: value for name, value in resource.items() if value is not None}
    plain = strict_json.loads_own(strict_json.dumps(plain))  # type: ignore[assignment]  # JSON keeps it an object
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
        yield from labelled("reason for the cancellation", quoted(approval["cancel_reason"]))
    if approval.get("replaced_by"):
        yield from labelled("new request", in_code(approval["replaced_by"]))
    if hidden := list(hidden_names(approval.get("context"))):
        more = f" and {len(hidden) - _MAX_NAMES} more" if len(hidden) > _MAX_NAMES else ""
        names = ", ".join(in_code(name[:100]) for name in hidden[:_MAX_NAMES])
        yield from labelled("redacted", names + more)


def _quorum(approval: Mapping[str, Any]) -> str:
    required = approval["required_approvals"]
    if required == 1:
        return ""
    approved = sum(vote["decision"] == "approved" for vote in approval["votes"])
    return f" · {approved} of {required} required approvals"


def _full_lines(context: Mapping[str, Any]) -> Sequence[str] | None:
    """Return all lines for the arguments of a call; None if they are too long for a message."""
    # Do not format arguments whose JSON is already too long, because the formatted lines are usually even longer.
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
    yield _section("*The arguments are too long, so this message shows only a part of them.*")


def _code(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the lines as code blocks. Each block is short enough for one section of a message."""
    text = ""
    for line in chain(map(escape_text, lines), (None,)):
        if text and (line is None or len(text) + len(line) + 1 > MAX_SECTION):
            yield _section(f"{_FENCE}\n{text}{_FENCE}")
            text = ""
        if line is not None:
            text += f"{line}\n"


def _section(text: str) -> dict[str, Any]:
    # With `verbatim`, Slack does not turn parts of the text into links.
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _footer(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}


def _cli_hint(approval_id: str, *, hidden: bool) -> str:
    why = (
        "This channel does not receive the arguments of calls"
        if hidden
        else "The arguments are too long to be shown here"
    )
    return (
        f"{why}, so you cannot decide the request here. Review and decide the request with "
        f"`toolgate approvals show {approval_id}`."
    )


def _format_time(text: str) -> str:
    moment = datetime.fromisoformat(text).astimezone(UTC)
    # Slack displays the time in the reader's time zone. Clients that cannot do so display the text after the bar.
    return f"<!date^{int(moment.timestamp())}^{{date_short_pretty}} {{time}}|{moment:%Y-%m-%d %H:%M} UTC>"
