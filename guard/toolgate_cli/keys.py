"""``toolgate keys``: the organization's API keys, and keys that act only as one agent.

Standard output contains only the key, so that ``KEY=$(toolgate keys show)`` works.
"""

from typing import Annotated, Any, Final

import typer
from pydantic import AwareDatetime

from toolgate_cli.agents import AGENTS_PATH, Agent, AgentName, find_agent
from toolgate_cli.client import GatewayClient, Resource, match_id, parse_model, pick_one, print_list
from toolgate_cli.credentials import StoredLogin, password_session, stored_session
from toolgate_cli.options import AsJson, Environment, EnvironmentOption, PasswordStdin, Yes, format_age
from toolgate_cli.output import Column, confirm, fail, print_json, print_note, sanitize
from toolgate_cli.renamed import RenamingGroup

_READ_PATHS: Final = {
    Environment.PRODUCTION: "/api/organization",
    Environment.TEST: "/api/organization/test-key",
}
_ROTATE_PATHS: Final = {
    Environment.PRODUCTION: "/api/organization/regenerate-key",
    Environment.TEST: "/api/organization/test-key/regenerate",
}
#: fields that `--json` prints for an organization's key; other fields of the response are omitted, because the response
#: for the production environment contains the whole organization
_FIELDS: Final = ("id", "name", "api_key", "created_at")
_COLUMNS: Final = (
    Column("id", no_wrap=True),
    Column("key", no_wrap=True),
    Column("kind", no_wrap=True),
    Column("age", no_wrap=True),
)

keys = typer.Typer(
    name="keys",
    cls=RenamingGroup,
    help="The organization's API keys, one for each environment, and keys that act only as one agent. "
    "Commands that "
    "show or change a key ask for your password, and print only the key on standard output.",
    no_args_is_help=True,
)


class Key(Resource):
    """An API key, as the gateway's API returns it; `repr` shows only its id."""

    api_key: str

    def __repr__(self) -> str:
        return f"Key({self.id!r})"


class AgentKey(Key):
    """An API key that acts only as one agent. Older gateways have no advisory keys."""

    advisory: bool = False
    created_at: AwareDatetime


@keys.command("list")
def list_(
    agent: AgentName, environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """List the keys of one agent, newest first, with their last four characters."""
    with stored_session() as client:
        owner = find_agent(client, agent, environment)
        found = _fetch_keys(client, owner, environment)
    empty = f"{owner.label} has no key of its own"
    print_list(found, _COLUMNS, _row, empty=empty, as_json=as_json)


@keys.command()
def show(
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Print the organization's key for an environment. Asks for your password; the audit log records it."""
    with password_session(f"show the {environment} key", password_stdin=password_stdin) as client:
        raw = client.get(_READ_PATHS[environment])
        key = parse_model(Key, raw, "key")
    note = f"the {environment} key acts as every agent of that environment; the audit log records that you saw it"
    _print(key, note, _key_fields(raw), as_json=as_json)


@keys.command()
def create(
    agent: AgentName,
    environment: EnvironmentOption = Environment.PRODUCTION,
    advisory: Annotated[
        bool,
        typer.Option(
            "--advisory",
            help="Checks and AuthZEN evaluations with the key are dry runs, and the key cannot change anything.",
        ),
    ] = False,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Create a key that acts only as one agent, and print it once. Asks for your password."""
    with stored_session() as client:
        owner = find_agent(client, agent, environment)
    with password_session(f"create a key of {owner.label}", password_stdin=password_stdin) as client:
        body = {"advisory": True} if advisory else None
        raw = client.post(f"{AGENTS_PATH}/{owner.id}/keys?environment={environment}", body)
        key = parse_model(AgentKey, raw, "key")
    if advisory and not key.advisory:
        fail(
            f"the gateway is too old for advisory keys and created the key {key.id}, which is not advisory; delete it with: "
            f"toolgate keys delete {owner.id} {key.id}"
        )
    kind = "advisory key" if advisory else "key"
    note = f"the {kind} {key.id} acts only as {owner.label}; store it now, it is not shown again"
    _print(key, note, raw, as_json=as_json)


@keys.command("regenerate", hidden=True)
@keys.command()
def rotate(
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
    yes: Yes = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Replace the organization's key and print the new one; the old key stops working at once."""
    StoredLogin.require()
    confirm(f"Replace the {environment} key? The old key stops working at once, for every agent.", yes=yes)
    with password_session(f"replace the {environment} key", password_stdin=password_stdin) as client:
        raw = client.post(_ROTATE_PATHS[environment])
        key = parse_model(Key, raw, "key")
    note = f"this is the new {environment} key; the old one no longer works"
    _print(key, note, _key_fields(raw), as_json=as_json)


@keys.command()
def delete(
    agent: AgentName,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="The key's id, or its first characters, if no other id begins with them."
        ),
    ],
    environment: EnvironmentOption = Environment.PRODUCTION,
    yes: Yes = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Delete a key of one agent; it stops working at once. Asks for your password."""
    with stored_session() as client:
        owner = find_agent(client, agent, environment)
        matching = match_id(_fetch_keys(client, owner, environment), key)
    missing = f"{owner.label} has no key {key!r}; see: toolgate keys list {owner.id}"
    found, _ = pick_one(matching, key, plural=f"keys of {owner.label}", missing=missing)
    confirm(f"Delete the key {sanitize(found.api_key)} of {owner.label}?", yes=yes)
    with password_session(f"delete a key of {owner.label}", password_stdin=password_stdin) as client:
        client.delete(f"{AGENTS_PATH}/{owner.id}/keys/{found.id}?environment={environment}")
    typer.echo(f"deleted the key {found.id} of {owner.label}; it no longer works")


def _fetch_keys(
    client: GatewayClient, agent: Agent, environment: Environment
) -> list[tuple[AgentKey, dict[str, Any]]]:
    raw = client.get(f"{AGENTS_PATH}/{agent.id}/keys", {"environment": environment})
    return [(parse_model(AgentKey, one, "key"), one) for one in (raw if isinstance(raw, list) else [raw])]


def _row(key: AgentKey) -> tuple[str, ...]:
    return key.id, sanitize(key.api_key), "advisory" if key.advisory else "", format_age(key.created_at)


def _key_fields(raw: Any) -> dict[str, Any]:
    return {name: raw.get(name) for name in _FIELDS}


def _print(key: Key, note: str, raw: Any, *, as_json: bool) -> None:
    """Print a key on standard output, and a note about it on standard error.

    Raises:
        typer.Exit: the gateway has returned only a masked key, because the user is not an admin.
    """
    if not (key.api_key.isascii() and key.api_key.replace("_", "").isalnum()):
        fail("the gateway shows complete keys only to admins; ask an admin")
    if as_json:
        print_json(raw)
    else:
        typer.echo(key.api_key)
    print_note(note)
