"""``toolgate approvals approve`` and ``deny``."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, NoReturn

import typer

from toolgate._capture.jsontext import read_decimal
from toolgate_cli.approvals.requests import (
    PATH,
    Approval,
    find_approval,
    get_approval,
    print_approval,
    read_approval,
    state_text,
)
from toolgate_cli.client import Management, ManagementError
from toolgate_cli.credentials import StoredLogin, explain
from toolgate_cli.durations import read_span, span_text, until
from toolgate_cli.layout import Layout, hidden_names
from toolgate_cli.options import ApprovalId, Environment, Full, InEnvironment, Note, PasswordStdin
from toolgate_cli.output import fail, terminal_width, visible
from toolgate_cli.prompts import ask_password

#: what the gateway takes
_USES = (1, 1_000)
_SECONDS = (60, 2_592_000)


@dataclass(frozen=True, slots=True)
class Edit:
    """The whole context as it should be instead, and what differs."""

    context: dict[str, Any]
    changes: dict[str, Any]

    def body(self) -> dict[str, Any]:
        """Return what is sent beside the note."""
        return {"context": self.context}

    def told(self, layout: Layout) -> Iterator[str]:
        """Yield what is said before the decision."""
        yield "  you approve it with these changes instead, and nothing else"
        for name, value in self.changes.items():
            yield from layout.value(name, value)


@dataclass(frozen=True, slots=True)
class Grant:
    """The same for a number of uses and a time."""

    uses: int
    seconds: int
    except_fields: tuple[str, ...]

    def body(self) -> dict[str, Any]:
        """Return what is sent beside the note."""
        told = {"uses": self.uses, "seconds": self.seconds}
        return {"grant": told | ({"except_fields": list(self.except_fields)} if self.except_fields else {})}

    def told(self, layout: Layout) -> Iterator[str]:
        """Yield what is said before the decision."""
        times = f"up to {self.uses:,} times within {span_text(self.seconds)}"
        yield f"  you allow it {times}, without anybody being asked again"
        kept = "an amount at most as shown, every other field equal"
        except_for = ", ".join(visible(name) for name in self.except_fields)
        told = f"{kept}, but for these, which may be anything: {except_for}" if except_for else kept
        yield from layout.line("each with", told)


def read_edits(edits: Sequence[str], approval: Approval) -> Edit | None:
    """Return the edited context, or None when nothing is edited.

    Raises:
        typer.Exit: an edit is none, or not one that can be made; one line says so.
    """
    if not edits:
        return None
    context, changes = approval.context, {}
    for edit in edits:
        name, equals, text = edit.partition("=")
        if not equals:
            fail(f"{edit!r} is no edit; write --edit NAME=JSON, for instance --edit amount=40")
        if name in changes:
            fail(f"{name!r} is edited twice")
        if name not in context:
            fail(f"the request has no field {name!r}; it has {_listed(context)}")
        if list(hidden_names(context[name])):
            fail(f"{name!r} is hidden from you, wholly or in part, and cannot be edited")
        changes[name] = _json(name, text)
    edited = {**context, **changes}
    if _same(edited, context):
        fail("the edits change nothing; without them the request is approved as it is")
    return Edit(edited, changes)


def read_grant(
    span: str | None, uses: int | None, except_fields: Sequence[str], approval: Approval
) -> Grant | None:
    """Return the grant, or None when none is wished.

    Raises:
        typer.Exit: it is not whole, or not one that can be given; one line says so.
    """
    if span is None and uses is None:
        if except_fields:
            fail("--any is of a grant; say as well --for and --uses")
        return None
    if span is None or uses is None:
        fail("a grant needs both --for and --uses, for instance --for 1h --uses 10")
    try:
        seconds = read_span(span)
    except ValueError as error:
        fail(f"--for: {error}")
    if not _SECONDS[0] <= seconds <= _SECONDS[1]:
        fail("--for must be from 1 minute to 30 days")
    if not _USES[0] <= uses <= _USES[1]:
        fail("--uses must be from 1 to 1,000")
    for name in except_fields:
        if name not in approval.context:
            fail(f"--any: the request has no field {name!r}; it has {_listed(approval.context)}")
    return Grant(uses, seconds, tuple(dict.fromkeys(except_fields)))


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(
            text, parse_float=read_decimal, parse_constant=_no_number, object_pairs_hook=_members_once
        )
    except (ValueError, RecursionError):
        fail(
            f"the new value of {name!r} is no JSON; texts need quotes, which the shell needs quoted: "
            f"--edit '{name}=\"…\"'"
        )


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _members_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands there twice")
    return members


def _same(one: Any, other: Any) -> bool:
    # In Python true equals 1; in JSON it does not.
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _listed(context: dict[str, Any]) -> str:
    return ", ".join(visible(name) for name in context) or "none"


def outcome_lines(
    answer: Approval, verb: str, deciding: Management, environment: str, *, granting: bool
) -> Iterator[str]:
    """Yield what is said; the decision stands, whatever cannot be asked any more.

    Args:
        answer: the gateway's.
        verb: what the person said.
        deciding: asks for what the answer leaves open.
        environment: the approval's.
        granting: the same was allowed for a while as well.
    """
    if verb == "deny":
        yield f"denied; {visible(answer.agent_name)} is told" + (" your note" if answer.note else "")
        return
    if answer.replaced_by:
        yield f"edited: it goes on as {visible(answer.replaced_by)}"
        try:
            answer = get_approval(deciding, answer.replaced_by, environment)
        except ManagementError as error:
            yield f"how that stands is unknown: {error}"
            return
    yield _standing(answer)
    if granting:
        yield _grant_line(answer, deciding, environment)


def _standing(answer: Approval) -> str:
    if answer.is_pending:
        missing = max(1, answer.required_approvals - answer.approving_votes)
        who = "one more person has" if missing == 1 else f"{missing} more people have"
        return f"your vote counts, {answer.approving_votes} of {answer.required_approvals}: {who} to approve"
    if answer.status == "approved":
        may = f"{visible(answer.agent_name)} may do this once, within {until(answer.expires_at)}"
        return f"approved: {may}"
    return f"it is {visible(answer.status)}"


def _grant_line(answer: Approval, deciding: Management, environment: str) -> str:
    try:
        theirs = deciding.get("/api/grants", {"environment": environment, "agent_id": answer.agent_id})
        grant = next(one for one in theirs if one["approval_id"] == answer.id)
        name, status, uses = visible(grant["id"]), grant["status"], int(grant["uses_left"])
    except (ManagementError, StopIteration, TypeError, KeyError, ValueError):
        return "how the grant stands is unknown"
    if status == "proposed":
        return f"the grant {name} begins once everybody needed has approved"
    return f"the grant {name} is {visible(status)}: the same may be done {uses:,} more times"


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person is about to say, and about what exactly."""

    verb: str
    seen: Approval
    environment: str
    note: str | None
    wish: Edit | Grant | None = None

    def body(self) -> dict[str, Any]:
        """Return the request's body."""
        note = {} if self.note is None else {"note": self.note}
        return note | (self.wish.body() if self.wish else {})


