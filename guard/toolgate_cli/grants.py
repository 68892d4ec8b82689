"""``toolgate grants``: list and revoke temporary approvals.

A temporary approval (in the API: grant) covers further calls like the call that was approved.
"""

from typing import Annotated, Any

import typer
from pydantic import AwareDatetime, BaseModel, ConfigDict

from toolgate_cli.client import GatewayError, parse_model
from toolgate_cli.credentials import password_session, stored_session
from toolgate_cli.durations import format_remaining
from toolgate_cli.layout import Layout
from toolgate_cli.options import AsJson, Environment, EnvironmentOption, PasswordStdin
from toolgate_cli.output import fail, print_json, sanitize, terminal_width
from toolgate_cli.resources import print_page

_PATH = "/api/grants"

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
    uses: int
    uses_left: int
    context: dict[str, Any]
    except_fields: list[str]
    expires_at: AwareDatetime


@grants.command("list")
def list_(
    everything: Annotated[
        bool, typer.Option("--all", help="Include those that are no longer active.")
    ] = False,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """List active temporary approvals, newest first."""
    filters = {"environment": environment, "status": None if everything else "active"}
    with stored_session() as client:
        found = [
            (parse_model(Grant, raw, "grant"), raw) for page in client.pages(_PATH, filters) for raw in page
        ]
    if as_json:
        print_json([raw for _, raw in found])
        return
    if not found:
        typer.echo(f"no temporary approvals at {client.url}, {environment}")
    for grant, _ in found:
        _print(grant)


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
            raw = client.post(f"{_PATH}/{grant_id}/revoke?environment={environment}")
        except GatewayError as error:
            fail(error.detail or str(error))
        revoked = parse_model(Grant, raw, "grant")
    typer.echo(f"revoked: {sanitize(revoked.action)} of {sanitize(revoked.agent_name)} needs approval again")


def _print(grant: Grant) -> None:
    is_active = grant.status == "active"
    print_page(
        f"Grant {sanitize(grant.id)} · {sanitize(grant.status)}",
        {
            "agent": sanitize(grant.agent_name),
            "action": sanitize(grant.action),
            "uses left": f"{grant.uses_left:,} of {grant.uses:,}",
            "expires in": format_remaining(grant.expires_at) if is_active else None,
            "may differ": ", ".join(map(sanitize, grant.except_fields)),
        },
    )
    typer.echo("  approved arguments")
    for line in Layout(terminal_width()).context(grant.context):
        typer.echo(line)
