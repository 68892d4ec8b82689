"""``toolgate approvals list`` and ``show``."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

import typer

from toolgate_cli.answers import ManagementError
from toolgate_cli.approvals.layout import summary
from toolgate_cli.approvals.options import ApprovalId, AsJson, Environment, Full, InEnvironment, Status
from toolgate_cli.approvals.pages import ascii_json, print_approval
from toolgate_cli.approvals.reading import (
    PATH,
    Approval,
    find_approval,
    iter_raw,
    read_approval,
    short_ids,
)
from toolgate_cli.approvals.spans import since, until
from toolgate_cli.management import Management
from toolgate_cli.output import fail
from toolgate_cli.stored_login import StoredLogin, explain
from toolgate_cli.tables import Column, cell, print_table
from toolgate_cli.visible import visible


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
    columns = (
        Column("id", whole=True),
        Column("agent"),
        Column("action"),
        Column("arguments"),
        Column("age", whole=True),
        Column("status" if with_status else "runs out in", whole=True),
    )
    short = short_ids([approval.id for approval in approvals])
    rows = (
        (
            visible(short[approval.id]),
            cell(visible(approval.agent_name)),
            visible(approval.action),
            summary(approval.context),
            since(approval.created_at),
            visible(approval.status) if with_status else until(approval.expires_at),
        )
        for approval in approvals
    )
    print_table(columns, rows)
