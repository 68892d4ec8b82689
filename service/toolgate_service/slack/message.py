"""Events as messages for Slack: readable, whole or saying that they are not, with buttons only where they are whole.

Everything that somebody else wrote stands in code blocks of ours, where Slack formats, links and addresses nothing.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from toolgate_service import exact_json
from toolgate_service.readable.fields import hidden_names
from toolgate_service.slack.buttons import buttons
from toolgate_service.slack.code import in_code, slack_escaped, span
from toolgate_service.slack.layout import Layout, labelled, quoted
from toolgate_service.storage.base import TEST
from toolgate_service.webhooks.kinds import resource_of

#: Slack takes 3000 characters a section
SECTION = 2900
#: Slack takes more, but sends the whole message back with a click, each character in up to 16 bytes
SHOWN = 10_000
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
#: the kinds of events about something that waits for a person
WAITING = frozenset({"approval.requested", "approval.reminder"})


def slack_message(payload: str) -> str:
    """Return the body that an incoming webhook of Slack takes.

    Args:
        payload: an event's, as `webhooks.outbox` wrote it; without a context where none is to be shown.
    """
    # Our own words: read as they were written.
    event: Any = exact_json.loads_own(payload)
    kind, data = str(event["type"]), event["data"]
    resource: dict[str, Any] = data[resource_of(kind)]
    place = f" · *{TEST} environment*" if data["environment"] == TEST else ""
    if resource_of(kind) == "approval":
        blocks = _approval(kind, resource, place)
        told = f"{_TITLES[kind]}: {span(resource['agent_name'])} {span(resource['action'])}"
    else:
        blocks = [_section(f"*{kind}*{place}"), *_about(resource)]
        told = kind
    notice = f"[{TEST}] {told}" if place else told
    # ASCII: nothing on the way may take two texts for one.
    return json.dumps({"text": notice, "blocks": blocks, "unfurl_links": False, "unfurl_media": False})


def _approval(kind: str, approval: Mapping[str, Any], place: str) -> list[dict[str, Any]]:
    waits = kind in WAITING
    lines = [f"*{_TITLES[kind]}*{place}"]
    if waits:
        lines.append(f"Waits until {_moment(approval['expires_at'])}{_quorum(approval)}")
    blocks = [_section("\n".join(lines)), *_code(_facts(approval))]
    context = approval.get("context")
    whole = None if context is None else _whole(context)
    if context is not None:
        blocks.append(_section("*With*"))
        blocks += _code(whole) if whole is not None else _abridged(context)
    if waits and whole is not None:
        blocks.append(buttons(approval["id"], approval["digest"]))
    elif waits:
        blocks.append(_section(_how_else(approval["id"], hidden=context is None)))
    blocks.append(_small(f"Approval {approval['id']} · SHA-256 {approval['digest'][:16]}…"))
    return blocks


def _about(resource: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    plain = {name: value for name, value in resource.items() if value is not None}
    plain = exact_json.loads_own(exact_json.dumps(plain))  # type: ignore[assignment]  # an object stays one
    whole = _whole(plain)
    yield from _code(whole) if whole is not None else _abridged(plain)


def _facts(approval: Mapping[str, Any]) -> Iterator[str]:
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


def _whole(context: Mapping[str, Any]) -> Sequence[str] | None:
    """Return all lines of a context, or None where they are too many to be shown."""
    # What is much longer as JSON need not be laid out to know it.
    if len(exact_json.dumps(dict(context))) > SHOWN:
        return None
    lines, left = [], SHOWN
    for line in Layout(full=True).context(context):
        left -= len(slack_escaped(line)) + 1
        if left < 0:
            return None
        lines.append(line)
    return lines


def _abridged(context: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    lines, left = [], SHOWN
    for line in Layout(full=False).context(context):
        left -= len(slack_escaped(line)) + 1
        if left < 0:
            break
        lines.append(line)
    yield from _code(lines)
    yield _section("*This is not all of it.*")


def _code(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield code blocks, each as long as a section may be."""
    text = ""
    for line in chain(map(slack_escaped, lines), (None,)):
        if text and (line is None or len(text) + len(line) + 1 > SECTION):
            yield _section(f"{_FENCE}\n{text}{_FENCE}")
            text = ""
        if line is not None:
            text += f"{line}\n"


def _section(text: str) -> dict[str, Any]:
    # Verbatim: Slack makes no links of what looks like one.
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _small(text: str) -> dict[str, Any]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}


def _how_else(approval_id: str, *, hidden: bool) -> str:
    why = (
        "What it would be done with is not told to Slack"
        if hidden
        else "It is too long to be shown here whole"
    )
    return f"{why}, so it cannot be decided here. Look at it and decide with `toolgate approvals show {approval_id}`."


def _moment(text: str) -> str:
    moment = datetime.fromisoformat(text).astimezone(UTC)
    # Slack shows it in each reader's own time zone, and what follows the bar where it cannot.
    return f"<!date^{int(moment.timestamp())}^{{date_short_pretty}} {{time}}|{moment:%Y-%m-%d %H:%M} UTC>"
