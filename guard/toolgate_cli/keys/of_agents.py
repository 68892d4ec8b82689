"""``toolgate keys list``, ``create`` and ``delete``: keys that act only as one agent."""

import re
from typing import Annotated, Any

import typer
from pydantic import AwareDatetime

from toolgate_cli.account import PasswordStdin
from toolgate_cli.agents.changing import Yes
from toolgate_cli.agents.finding import PATH as AGENTS
from toolgate_cli.agents.finding import Agent, AgentName, find_agent, is_id
from toolgate_cli.answers import read_as
from toolgate_cli.approvals.options import AsJson, Environment, InEnvironment
from toolgate_cli.approvals.pages import ascii_json
from toolgate_cli.approvals.spans import since
from toolgate_cli.ask import confirm
from toolgate_cli.conversation import own_login, stored_login
from toolgate_cli.keys.showing import Key, print_key
from toolgate_cli.management import Management
from toolgate_cli.output import fail
from toolgate_cli.tables import Column, print_table
from toolgate_cli.visible import visible

_COLUMNS = (Column("id", whole=True), Column("key", whole=True), Column("age", whole=True))
_BEGINNING = re.compile(r"[0-9a-f-]{4,36}")


class AgentKey(Key):
    """A key that acts only as one agent."""

    created_at: AwareDatetime


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
