"""``toolgate agents create``, ``update``, ``deactivate``, ``activate`` and ``delete``."""

from typing import Annotated, Any

import typer

from toolgate_cli.agents.finding import PATH, Agent, AgentName, find_agent
from toolgate_cli.answers import read_as
from toolgate_cli.approvals.options import AsJson, Environment, InEnvironment
from toolgate_cli.approvals.pages import ascii_json
from toolgate_cli.ask import confirm
from toolgate_cli.conversation import stored_login
from toolgate_cli.output import fail
from toolgate_cli.visible import visible

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Description = Annotated[str | None, typer.Option(help="What it is for.", show_default=False)]


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called; kebab-case reads well.")],
    description: Description = None,
    environment: InEnvironment = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """Create an agent, which may do nothing yet."""
    body = {"name": name} | ({} if description is None else {"description": description})
    with stored_login() as management:
        raw = management.post(f"{PATH}?environment={environment}", body)
        agent = read_as(Agent, raw, "agent")
    if as_json:
        typer.echo(ascii_json(raw))
        return
    typer.echo(f"created {agent.told}, agent {visible(agent.id)}")
    typer.echo(f"it may do nothing yet; see: toolgate permissions grant {agent.told} ACTION", err=True)


def update(
    agent: AgentName,
    name: Annotated[str | None, typer.Option(help="Call it so.", show_default=False)] = None,
    description: Description = None,
    no_description: Annotated[bool, typer.Option("--no-description", help="Remove the description.")] = False,
    environment: InEnvironment = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """Rename an agent, or say what it is for."""
    if description is not None and no_description:
        fail("write either --description or --no-description")
    body: dict[str, Any] = {} if name is None else {"name": name}
    if description is not None or no_description:
        body["description"] = description
    if not body:
        fail("there is nothing to change; write --name, --description or --no-description")
    _put(agent, environment, body, "updated", as_json=as_json)


def deactivate(
    agent: AgentName, environment: InEnvironment = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Stop an agent at once: every check of it is blocked, and what it waited for is cancelled."""
    _put(agent, environment, {"status": "inactive"}, "deactivated", as_json=as_json)


def activate(
    agent: AgentName, environment: InEnvironment = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Let an agent act again, with the permissions that it had."""
    _put(agent, environment, {"status": "active"}, "activated", as_json=as_json)


def delete(agent: AgentName, environment: InEnvironment = Environment.PRODUCTION, yes: Yes = False) -> None:
    """Remove an agent for good, with its permissions and keys; its log entries stay."""
    with stored_login() as management:
        found = find_agent(management, agent, environment)
        confirm(f"Delete {found.told}, agent {found.id}, its permissions and its keys for good?", yes=yes)
        management.delete(f"{PATH}/{found.id}?environment={environment}")
    typer.echo(f"deleted {found.told}, agent {found.id}; its log entries stay")


def _put(wanted: str, environment: Environment, body: dict[str, Any], done: str, *, as_json: bool) -> None:
    with stored_login() as management:
        found = find_agent(management, wanted, environment)
        raw = management.put(f"{PATH}/{found.id}?environment={environment}", body)
        agent = read_as(Agent, raw, "agent")
    typer.echo(ascii_json(raw) if as_json else f"{done} {agent.told}, agent {found.id}")
