"""``toolgate keys``: the organization's API keys, and keys that act only as one agent."""

import re
from typing import Annotated, Any

import typer
from pydantic import AwareDatetime, BaseModel, ConfigDict

from toolgate_cli.agents import PATH as AGENTS
from toolgate_cli.agents import Agent, AgentName, find_agent, is_id
from toolgate_cli.client import Management, read_as
from toolgate_cli.credentials import StoredLogin, own_login, stored_login
from toolgate_cli.durations import since
from toolgate_cli.options import AsJson, Environment, InEnvironment, PasswordStdin, Yes
from toolgate_cli.output import Column, ascii_json, fail, print_table, visible
from toolgate_cli.prompts import confirm


class Key(BaseModel):
    """A key, as far as it is shown."""

    model_config = ConfigDict(frozen=True)

    id: str
    api_key: str

    def __repr__(self) -> str:
        return f"Key({self.id!r})"

    @property
    def is_whole(self) -> bool:
        """Whether it works, and is not only its beginning and end."""
        return self.api_key.isascii() and self.api_key.replace("_", "").isalnum()


def print_key(key: Key, told: str, raw: Any, *, as_json: bool) -> None:
    """Print a key alone on standard output, and what is to be said of it on standard error.

    Raises:
        typer.Exit: it is not shown whole.
    """
    if not key.is_whole:
        fail("the gateway shows keys whole to admins only; ask an admin")
    typer.echo(ascii_json(raw) if as_json else key.api_key)
    typer.echo(f"toolgate: {told}", err=True)


keys = typer.Typer(
    name="keys",
    help="The organization's API keys, one for each environment, and keys that act only as one agent. What shows or "
    "changes one asks for your password; a key stands alone on standard output.",
    no_args_is_help=True,
)


_COLUMNS = (Column("id", whole=True), Column("key", whole=True), Column("age", whole=True))
_BEGINNING = re.compile(r"[0-9a-f-]{4,36}")


class AgentKey(Key):
    """A key that acts only as one agent."""

    created_at: AwareDatetime


@keys.command("list")
def list_(
    agent: AgentName, environment: InEnvironment = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """List an agent's own keys, newest first, by their last four characters."""
    with stored_login() as management:
        whose = find_agent(management, agent, environment)
        found = _keys(management, whose, environment)
    if as_json:
        typer.echo(ascii_json([raw for _, raw in found]))
    elif not found:
        typer.echo(f"{whose.told} has no key of its own")
    else:
        rows = ((visible(key.id), visible(key.api_key), since(key.created_at)) for key, _ in found)
        print_table(_COLUMNS, rows)


@keys.command()
def create(
    agent: AgentName,
    environment: InEnvironment = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Make a key that acts only as one agent, and print it this once. It asks for your password."""
    with stored_login() as management:
        whose = find_agent(management, agent, environment)
    with own_login(f"make a key of {whose.told}", password_stdin=password_stdin) as management:
        raw = management.post(f"{AGENTS}/{whose.id}/keys?environment={environment}")
        key = read_as(Key, raw, "key")
    told = f"the key {visible(key.id)} acts only as {whose.told}; keep it now, it is not shown here again"
    print_key(key, told, raw, as_json=as_json)


@keys.command()
def delete(
    agent: AgentName,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="The key's id, or a beginning that names it alone.")
    ],
    environment: InEnvironment = Environment.PRODUCTION,
    yes: Yes = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Remove a key of an agent; it stops working at once. It asks for your password."""
    with stored_login() as management:
        whose = find_agent(management, agent, environment)
        found = _named(_keys(management, whose, environment), key, whose)
    confirm(f"Delete the key {visible(found.api_key)} of {whose.told}?", yes=yes)
    with own_login(f"delete a key of {whose.told}", password_stdin=password_stdin) as management:
        management.delete(f"{AGENTS}/{whose.id}/keys/{found.id}?environment={environment}")
    typer.echo(f"deleted the key {found.id} of {whose.told}; it works no more")


def _keys(
    management: Management, agent: Agent, environment: Environment
) -> list[tuple[AgentKey, dict[str, Any]]]:
    raw = management.get(f"{AGENTS}/{agent.id}/keys", {"environment": environment})
    return [(read_as(AgentKey, one, "key"), one) for one in (raw if isinstance(raw, list) else [raw])]


def _named(keys: list[tuple[AgentKey, dict[str, Any]]], wanted: str, agent: Agent) -> AgentKey:
    beginning = wanted.strip().lower()
    found = [
        key
        for key, _ in keys
        if is_id(key.id) and _BEGINNING.fullmatch(beginning) and key.id.startswith(beginning)
    ]
    if not found:
        fail(f"{agent.told} has no key {wanted!r}; see: toolgate keys list {agent.id}")
    if len(found) > 1:
        fail(f"{len(found):,} keys of {agent.told} begin with {wanted!r}; write more of the id")
    return found[0]


_READ = {Environment.PRODUCTION: "/api/organization", Environment.TEST: "/api/organization/test-key"}
_REGENERATE = {
    Environment.PRODUCTION: "/api/organization/regenerate-key",
    Environment.TEST: "/api/organization/test-key/regenerate",
}
_FIELDS = ("id", "name", "api_key", "created_at")


@keys.command()
def show(
    environment: InEnvironment = Environment.PRODUCTION,
    as_json: AsJson = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Print the organization's key to an environment. It asks for your password, and the showing is audited."""
    with own_login(f"show the {environment} key", password_stdin=password_stdin) as management:
        raw = management.get(_READ[environment])
        key = read_as(Key, raw, "key")
    told = f"the {environment} key acts as every agent of that environment; the showing is in the audit"
    print_key(key, told, _fields(raw), as_json=as_json)


@keys.command()
def regenerate(
    environment: InEnvironment = Environment.PRODUCTION,
    as_json: AsJson = False,
    yes: Yes = False,
    password_stdin: PasswordStdin = False,
) -> None:
    """Replace the organization's key and print the new one; the old one stops working at once."""
    StoredLogin.required()
    confirm(f"Replace the {environment} key? Every agent that uses it is locked out at once.", yes=yes)
    with own_login(f"replace the {environment} key", password_stdin=password_stdin) as management:
        raw = management.post(_REGENERATE[environment])
        key = read_as(Key, raw, "key")
    told = f"this is the {environment} key from now on; the one before works no more"
    print_key(key, told, _fields(raw), as_json=as_json)


def _fields(raw: Any) -> dict[str, Any]:
    # Alike for both environments: the production key is read from the whole organization.
    return {name: raw.get(name) for name in _FIELDS}
