"""``toolgate approvals approve`` and ``deny``: a person who just typed the password decides what was shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

import typer

from toolgate_cli.account import PasswordStdin
from toolgate_cli.answers import ManagementError
from toolgate_cli.approvals.layout import Layout
from toolgate_cli.approvals.options import ApprovalId, Environment, Full, InEnvironment, Note
from toolgate_cli.approvals.outcomes import outcome_lines
from toolgate_cli.approvals.pages import print_approval, state_text, terminal_width
from toolgate_cli.approvals.reading import PATH, Approval, find_approval, get_approval, read_approval
from toolgate_cli.approvals.wishes import Edit, Grant, read_edits, read_grant
from toolgate_cli.ask import ask_password
from toolgate_cli.management import Management
from toolgate_cli.output import fail
from toolgate_cli.stored_login import StoredLogin, explain
from toolgate_cli.visible import visible


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