def approve(
    approval_id: ApprovalId,
    note: Note = None,
    edit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=JSON", help="Approve it with another value of this field; repeatable."),
    ] = None,
    span: Annotated[
        str | None,
        typer.Option("--for", metavar="SPAN", help="Allow the same for a while, such as 30m, 1h, 2d."),
    ] = None,
    uses: Annotated[int | None, typer.Option(help="How many times within that while.")] = None,
    except_fields: Annotated[
        list[str] | None,
        typer.Option("--any", metavar="NAME", help="In that while, this field may be anything; repeatable."),
    ] = None,
    environment: InEnvironment = Environment.PRODUCTION,
    full: Full = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Let a request happen: shown first, then decided with your password.

    Without more it may happen once, exactly as shown.
    """
    with _showing(approval_id, environment, full=full) as (login, seen):
        if edit and (span or uses or except_fields):
            fail("a request is approved either with --edit or for a while (--for, --uses), not both")
        wish = read_edits(edit or (), seen) or read_grant(span, uses, except_fields or (), seen)
        if wish is not None:
            for line in wish.told(Layout(terminal_width(), full=True)):
                typer.echo(line)
        _decide(login, Decision("approve", seen, environment, note, wish), from_stdin=password_stdin)


def deny(
    approval_id: ApprovalId,
    note: Note = None,
    environment: InEnvironment = Environment.PRODUCTION,
    full: Full = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Refuse a request: shown first, then decided with your password. The note is told to the agent."""
    with _showing(approval_id, environment, full=full) as (login, seen):
        _decide(login, Decision("deny", seen, environment, note), from_stdin=password_stdin)


@contextmanager
def _showing(
    approval_id: str, environment: Environment, *, full: bool
) -> Iterator[tuple[StoredLogin, Approval]]:
    login = StoredLogin.required()
    try:
        with login.management() as management:
            seen = find_approval(management, approval_id, environment)
            print_approval(seen, management, environment, full=full)
    except ManagementError as error:
        fail(explain(error))
    if not seen.is_pending:
        fail(f"this is no longer pending: it is {state_text(seen)}")
    yield login, seen


def _decide(login: StoredLogin, decision: Decision, *, from_stdin: bool) -> None:
    question = f"Password of {visible(login.email)} to {decision.verb} this"
    password = ask_password(question, from_stdin=from_stdin)
    try:
        deciding = Management.login(login.url, login.email, password)
    except ManagementError as error:
        fail(f"nothing was decided: {error.detail or error}")
    with deciding, _logged_out(deciding):
        _refuse_changed(deciding, decision)
        answer, granting = _sent(deciding, decision), isinstance(decision.wish, Grant)
        for line in outcome_lines(answer, decision.verb, deciding, decision.environment, granting=granting):
            typer.echo(line)


def _refuse_changed(deciding: Management, decision: Decision) -> None:
    seen = decision.seen
    try:
        now = get_approval(deciding, seen.id, decision.environment)
    except ManagementError as error:
        fail(f"nothing was decided: {error.detail or error}")
    if not now.is_pending:
        fail(f"nothing was decided: this is no longer pending, it is {state_text(now)}")
    if (now.digest, now.context, now.action, now.agent_id) != (
        seen.digest,
        seen.context,
        seen.action,
        seen.agent_id,
    ):
        fail("nothing was decided: the request is not the one that was shown; look at it again")


def _sent(deciding: Management, decision: Decision) -> Approval:
    path = f"{PATH}/{decision.seen.id}/{decision.verb}?environment={decision.environment}"
    try:
        return read_approval(deciding.post(path, decision.body()))
    except ManagementError as error:
        if error.status is None or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            fail(
                f"whether it was decided is unknown: {error}; look with: toolgate approvals show {decision.seen.id}"
            )
        fail(f"nothing was decided: {error.detail or error}")


@contextmanager
def _logged_out(deciding: Management) -> Iterator[None]:
    try:
        yield
    finally:
        try:
            deciding.log_out()
        except ManagementError as error:
            typer.echo(f"toolgate: the login of this decision could not be ended: {error}", err=True)
