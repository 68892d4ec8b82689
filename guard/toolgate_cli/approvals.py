"""``toolgate approvals`` and ``toolgate grants``: decide approval requests, and manage temporary approvals.

``approve`` and ``deny`` show a request, ask for the password, and send the decision. A temporary approval (in the API:
grant) covers further calls like the call that was approved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

import typer
from pydantic import AliasChoices, AwareDatetime, BaseModel, ConfigDict, Field

from toolgate._capture.jsontext import loads
from toolgate_cli.approval_requests import (
    APPROVALS_PATH,
    Approval,
    ApprovalId,
    fetch_approval,
    find_approval,
    format_status,
    list_,
    parse_approval,
    print_approval,
    show,
    watch,
)
from toolgate_cli.client import GatewayClient, GatewayError, parse_model, print_page
from toolgate_cli.credentials import password_session, stored_session
from toolgate_cli.layout import Layout, find_hidden
from toolgate_cli.options import (
    AsJson,
    Environment,
    EnvironmentOption,
    Full,
    PasswordStdin,
    format_duration,
    format_remaining,
    parse_duration,
)
from toolgate_cli.output import fail, print_json, sanitize, terminal_width
from toolgate_cli.renamed import RenamingGroup

#: the gateway's limits for a temporary approval: maximum number of calls, and maximum duration in seconds
_MAX_USES = 1_000
_MIN_SECONDS = 60
_MAX_SECONDS = 2_592_000

Note = Annotated[
    str | None,
    typer.Option(
        help="The reason for your decision; it is stored with the decision and sent to the agent.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class _Edit:
    """Arguments that the approver has edited: `context` contains all fields, `changes` only the edited ones."""

    context: dict[str, Any]
    changes: dict[str, Any]

    def body(self) -> dict[str, Any]:
        return {"context": self.context}

    def lines(self, layout: Layout) -> Iterator[str]:
        yield "  you approve the request with these changes"
        for name, value in self.changes.items():
            yield from layout.value(name, value)


@dataclass(frozen=True, slots=True)
class _Grant:
    """Terms of a temporary approval (in the API: grant), which covers further calls like the requested call."""

    max_uses: int
    duration_seconds: int
    ignored_fields: tuple[str, ...]

    def body(self) -> dict[str, Any]:
        terms = {"max_uses": self.max_uses, "duration_seconds": self.duration_seconds}
        return {
            "grant": terms | ({"ignored_fields": list(self.ignored_fields)} if self.ignored_fields else {})
        }

    def lines(self, layout: Layout) -> Iterator[str]:
        yield f"  you approve up to {self.max_uses:,} calls within {format_duration(self.duration_seconds)}, without further requests"
        text = (
            "the amount of a later call must not be larger than in this request, and all other fields of the call "
            "must equal the fields of this request"
        )
        if self.ignored_fields:
            text += f"; these fields may have any value: {', '.join(map(sanitize, self.ignored_fields))}"
        yield from layout.line("conditions", text)


@dataclass(frozen=True, slots=True)
class _Decision:
    verb: str
    shown: Approval
    environment: str
    note: str | None
    terms: _Edit | _Grant | None = None

    def body(self) -> dict[str, Any]:
        note = {} if self.note is None else {"note": self.note}
        return note | (self.terms.body() if self.terms else {})


def approve(
    approval_id: ApprovalId,
    note: Note = None,
    edit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=JSON",
            help="Change a field of the request and approve it with the new value: NAME=JSON, such as "
            "amount=40; repeatable.",
        ),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="Also approve later calls like this one, for a duration such as 30m, 1h or 2d; requires --uses.",
        ),
    ] = None,
    uses: Annotated[
        int | None,
        typer.Option(help="With --for: the maximum number of calls that are approved, from 1 to 1,000."),
    ] = None,
    ignore_field: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore-field",
            "--any",
            metavar="NAME",
            help="With --for: later calls may have any value of the field with this name; repeatable.",
        ),
    ] = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    full: Full = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Approve an approval request. Shows the request, then asks for your password.

    By default the approval covers one call with exactly the arguments shown.
    """
    shown = _show_pending(approval_id, environment, full=full)
    if edit and (duration or uses or ignore_field):
        fail("--edit cannot be combined with --for and --uses; remove --edit, or remove --for and --uses")
    terms = _parse_edits(edit or (), shown) or _parse_grant(duration, uses, ignore_field or (), shown)
    if terms is not None:
        for line in terms.lines(Layout(terminal_width(), full=True)):
            typer.echo(line)
    _decide(_Decision("approve", shown, environment, note, terms), password_stdin=password_stdin)


