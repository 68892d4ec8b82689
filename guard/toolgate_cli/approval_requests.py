"""Approval requests: the model, the lookup by the beginning of an id, and the commands that show requests.

The commands are ``toolgate approvals list``, ``show`` and ``watch``.
"""

import re
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, Final

import typer
from pydantic import AwareDatetime, BaseModel, ConfigDict

from toolgate_cli.client import GatewayClient, GatewayError, Outage, parse_model
from toolgate_cli.credentials import describe_error, stored_session
from toolgate_cli.layout import Layout, find_hidden, summarize
from toolgate_cli.options import (
    AsJson,
    Environment,
    EnvironmentOption,
    Full,
    JsonLines,
    PollInterval,
    format_age,
    format_remaining,
)
from toolgate_cli.output import (
    Column,
    fail,
    print_json,
    print_note,
    print_table,
    sanitize,
    terminal_width,
    truncate,
)

APPROVALS_PATH: Final = "/api/approvals"

#: maximum number of approval requests that are searched for the beginning of an id; the newest are searched first
_MAX_SEARCHED: Final = 1_000
_MAX_LISTED: Final = 5
_MAX_HIDDEN_NAMES: Final = 10
_ID_LENGTH: Final = 36
#: number of characters at the beginning of a UUIDv7 that contain its creation time in milliseconds
_MILLISECOND_LENGTH: Final = 13
_ID_PREFIX: Final = re.compile(r"[0-9a-f-]{4,36}")

ApprovalId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The request's id, or its first characters, if no other id begins with them."
    ),
]


class Vote(BaseModel):
    """Decision of one approver about an approval request."""

    model_config = ConfigDict(frozen=True)

    user_id: str
    decision: str
    note: str | None = None


class Approval(BaseModel):
    """An approval request, as the gateway's API returns it."""

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
    #: whether a call is waiting for the decision now; None if the gateway is older than version 0.2
    waiting: bool | None = None
    last_asked_at: AwareDatetime | None = None

    @property
    def is_pending(self) -> bool:
        """Return whether the request needs a decision."""
        return self.status == "pending"

    @property
    def approving_votes(self) -> int:
        """Return the number of approvers who have approved the request so far."""
        return sum(vote.decision == "approved" for vote in self.votes)


def parse_approval(raw: Any) -> Approval:
    """Return an approval request from its JSON.

    Raises:
        GatewayError: the JSON is not an approval request.
    """
    return parse_model(Approval, raw, "approval request")


def fetch_approval(client: GatewayClient, approval_id: str, environment: str) -> Any:
    """Return the approval request with this complete id, as JSON."""
    return client.get(f"{APPROVALS_PATH}/{approval_id}", {"environment": environment})


def iter_approvals(
    client: GatewayClient, environment: str, **filters: str | None
) -> Iterator[tuple[Approval, dict[str, Any]]]:
    """Yield the approval requests that match the filters, newest first, each with its JSON."""
    for page in client.pages(APPROVALS_PATH, {"environment": environment, **filters}):
        for raw in page:
            yield parse_approval(raw), raw


def find_approval(client: GatewayClient, prefix: str, environment: str) -> Approval:
    """Return the approval request whose id begins with `prefix`.

    Raises:
        GatewayError: a request failed.
        typer.Exit: no request matches, or more than one request matches.
    """
    wanted = prefix.strip().lower()
    if not _ID_PREFIX.fullmatch(wanted):
        fail(
            f"invalid approval id {prefix!r}: expected a UUID or at least 4 characters of its beginning; "
            "see: toolgate approvals list"
        )
    if len(wanted) == _ID_LENGTH:
        return parse_approval(fetch_approval(client, wanted, environment))
    recent = islice(iter_approvals(client, environment), _MAX_SEARCHED)
    found = [approval for approval, _ in recent if approval.id.startswith(wanted)]
    if not found:
        fail(
            f"none of the newest {_MAX_SEARCHED:,} approval requests in the {environment} environment has "
            f"an id that begins with {prefix!r}; see: toolgate approvals list --status all"
        )
    if len(found) > 1:
        ids = ", ".join(sanitize(approval.id) for approval in found[:_MAX_LISTED])
        fail(
            f"{prefix!r} matches {len(found):,} requests: {ids}; write more characters of the id, so that "
            "only one request matches"
        )
    return found[0]


def shorten_ids(ids: list[str]) -> dict[str, str]:
    """Map each id to its shortest unique beginning.

    A beginning has at least 13 characters, which contain the creation time of a UUIDv7.
    """
    return {each: _shorten_id(each, ids) for each in ids}


def print_approval(approval: Approval, client: GatewayClient, environment: str, *, full: bool) -> None:
    """Print an approval request with all details that an approver needs; with `full`, long values are not shortened."""
    layout = Layout(terminal_width(), full=full)
    for line in _page(approval, layout, client.url, environment, fetch_emails(approval, client)):
        typer.echo(line)


