"""Approval requests: their model, their lookup by id, and their display."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import typer
from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from toolgate_cli.client import Management, ManagementError
from toolgate_cli.durations import since, until
from toolgate_cli.layout import Layout, hidden_names
from toolgate_cli.output import fail, terminal_width, visible

PATH: Final = "/api/approvals"

#: as far back as the beginning of an id is looked for
_NEWEST: Final = 1_000
_WHOLE_ID: Final = 36
#: characters of a UUIDv7 that say its millisecond: what is asked later begins otherwise
_MILLISECOND: Final = 13
_BEGINNING: Final = re.compile(r"[0-9a-f-]{4,36}")


class Vote(BaseModel):
    """One person's decision."""

    model_config = ConfigDict(frozen=True)

    user_id: str
    decision: str
    note: str | None = None


class Approval(BaseModel):
    """A request that a person decides about. What the gateway says beyond this stays in `raw`."""

    model_config = ConfigDict(frozen=True)

    id: str
    status: str
    agent_id: str
    agent_name: str
    action: str
    digest: str
    context: dict[str, Any]
    created_at: AwareDatetime
    expires_at: AwareDatetime
    run_id: str | None = None
    call_id: str | None = None
    note: str | None = None
    decided_by: str | None = None
    decided_at: AwareDatetime | None = None
    cancel_reason: str | None = None
    required_approvals: int = 1
    votes: list[Vote] = []
    replaces: str | None = None
    replaced_by: str | None = None
    approved_context: dict[str, Any] | None = None
    grant_id: str | None = None
    reason: str | None = None
    #: None from gateways before version 0.2
    waiting: bool | None = None
    last_asked_at: AwareDatetime | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a person may decide."""
        return self.status == "pending"

    @property
    def approving_votes(self) -> int:
        """How many people approved so far."""
        return sum(vote.decision == "approved" for vote in self.votes)


def read_approval(content: Any) -> Approval:
    """Return an approval from the gateway's JSON.

    Raises:
        ManagementError: it is none.
    """
    try:
        return Approval.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise ManagementError(
            f"the gateway answered with something that is no approval: its {visible(where)!r} is wrong"
        ) from None


def get_approval(management: Management, approval_id: str, environment: str) -> Approval:
    """Return one approval by its whole id.

    Raises:
        ManagementError: the gateway refused, did not answer, or knows none of that id.
    """
    return read_approval(management.get(f"{PATH}/{approval_id}", {"environment": environment}))


def iter_raw(management: Management, environment: str, **filters: str | None) -> Iterator[dict[str, Any]]:
    """Yield approvals as the gateway shows them, newest first.

    Raises:
        ManagementError: the gateway refused, did not answer, or answered with something else than approvals.
    """
    for page in management.pages(PATH, {"environment": environment, **filters}):
        for raw in page:
            # Whoever takes members out of it finds them.
            read_approval(raw)
            yield raw


def find_approval(management: Management, beginning: str, environment: str) -> Approval:
    """Return the one approval whose id begins so.

    Raises:
        ManagementError: the gateway refused or did not answer.
        typer.Exit: there is none, or more than one; one line says so.
    """
    wanted = beginning.strip().lower()
    if not _BEGINNING.fullmatch(wanted):
        fail(f"{beginning!r} is no approval's id nor the beginning of one; see: toolgate approvals list")
    if len(wanted) == _WHOLE_ID:
        return get_approval(management, wanted, environment)
    recent = [read_approval(content) for content in islice(iter_raw(management, environment), _NEWEST)]
    found = [approval for approval in recent if approval.id.startswith(wanted)]
    if not found:
        fail(
            f"no approval of the {environment} environment begins with {beginning!r} among the newest {_NEWEST:,}; "
            "see: toolgate approvals list --status all"
        )
    if len(found) > 1:
        listed = ", ".join(visible(approval.id) for approval in found[:5])
        fail(f"{len(found):,} approvals begin with {beginning!r}: {listed}; write more of the id")
    return found[0]


def short_ids(ids: list[str]) -> dict[str, str]:
    """Return for each id the shortest beginning that names it among these, with its millisecond at least."""
    return {each: _short_id(each, ids) for each in ids}


def _short_id(wanted: str, ids: list[str]) -> str:
    length = _MILLISECOND
    while sum(other.startswith(wanted[:length]) for other in ids) > 1 and length < len(wanted):
        length += 1
    return wanted[:length]


_MOST_NAMES = 10


def print_approval(approval: Approval, management: Management, environment: str, *, full: bool) -> None:
    """Print everything a person needs to decide."""
    layout = Layout(terminal_width(), full=full)
    for line in _page(approval, layout, management.url, environment, people_of(approval, management)):
        typer.echo(line)


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