def deny(
    approval_id: ApprovalId,
    note: Note = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    full: Full = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Reject an approval request. Shows the request, then asks for your password. The agent receives your note."""
    shown = _show_pending(approval_id, environment, full=full)
    _decide(_Decision("deny", shown, environment, note), password_stdin=password_stdin)


def _show_pending(approval_id: str, environment: Environment, *, full: bool) -> Approval:
    """Print an approval request and return it.

    Raises:
        typer.Exit: the request is no longer pending.
    """
    with stored_session() as client:
        shown = find_approval(client, approval_id, environment)
        print_approval(shown, client, environment, full=full)
    if not shown.is_pending:
        fail(f"this request is no longer pending: it is {format_status(shown)}")
    return shown


def _decide(decision: _Decision, *, password_stdin: bool) -> None:
    purpose = f"{decision.verb} this request"
    with password_session(purpose, password_stdin=password_stdin, refusal="nothing was decided") as client:
        _check_unchanged(client, decision)
        for line in _outcome_lines(_send(client, decision), decision, client):
            typer.echo(line)


def _check_unchanged(client: GatewayClient, decision: _Decision) -> None:
    """End the command if the request is no longer pending or has changed since it was shown."""
    shown = decision.shown
    try:
        now = parse_approval(fetch_approval(client, shown.id, decision.environment))
    except GatewayError as error:
        fail(f"nothing was decided: {error.detail or error}")
    if not now.is_pending:
        fail(f"nothing was decided: this request is no longer pending, it is {format_status(now)}")
    if (now.digest, now.context, now.action, now.agent_id) != (
        shown.digest,
        shown.context,
        shown.action,
        shown.agent_id,
    ):
        fail(
            "nothing was decided: the request has changed since it was shown; run the command again to see "
            "the change"
        )


def _send(client: GatewayClient, decision: _Decision) -> Approval:
    path = f"{APPROVALS_PATH}/{decision.shown.id}/{decision.verb}?environment={decision.environment}"
    try:
        return parse_approval(client.post(path, decision.body()))
    except GatewayError as error:
        if error.status is None or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            fail(
                f"it is unknown whether the request was decided: {error}; check with: toolgate approvals "
                f"show {decision.shown.id}"
            )
        fail(f"nothing was decided: {error.detail or error}")


def _outcome_lines(answer: Approval, decision: _Decision, client: GatewayClient) -> Iterator[str]:
    """Yield the lines that are printed after a decision.

    If a request for details fails, one of the lines reports the failure.
    """
    if decision.verb == "deny":
        yield "denied" + (f"; {sanitize(answer.agent_name)} receives your note" if answer.note else "")
        return
    if answer.replaced_by:
        yield f"your edit created a new request, which replaces this one: {sanitize(answer.replaced_by)}"
        try:
            answer = parse_approval(fetch_approval(client, answer.replaced_by, decision.environment))
        except GatewayError as error:
            yield f"the status of the new request is unknown: {error}"
            return
    if answer.is_pending:
        missing = max(1, answer.required_approvals - answer.approving_votes)
        others = (
            "one more person has to approve" if missing == 1 else f"{missing} more people have to approve"
        )
        yield f"your vote is stored ({answer.approving_votes} of {answer.required_approvals} approvals): {others}"
    elif answer.status == "approved":
        within = format_remaining(answer.expires_at)
        yield f"approved: {sanitize(answer.agent_name)} may make this call once, within {within}"
    else:
        yield f"the request is now {sanitize(answer.status)}"
    if isinstance(decision.terms, _Grant):
        yield _grant_line(answer, client, decision.environment)


def _grant_line(answer: Approval, client: GatewayClient, environment: str) -> str:
    try:
        grants = client.get("/api/grants", {"environment": environment, "agent_id": answer.agent_id})
        grant = next(one for one in grants if one["approval_id"] == answer.id)
        name, status, uses = sanitize(grant["id"]), grant["status"], int(grant["uses_left"])
    except (GatewayError, StopIteration, TypeError, KeyError, ValueError):
        return "the status of the temporary approval is unknown; see: toolgate grants list"
    if status == "proposed":
        return f"the temporary approval {name} starts when all required people have approved"
    return (
        f"the temporary approval {name} is {sanitize(status)}: {uses:,} more calls like this one are approved"
    )


def _parse_edits(edits: Sequence[str], approval: Approval) -> _Edit | None:
    """Return the arguments with the changes from `--edit`, or None if the option is not given.

    Raises:
        typer.Exit: an edit is invalid.
    """
    if not edits:
        return None
    context, changes = approval.context, {}
    for edit in edits:
        name, equals, text = edit.partition("=")
        if not equals:
            fail(f"invalid --edit {edit!r}: write NAME=JSON, for example --edit amount=40")
        if name in changes:
            fail(f"--edit changes the field {name!r} twice; give each field once")
        if name not in context:
            fail(f"the request has no field {name!r}; it has {_field_names(context)}")
        if list(find_hidden(context[name])):
            fail(f"the field {name!r} is redacted, at least in part, so it cannot be edited")
        try:
            changes[name] = loads(text, exactly=True)
        except (ValueError, RecursionError):
            fail(
                f"the new value of {name!r} is not valid JSON; write a text in double quotes, and put the option in "
                f"single quotes: --edit '{name}=\"…\"'"
            )
    edited = {**context, **changes}
    if _is_equal(edited, context):
        fail(
            "the values in --edit equal those of the request; to approve the request unchanged, remove --edit"
        )
    return _Edit(edited, changes)


def _parse_grant(
    duration: str | None, uses: int | None, ignored_fields: Sequence[str], approval: Approval
) -> _Grant | None:
    """Return the terms of the temporary approval, or None if neither `--for` nor `--uses` is given.

    Raises:
        typer.Exit: an option is missing or invalid.
    """
    if duration is None and uses is None:
        if ignored_fields:
            fail("--ignore-field works only together with --for and --uses; add both")
        return None
    if duration is None or uses is None:
        fail("a temporary approval needs both --for and --uses, for example --for 1h --uses 10")
    try:
        seconds = parse_duration(duration)
    except ValueError as error:
        fail(f"--for: {error}")
    if not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        fail(f"invalid --for {duration!r}: use a duration from 1m to 30d")
    if not 1 <= uses <= _MAX_USES:
        fail(f"invalid --uses {uses}: use a number from 1 to 1,000")
    for name in ignored_fields:
        if name not in approval.context:
            fail(
                f"--ignore-field: the request has no field {name!r}; it has {_field_names(approval.context)}"
            )
    return _Grant(uses, seconds, tuple(dict.fromkeys(ignored_fields)))


def _is_equal(one: Any, other: Any) -> bool:
    # Booleans and numbers are compared separately: in Python True equals 1, but in JSON true and 1 are different.
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _field_names(context: dict[str, Any]) -> str:
    return ", ".join(sanitize(name) for name in context) or "none"


_GRANTS_PATH = "/api/grants"

grants = typer.Typer(
    name="grants",
    help="List and revoke temporary approvals. Create one with: toolgate approvals approve --for.",
    no_args_is_help=True,
)


class Grant(BaseModel):
    """A temporary approval, as the gateway's API returns it."""

    model_config = ConfigDict(frozen=True)

    id: str
    agent_name: str
    action: str
    status: str
    # A gateway of version 0.1 returns these terms under their former names only.
    max_uses: int = Field(validation_alias=AliasChoices("max_uses", "uses"))
    uses_left: int
    context: dict[str, Any]
    ignored_fields: list[str] = Field(validation_alias=AliasChoices("ignored_fields", "except_fields"))
    expires_at: AwareDatetime


@grants.command("list")
def list_grants(
    everything: Annotated[
        bool, typer.Option("--all", help="Also show temporary approvals that are no longer active.")
    ] = False,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """List active temporary approvals, newest first."""
    filters = {"environment": environment, "status": None if everything else "active"}
    with stored_session() as client:
        found = [
            (parse_model(Grant, raw, "grant"), raw)
            for page in client.pages(_GRANTS_PATH, filters)
            for raw in page
        ]
    if as_json:
        print_json([raw for _, raw in found])
        return
    if not found:
        typer.echo(f"no temporary approvals in the {environment} environment at {client.url}")
    for grant, _ in found:
        _print_grant(grant)


@grants.command("delete", hidden=True)
@grants.command()
def revoke(
    grant_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the temporary approval.")],
    environment: EnvironmentOption = Environment.PRODUCTION,
    password_stdin: PasswordStdin = False,
) -> None:
    """Revoke a temporary approval: the agent's next call needs approval again. Asks for your password."""
    if not grant_id.isascii() or not grant_id.replace("-", "").isalnum():
        fail(f"invalid id {grant_id!r}: expected a UUID; see: toolgate grants list")
    with password_session("revoke this", password_stdin=password_stdin) as client:
        try:
            raw = client.post(f"{_GRANTS_PATH}/{grant_id}/revoke?environment={environment}")
        except GatewayError as error:
            fail(error.detail or str(error))
        revoked = parse_model(Grant, raw, "grant")
    typer.echo(
        f"revoked: each call of {sanitize(revoked.action)} by {sanitize(revoked.agent_name)} needs an approval "
        "again"
    )


def _print_grant(grant: Grant) -> None:
    is_active = grant.status == "active"
    print_page(
        f"Grant {sanitize(grant.id)} · {sanitize(grant.status)}",
        {
            "agent": sanitize(grant.agent_name),
            "action": sanitize(grant.action),
            "uses left": f"{grant.uses_left:,} of {grant.max_uses:,}",
            "expires in": format_remaining(grant.expires_at) if is_active else None,
            "may differ": ", ".join(map(sanitize, grant.ignored_fields)),
        },
    )
    typer.echo("  approved arguments")
    for line in Layout(terminal_width()).context(grant.context):
        typer.echo(line)


approvals = typer.Typer(
    name="approvals",
    cls=RenamingGroup,
    help="List and decide approval requests. Reading uses your login; a decision asks for your password.",
    no_args_is_help=True,
)
approvals.command("list")(list_)
approvals.command()(show)
approvals.command()(approve)
approvals.command()(deny)
approvals.command("reject", hidden=True)(deny)
approvals.command()(watch)