def format_status(approval: Approval, emails: dict[str, str] | None = None) -> str:
    """Return the status of a request as text, with the approver and the note; `emails` maps user ids to addresses."""
    text = sanitize(approval.status)
    if approval.decided_by:
        text += f" by {sanitize((emails or {}).get(approval.decided_by, approval.decided_by))}"
    if approval.note:
        text += f', note: "{sanitize(approval.note, quote=chr(34))}"'
    if approval.cancel_reason:
        text += f": {sanitize(approval.cancel_reason)}"
    return text


def fetch_emails(approval: Approval, client: GatewayClient) -> dict[str, str]:
    """Return the e-mail addresses of the organization's users by user id, to show who voted.

    If no approver has voted yet, the result is empty and no request is sent. It is also empty if the request fails.
    """
    return fetch_user_emails(client) if approval.decided_by or approval.votes else {}


def fetch_user_emails(client: GatewayClient) -> dict[str, str]:
    """Return the e-mail addresses of the organization's users by user id; an empty result if the request fails."""
    try:
        return {user["id"]: user["email"] for user in client.get("/api/team")["users"]}
    except (GatewayError, TypeError, KeyError):
        # Without this mapping from user ids to e-mail addresses, the callers show the ids.
        return {}


def _shorten_id(wanted: str, ids: list[str]) -> str:
    length = _MILLISECOND_LENGTH
    while sum(other.startswith(wanted[:length]) for other in ids) > 1 and length < len(wanted):
        length += 1
    return wanted[:length]


def _page(
    approval: Approval, layout: Layout, url: str, environment: str, emails: dict[str, str]
) -> Iterator[str]:
    yield f"Approval {sanitize(approval.id)} · {format_status(approval, emails)}"
    yield from layout.line("agent", sanitize(approval.agent_name))
    yield from layout.line("action", sanitize(approval.action))
    yield from layout.line(
        "requested", f"{format_age(approval.created_at)} ago, at {sanitize(url)}, {environment}"
    )
    if approval.is_pending:
        yield from layout.line("expires in", format_remaining(approval.expires_at))
        yield from _waiting_lines(approval, layout)
    if approval.reason:
        text = sanitize(approval.reason, quote=chr(34))
        yield from layout.line("reason", f'"{text}" (given by the agent, not verified)')
    for label, reference in (("run", approval.run_id), ("call", approval.call_id)):
        if reference:
            yield from layout.line(label, sanitize(reference))
    yield from _vote_lines(approval, layout, emails)
    related = {
        "replaces": approval.replaces,
        "replaced by": approval.replaced_by,
        "by grant": approval.grant_id,
    }
    for label, other in related.items():
        if other:
            yield from layout.line(label, sanitize(other))
    if hidden := list(find_hidden(approval.context)):
        more = f" and {len(hidden) - _MAX_HIDDEN_NAMES} more" if len(hidden) > _MAX_HIDDEN_NAMES else ""
        yield from layout.line("redacted", ", ".join(map(sanitize, hidden[:_MAX_HIDDEN_NAMES])) + more)
    yield "  arguments"
    yield from layout.context(approval.context)
    if approval.approved_context is not None and approval.approved_context != approval.context:
        yield "  approved arguments"
        yield from layout.context(approval.approved_context)
    if layout.cut:
        yield f"  {layout.cut} values are shortened; add --full to show them completely"


def _waiting_lines(approval: Approval, layout: Layout) -> Iterator[str]:
    if approval.waiting:
        yield from layout.line("waiting", "a call is waiting for this decision now")
    elif approval.waiting is False:
        asked = (
            f"; the agent last requested this decision {format_age(approval.last_asked_at)} ago"
            if approval.last_asked_at
            else ""
        )
        yield from layout.line("waiting", f"no call is waiting for this decision now{asked}")


def _vote_lines(approval: Approval, layout: Layout, emails: dict[str, str]) -> Iterator[str]:
    if approval.required_approvals <= 1:
        return
    yield from layout.line("approvals", f"{approval.approving_votes} of {approval.required_approvals}")
    for vote in approval.votes:
        approver = sanitize(emails.get(vote.user_id, vote.user_id))
        note = f' "{sanitize(vote.note, quote=chr(34))}"' if vote.note else ""
        yield from layout.line("", f"{sanitize(vote.decision)} by {approver}{note}")


#: statuses of approval requests that can still change
_OPEN = ("pending", "approved")


class Status(StrEnum):
    """Values of the option `--status`, which filters approval requests; `all` means every status."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    REPLACED = "replaced"
    CONSUMED = "consumed"
    ALL = "all"


def list_(
    status: Annotated[Status, typer.Option(help="Show only requests with this status.")] = Status.PENDING,
    agent: Annotated[
        str | None, typer.Option(help="Show only requests of this agent: its name or id.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="Show only requests for this action, such as stripe.refund.")
    ] = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of requests to show.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List approval requests, newest first; by default those that need a decision."""
    with stored_session() as client:
        wanted = None if status is Status.ALL else status.value
        everything = iter_approvals(client, environment, status=wanted, action=action)
        # The gateway filters only by a single agent id, but several agents may have the same name. Therefore `--agent`
        # is applied here.
        matching = (
            one for one in everything if agent is None or agent in {one[0].agent_id, one[0].agent_name}
        )
        found = list(islice(matching, limit + 1))
    if as_json:
        print_json([raw for _, raw in found[:limit]])
        return
    if not found:
        name = "approval requests" if status is Status.ALL else f"{status} approval requests"
        typer.echo(f"no {name} in the {environment} environment at {client.url}")
        return
    _print_table([approval for approval, _ in found[:limit]], has_status=status is not Status.PENDING)
    if len(found) > limit:
        typer.echo(f"there are more requests; to show them, use a larger --limit than {limit:,}")


