"""``toolgate freeze``, ``freezes`` and ``unfreeze``: deny calls at once, list freezes, and lift them."""

from typing import Annotated, Any, Final

import typer
from pydantic import AwareDatetime

from toolgate_cli.agents import find_agent
from toolgate_cli.client import GatewayClient, Resource, match_id, parse_model, pick_one, print_list
from toolgate_cli.credentials import password_session, stored_session
from toolgate_cli.options import AsJson, Environment, EnvironmentOption, PasswordStdin, format_age
from toolgate_cli.output import Column, fail, print_json, print_note, sanitize, truncate

FREEZE_PATH: Final = "/api/freeze"

_COLUMNS: Final = (
    Column("id", no_wrap=True),
    Column("denied"),
    Column("age", no_wrap=True),
    Column("reason"),
)


class Freeze(Resource):
    """A freeze of the user's organization, as the gateway's API returns it."""

    agent_id: str | None
    action: str | None
    reason: str
    created_at: AwareDatetime

    @property
    def scope(self) -> str:
        """The calls that the freeze denies, as text that is safe to print on a terminal."""
        calls = "all calls" if self.action is None else f"calls of {sanitize(self.action)}"
        return calls if self.agent_id is None else f"{calls} by agent {sanitize(self.agent_id)}"


def freeze(
    reason: Annotated[
        str,
        typer.Option(
            help="The reason for the freeze; agents receive it with each denied call.", show_default=False
        ),
    ],
    agent: Annotated[
        str | None,
        typer.Option(
            help="Deny only the calls of this agent: its name, its id or the first characters of its id.",
            show_default=False,
        ),
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(help="Deny only this action, such as stripe.refund or 'stripe.*'.", show_default=False),
    ] = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """Deny all calls of the organization, an agent or an action at once, until an admin lifts the freeze.

    A freeze applies to both environments; --environment selects the environment of the agent in --agent.
    """
    body: dict[str, Any] = {"reason": reason}
    with stored_session() as client:
        if agent is not None:
            body["agent_id"] = find_agent(client, agent, environment).id
        if action is not None:
            body["action"] = action
        raw = client.post(FREEZE_PATH, body)
        made = parse_model(Freeze, raw, "freeze")
    if as_json:
        print_json(raw)
        return
    typer.echo(f"frozen: {made.scope}")
    print_note(f"an admin lifts the freeze with: toolgate unfreeze {made.id}")


def freezes(
    lifted: Annotated[
        bool, typer.Option("--lifted", help="List lifted freezes instead of active freezes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the active freezes, newest first."""
    status = "lifted" if lifted else "active"
    with stored_session() as client:
        found = _list_freezes(client, status)
    print_list(found, _COLUMNS, _row, empty=f"no {status} freezes at {client.url}", as_json=as_json)


def unfreeze(
    freeze_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[FREEZE]",
            help="The freeze's id, or its first characters, if no other id begins with them.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Lift all active freezes.")] = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Lift a freeze, or all freezes. Only an admin may do this. Asks for your password."""
    if everything == (freeze_id is not None):
        fail("give either the id of a freeze or --all; to list the ids, run: toolgate freezes")
    with stored_session() as client:
        found = _list_freezes(client, "active")
        if freeze_id is not None:
            missing = f"there is no active freeze {freeze_id!r}; see: toolgate freezes"
            found = [pick_one(match_id(found, freeze_id), freeze_id, plural="freezes", missing=missing)]
    if not found:
        typer.echo("no active freezes")
        return
    purpose = f"lift {len(found)} freezes" if len(found) > 1 else f"lift the freeze of {found[0][0].scope}"
    with password_session(purpose, password_stdin=password_stdin) as client:
        for one, _ in found:
            client.post(f"{FREEZE_PATH}/{one.id}/lift")
            typer.echo(f"lifted: {one.scope}")


def _list_freezes(client: GatewayClient, status: str) -> list[tuple[Freeze, dict[str, Any]]]:
    pages = client.pages(FREEZE_PATH, {"status": status})
    return [(parse_model(Freeze, raw, "freeze"), raw) for page in pages for raw in page]


def _row(freeze: Freeze) -> tuple[str, ...]:
    return freeze.id, freeze.scope, format_age(freeze.created_at), truncate(sanitize(freeze.reason))
