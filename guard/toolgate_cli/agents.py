"""``toolgate agents``: list, create, change and delete agents. All commands use the stored login."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer
from pydantic import AwareDatetime

from toolgate_cli.client import (
    GatewayClient,
    Resource,
    match_id,
    parse_model,
    pick_one,
    print_list,
    print_page,
)
from toolgate_cli.credentials import stored_session
from toolgate_cli.options import AsJson, Environment, EnvironmentOption, Yes, format_age
from toolgate_cli.output import Column, confirm, fail, print_json, print_note, sanitize, truncate
from toolgate_cli.renamed import RenamingGroup

AGENTS_PATH: Final = "/api/agents"

_COLUMNS: Final = (
    Column("id", no_wrap=True),
    Column("name"),
    Column("status", no_wrap=True),
    Column("age", no_wrap=True),
    Column("description"),
)

agents = typer.Typer(
    name="agents",
    cls=RenamingGroup,
    help="List, create, change, disable and delete agents. All commands use your login.",
    no_args_is_help=True,
)

AgentName = Annotated[
    str,
    typer.Argument(
        metavar="AGENT",
        help="The agent's name, its id, or the first characters of its id, if no other id begins with them.",
    ),
]
Description = Annotated[str | None, typer.Option(help="What the agent does.", show_default=False)]


class Agent(Resource):
    """An AI agent of the user's organization, as the gateway's API returns it."""

    name: str
    status: str
    description: str | None = None
    created_at: AwareDatetime

    @property
    def label(self) -> str:
        """Return the agent's name, safe to print on a terminal."""
        return sanitize(self.name)


def iter_agents(client: GatewayClient, environment: str) -> Iterator[tuple[Agent, dict[str, Any]]]:
    """Yield all agents of an environment, newest first, each with the JSON that the gateway returned."""
    for page in client.pages(AGENTS_PATH, {"environment": environment}):
        for raw in page:
            yield parse_model(Agent, raw, "agent"), raw


def get_agent(client: GatewayClient, wanted: str, environment: str) -> tuple[Agent, dict[str, Any]]:
    """Return the agent with the id or else the name `wanted`, or else the agent whose id begins with it, and its JSON.

    Raises:
        GatewayError: a request failed.
        typer.Exit: there is no such agent, or more than one agent.
    """
    everything = list(iter_agents(client, environment))
    # A complete id goes before names, as in rules and budgets.
    found = [one for one in everything if one[0].id == wanted.strip().lower()]
    found = found or [one for one in everything if one[0].name == wanted] or match_id(everything, wanted)
    missing = f"the {environment} environment has no agent {wanted!r}; see: toolgate agents list"
    return pick_one(found, wanted, plural="agents", missing=missing)


def find_agent(client: GatewayClient, wanted: str, environment: str) -> Agent:
    """Return the agent that `get_agent` finds, without its JSON."""
    return get_agent(client, wanted, environment)[0]


@agents.command("list")
def list_(environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False) -> None:
    """List agents, newest first."""
    with stored_session() as client:
        found = list(iter_agents(client, environment))
    empty = f"no agents in the {environment} environment at {client.url}"
    print_list(found, _COLUMNS, _row, empty=empty, as_json=as_json)


@agents.command()
def show(
    agent: AgentName, environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Show one agent."""
    with stored_session() as client:
        found, raw = get_agent(client, agent, environment)
    if as_json:
        print_json(raw)
        return
    print_page(
        f"Agent {found.id} · {sanitize(found.status)}",
        {
            "name": found.label,
            "created": f"{format_age(found.created_at)} ago, at {client.url}, {environment}",
            "description": sanitize(found.description or ""),
        },
    )


@agents.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The agent's name, such as refund-bot.")],
    description: Description = None,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """Create an agent, which has no permissions yet."""
    body = {"name": name} | ({} if description is None else {"description": description})
    with stored_session() as client:
        raw = client.post(f"{AGENTS_PATH}?environment={environment}", body)
        agent = parse_model(Agent, raw, "agent")
    if as_json:
        print_json(raw)
        return
    typer.echo(f"created {agent.label}, agent {agent.id}")
    print_note(f"it has no permissions yet; see: toolgate permissions create {agent.label} ACTION")


@agents.command()
def update(
    agent: AgentName,
    name: Annotated[str | None, typer.Option(help="The new name.", show_default=False)] = None,
    description: Description = None,
    no_description: Annotated[bool, typer.Option("--no-description", help="Remove the description.")] = False,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: AsJson = False,
) -> None:
    """Change an agent's name or description."""
    if description is not None and no_description:
        fail("--description and --no-description exclude each other; use only one of them")
    body: dict[str, Any] = {} if name is None else {"name": name}
    if description is not None or no_description:
        body["description"] = description
    if not body:
        fail("no change is given; add --name, --description or --no-description")
    _update(agent, environment, body, "updated", as_json=as_json)


@agents.command("deactivate", hidden=True)
@agents.command()
def disable(
    agent: AgentName, environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Disable an agent at once: all its checks are denied, and its pending approval requests are cancelled."""
    _update(agent, environment, {"status": "inactive"}, "disabled", as_json=as_json)


@agents.command("activate", hidden=True)
@agents.command()
def enable(
    agent: AgentName, environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Enable a disabled agent, with its former permissions."""
    _update(agent, environment, {"status": "active"}, "enabled", as_json=as_json)


@agents.command()
def delete(
    agent: AgentName, environment: EnvironmentOption = Environment.PRODUCTION, yes: Yes = False
) -> None:
    """Delete an agent permanently, with its permissions and keys; its log entries are kept."""
    with stored_session() as client:
        found = find_agent(client, agent, environment)
        confirm(f"Delete {found.label}, agent {found.id}, its permissions and its keys permanently?", yes=yes)
        client.delete(f"{AGENTS_PATH}/{found.id}?environment={environment}")
    typer.echo(f"deleted {found.label}, agent {found.id}; its log entries are kept")


def _update(wanted: str, environment: Environment, body: dict[str, Any], done: str, *, as_json: bool) -> None:
    with stored_session() as client:
        found = find_agent(client, wanted, environment)
        raw = client.put(f"{AGENTS_PATH}/{found.id}?environment={environment}", body)
        agent = parse_model(Agent, raw, "agent")
    if as_json:
        print_json(raw)
    else:
        typer.echo(f"{done} {agent.label}, agent {found.id}")


def _row(agent: Agent) -> tuple[str, ...]:
    return (
        agent.id,
        agent.label,
        sanitize(agent.status),
        format_age(agent.created_at),
        truncate(sanitize(agent.description or "")),
    )
