"""``toolgate grants``: what people allowed for a while, and taking it back."""

from typing import Annotated, Any

import typer
from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from toolgate_cli.client import Management, ManagementError
from toolgate_cli.credentials import StoredLogin, explain
from toolgate_cli.durations import until
from toolgate_cli.layout import Layout
from toolgate_cli.options import AsJson, Environment, InEnvironment, PasswordStdin
from toolgate_cli.output import ascii_json, fail, terminal_width, visible
from toolgate_cli.prompts import ask_password

PATH = "/api/grants"

grants = typer.Typer(
    name="grants",
    help="See what was allowed for a while, and revoke it. Give it with: toolgate approvals approve --for.",
    no_args_is_help=True,
)


class Grant(BaseModel):
    """What is allowed for a while, as far as a person is shown it."""

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
        bool, typer.Option("--all", help="Also what lets nothing through any more.")
    ] = False,
    environment: InEnvironment = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """List what is allowed at this moment, newest first."""
    login = StoredLogin.required()
    filters = {"environment": environment, "status": None if everything else "active"}
    try:
        with login.management() as management:
            found = [one for page in management.pages(PATH, filters) for one in page]
    except ManagementError as error:
        fail(explain(error))
    if as_json:
        typer.echo(ascii_json(found))
        return
    if not found:
        typer.echo(f"nothing is allowed for a while at {login.url}, {environment}")
    for content in found:
        _print(_read(content))


@grants.command()
def revoke(
    grant_id: Annotated[str, typer.Argument(metavar="ID", help="The grant's id.")],
    environment: InEnvironment = Environment.PRODUCTION,
    password_stdin: PasswordStdin = False,
) -> None:
    """Allow it no longer, with your password: the agent's very next call is held again."""
    login = StoredLogin.required()
    if not grant_id.isascii() or not grant_id.replace("-", "").isalnum():
        fail(f"{grant_id!r} is no grant's id; see: toolgate grants list")
    password = ask_password(f"Password of {visible(login.email)} to revoke this", from_stdin=password_stdin)
    try:
        with Management.login(login.url, login.email, password) as deciding:
            try:
                revoked = _read(deciding.post(f"{PATH}/{grant_id}/revoke?environment={environment}"))
            finally:
                deciding.log_out()
    except ManagementError as error:
        fail(error.detail or str(error))
    typer.echo(f"revoked: {visible(revoked.agent_name)} has to ask again for {visible(revoked.action)}")


def _read(content: Any) -> Grant:
    try:
        return Grant.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        fail(f"the gateway answered with something that is no grant: its {visible(where)!r} is wrong")


def _print(grant: Grant) -> None:
    layout = Layout(terminal_width(), full=False)
    typer.echo(f"Grant {visible(grant.id)} · {visible(grant.status)}")
    told = {"agent": visible(grant.agent_name), "action": visible(grant.action)}
    told["uses left"] = f"{grant.uses_left:,} of {grant.uses:,}"
    if grant.status == "active":
        told["runs out in"] = until(grant.expires_at)
    if grant.except_fields:
        told["may differ"] = ", ".join(map(visible, grant.except_fields))
    for label, value in told.items():
        for line in layout.line(label, value):
            typer.echo(line)
    typer.echo("  as it was seen")
    for line in layout.context(grant.context):
        typer.echo(line)
