"""``toolgate approvals list`` and ``show``."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolgate.cli.approvals.fields import first_amount, first_recipient
from toolgate.cli.approvals.layout import number_text
from toolgate.cli.approvals.options import ApprovalId, AsJson, Environment, Full, InEnvironment, Status
from toolgate.cli.approvals.pages import ascii_json, print_approval
from toolgate.cli.approvals.reading import (
    PATH,
    Approval,
    find_approval,
    iter_raw,
    read_approval,
    short_ids,
)
from toolgate.cli.approvals.spans import since, until
from toolgate.cli.management import Management, ManagementError
from toolgate.cli.output import fail
from toolgate.cli.stored_login import StoredLogin, explain
from toolgate.cli.visible import visible

#: of what no terminal shows: a row a line
_UNBROKEN = 240
_LONGEST_CELL = 40


def list_(
    status: Annotated[Status, typer.Option(help="Where they stand.")] = Status.PENDING,
    agent: Annotated[str | None, typer.Option(help="Only this agent's, by its name or id.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action.")] = None,
    environment: InEnvironment = Environment.PRODUCTION,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="So many, newest first.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List what waits for a decision, newest first."""
    login = StoredLogin.required()
    try:
        with login.management() as management:
            found = _found(management, status, agent, action, environment, limit + 1)
            approvals = [read_approval(content) for content in found[:limit]]
    except ManagementError as error:
        fail(explain(error))
    if as_json:
        typer.echo(ascii_json(found[:limit]))
        return
    if not approvals:
        typer.echo(f"nothing {'there' if status is Status.ALL else status} at {login.url}, {environment}")
        return
    _print_table(approvals, with_status=status is not Status.PENDING)
    if len(found) > limit:
        typer.echo(f"and more; --limit shows more than {limit:,}")


def show(
    approval_id: ApprovalId,
    environment: InEnvironment = Environment.PRODUCTION,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Show one request with everything it would be done with: amounts first, then recipients, then the rest."""
    login = StoredLogin.required()
    try:
        with login.management() as management:
            approval = find_approval(management, approval_id, environment)
            if as_json:
                typer.echo(ascii_json(management.get(f"{PATH}/{approval.id}", {"environment": environment})))
            else:
                print_approval(approval, management, environment, full=full)
    except ManagementError as error:
        fail(explain(error))


def _found(
    management: Management,
    status: Status,
    agent: str | None,
    action: str | None,
    environment: Environment,
    limit: int,
) -> list[dict[str, Any]]:
    wanted = None if status is Status.ALL else status.value
    everything = iter_raw(management, environment, status=wanted, action=action)
    # By name here: a name is not unique, and the gateway filters by id.
    theirs = (one for one in everything if agent is None or agent in {one["agent_id"], one["agent_name"]})
    return list(islice(theirs, limit))


def _print_table(approvals: Sequence[Approval], *, with_status: bool) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", no_wrap=True)
    for heading in ("agent", "action"):
        table.add_column(heading, overflow="fold")
    table.add_column("amount", justify="right", overflow="fold")
    table.add_column("recipient", overflow="fold")
    table.add_column("age", no_wrap=True)
    table.add_column("status" if with_status else "runs out in", no_wrap=True)
    short = short_ids([approval.id for approval in approvals])
    for approval in approvals:
        cells = (
            visible(short[approval.id]),
            _cell(visible(approval.agent_name)),
            visible(approval.action),
            _cell(_or_nothing(first_amount(approval.context))),
            _cell(_or_nothing(first_recipient(approval.context))),
            since(approval.created_at),
            visible(approval.status) if with_status else until(approval.expires_at),
        )
        # Text, because in a plain string rich would follow the markup of whoever wrote it.
        table.add_row(*map(Text, cells))
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNBROKEN
    console.print(table)


def _or_nothing(value: object) -> str:
    return "" if value is None else number_text(value)


def _cell(text: str) -> str:
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"