def show(
    approval_id: ApprovalId,
    environment: EnvironmentOption = Environment.PRODUCTION,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Show one approval request with all arguments of the call: amounts first, then recipients, then others."""
    with stored_session() as client:
        approval = find_approval(client, approval_id, environment)
        if as_json:
            print_json(fetch_approval(client, approval.id, environment))
        else:
            print_approval(approval, client, environment, full=full)


def watch(
    environment: EnvironmentOption = Environment.PRODUCTION,
    interval: PollInterval = 2.0,
    full: Full = False,
    as_json: JsonLines = False,
) -> None:
    """Show new approval requests and their changes, until Ctrl-C."""
    try:
        with stored_session() as client:
            _Watch(client, environment, full=full, as_json=as_json).run(interval)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


class _Watch:
    """Polls the gateway, and prints new approval requests and changes of requests that were already printed."""

    def __init__(self, client: GatewayClient, environment: Environment, *, full: bool, as_json: bool) -> None:
        self._client = client
        self._environment = environment
        self._full = full
        self._as_json = as_json
        #: maps ids of requests to the requests as they were last printed; contains only requests that can still change
        self._printed: dict[str, Approval] = {}

    def run(self, interval: float) -> None:
        print_note(
            f"watching the approval requests of the {self._environment} environment at {self._client.url}; stop "
            "with Ctrl-C"
        )
        outage = Outage()
        while True:
            try:
                self._poll()
            except GatewayError as error:
                outage.report(error, describe_error(error))
            else:
                outage.end()
            time.sleep(interval)

    def _poll(self) -> None:
        found = self._fetch_open()
        # The gateway returns the newest request first, but requests are printed oldest first.
        for approval, raw in reversed(found.values()):
            if approval.id not in self._printed:
                # Only pending requests are printed as new, because a request that is already approved needs no
                # decision.
                if approval.is_pending:
                    self._print_new(approval, raw)
            elif _state(self._printed[approval.id]) != _state(approval):
                self._print_change(approval, raw)
        for approval_id in [each for each in self._printed if each not in found]:
            self._close(approval_id)

    def _fetch_open(self) -> dict[str, tuple[Approval, dict[str, Any]]]:
        # Pending requests are fetched before approved requests. In the opposite order, neither result would contain a
        # request that is approved between the two fetches.
        return {
            approval.id: (approval, raw)
            for status in (_OPEN if self._printed else _OPEN[:1])
            for approval, raw in iter_approvals(self._client, self._environment, status=status)
        }

    def _close(self, approval_id: str) -> None:
        approval, raw = self._fetch(approval_id)
        if _state(approval) != _state(self._printed[approval_id]):
            self._print_change(approval, raw)
        if approval.status not in _OPEN:
            del self._printed[approval_id]
        if approval.replaced_by:
            self._print_new(*self._fetch(approval.replaced_by))

    def _fetch(self, approval_id: str) -> tuple[Approval, Any]:
        raw = fetch_approval(self._client, approval_id, self._environment)
        return parse_approval(raw), raw

    def _print_new(self, approval: Approval, raw: dict[str, Any]) -> None:
        if self._as_json:
            print_json({"event": "requested", "approval": raw})
        else:
            typer.echo()
            print_approval(approval, self._client, self._environment, full=self._full)
        self._printed[approval.id] = approval

    def _print_change(self, approval: Approval, raw: dict[str, Any]) -> None:
        if self._as_json:
            print_json({"event": "changed", "approval": raw})
        else:
            status = format_status(approval, fetch_emails(approval, self._client))
            if approval.is_pending and approval.required_approvals > 1:
                status += f", {approval.approving_votes} of {approval.required_approvals} approvals"
            call = f"{sanitize(approval.action)} of {sanitize(approval.agent_name)}"
            typer.echo(f"\n{sanitize(approval.id)} · {call}: now {status}")
        self._printed[approval.id] = approval


def _state(approval: Approval) -> tuple[str, int]:
    return approval.status, len(approval.votes)


def _print_table(approvals: Sequence[Approval], *, has_status: bool) -> None:
    columns = (
        Column("id", no_wrap=True),
        Column("agent"),
        Column("action"),
        Column("arguments"),
        Column("age", no_wrap=True),
        Column("status" if has_status else "expires in", no_wrap=True),
    )
    ids = shorten_ids([approval.id for approval in approvals])
    rows = (
        (
            sanitize(ids[approval.id]),
            truncate(sanitize(approval.agent_name)),
            sanitize(approval.action),
            summarize(approval.context),
            format_age(approval.created_at),
            sanitize(approval.status) if has_status else format_remaining(approval.expires_at),
        )
        for approval in approvals
    )
    print_table(columns, rows)
