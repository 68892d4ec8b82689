"""What a person reads about one approval."""

import re
import shutil
from collections.abc import Iterator
from typing import Any

import typer

from toolgate._capture.jsontext import dumps
from toolgate_cli.answers import ManagementError
from toolgate_cli.approvals.fields import hidden_names
from toolgate_cli.approvals.layout import Layout
from toolgate_cli.approvals.reading import Approval
from toolgate_cli.approvals.spans import since, until
from toolgate_cli.management import Management
from toolgate_cli.visible import visible

#: of what no terminal shows, and so nothing breaks
_WIDE = 100
_MOST_NAMES = 10
_NOT_ASCII = re.compile(r"[^ -~]")


def print_approval(approval: Approval, management: Management, environment: str, *, full: bool) -> None:
    """Print everything a person needs to decide."""
    layout = Layout(terminal_width(), full=full)
    for line in _page(approval, layout, management.url, environment, people_of(approval, management)):
        typer.echo(line)


def terminal_width() -> int:
    """Return how many cells a line has."""
    return shutil.get_terminal_size((_WIDE, 24)).columns


def ascii_json(value: Any) -> str:
    """Return JSON on one line in which nothing but printable ASCII stands, numbers with their digits."""
    return _NOT_ASCII.sub(_escaped, dumps(value))


def _escaped(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _page(
    approval: Approval, layout: Layout, url: str, environment: str, people: dict[str, str]
) -> Iterator[str]:
    yield f"Approval {visible(approval.id)} · {state_text(approval, people)}"
    yield from layout.line("agent", visible(approval.agent_name))
    yield from layout.line("action", visible(approval.action))
    yield from layout.line("asked", f"{since(approval.created_at)} ago, at {visible(url)}, {environment}")
    if approval.is_pending:
        yield from layout.line("runs out in", until(approval.expires_at))
        yield from _call(approval, layout)
    if approval.reason:
        text = visible(approval.reason, quote=chr(34))
        yield from layout.line("reason", f'"{text}" (given by the agent, not verified)')
    for label, reference in (("run", approval.run_id), ("call", approval.call_id)):
        if reference:
            yield from layout.line(label, visible(reference))
    yield from _votes(approval, layout, people)
    others = {
        "replaces": approval.replaces,
        "replaced by": approval.replaced_by,
        "by grant": approval.grant_id,
    }
    for label, other in others.items():
        if other:
            yield from layout.line(label, visible(other))
    if hidden := list(hidden_names(approval.context)):
        more = f" and {len(hidden) - _MOST_NAMES} more" if len(hidden) > _MOST_NAMES else ""
        yield from layout.line("hidden", ", ".join(map(visible, hidden[:_MOST_NAMES])) + more)
    yield "  it would be done with"
    yield from layout.context(approval.context)
    if approval.approved_context is not None and approval.approved_context != approval.context:
        yield "  approved is instead"
        yield from layout.context(approval.approved_context)
    if layout.cut:
        yield f"  {layout.cut} cut; --full shows everything"


def _call(approval: Approval, layout: Layout) -> Iterator[str]:
    if approval.waiting:
        yield from layout.line("waiting", "a call is waiting for this decision now")
    elif approval.waiting is False:
        asked = f"; last asked {since(approval.last_asked_at)} ago" if approval.last_asked_at else ""
        yield from layout.line("waiting", f"no call is waiting for this decision now{asked}")


def state_text(approval: Approval, people: dict[str, str] | None = None) -> str:
    """Return where an approval stands, in a few words."""
    told = visible(approval.status)
    if approval.decided_by:
        told += f" by {visible((people or {}).get(approval.decided_by, approval.decided_by))}"
    if approval.note:
        told += f', who says "{visible(approval.note, quote=chr(34))}"'
    if approval.cancel_reason:
        told += f": {visible(approval.cancel_reason)}"
    return told


def _votes(approval: Approval, layout: Layout, people: dict[str, str]) -> Iterator[str]:
    if approval.required_approvals > 1:
        yield from layout.line("approvals", f"{approval.approving_votes} of {approval.required_approvals}")
    for vote in approval.votes if approval.required_approvals > 1 else []:
        who = visible(people.get(vote.user_id, vote.user_id))
        note = f' "{visible(vote.note, quote=chr(34))}"' if vote.note else ""
        yield from layout.line("", f"{visible(vote.decision)} by {who}{note}")


def people_of(approval: Approval, management: Management) -> dict[str, str]:
    """Return the e-mails of those who had a say, by id; nothing when they cannot be asked for."""
    if not (approval.decided_by or approval.votes):
        return {}
    try:
        return {user["id"]: user["email"] for user in management.get("/api/team")["users"]}
    except (ManagementError, TypeError, KeyError):
        # Their ids do as well.
        return {}
