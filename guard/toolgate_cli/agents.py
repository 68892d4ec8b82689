"""``toolgate agents``: list, create, change and delete agents."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer
from pydantic import AwareDatetime, BaseModel, ConfigDict

from toolgate_cli.client import Management, ManagementError, read_as
from toolgate_cli.credentials import stored_login
from toolgate_cli.durations import since
from toolgate_cli.layout import Layout
from toolgate_cli.options import AsJson, Environment, InEnvironment, Yes
from toolgate_cli.output import Column, ascii_json, cell, fail, print_table, terminal_width, visible
from toolgate_cli.prompts import confirm

PATH: Final = "/api/agents"

_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_BEGINNING: Final = re.compile(r"[0-9a-f-]{4,36}")
_MOST_NAMED: Final = 5

AgentName = Annotated[
    str,
    typer.Argument(
        metavar="AGENT", help="The agent's name, its id, or a beginning of the id that names it alone."
    ),
]


class Agent(BaseModel):
    """A software agent."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    status: str
    description: str | None = None
    created_at: AwareDatetime

    @property
    def told(self) -> str:
        """The name, safe to print."""
        return visible(self.name)


def is_id(text: str) -> bool:
    """Say whether a text is a whole identifier, and so fit for an address."""
    return bool(_ID.fullmatch(text))


def iter_agents(management: Management, environment: str) -> Iterator[tuple[Agent, dict[str, Any]]]:
    """Yield agents and what the gateway says of them, newest first.

    Raises:
        ManagementError: the gateway refused, did not answer, or answered with something else than agents.
    """
    for page in management.pages(PATH, {"environment": environment}):
        for raw in page:
            yield read_as(Agent, raw, "agent"), raw


def get_agent(management: Management, wanted: str, environment: str) -> tuple[Agent, dict[str, Any]]:
    """Return the agent that a person means, and what the gateway says of it. A name goes before an id.

    Raises:
        ManagementError: the gateway refused or did not answer.
        typer.Exit: there is none, or more than one; one line says so.
    """
    everything = list(iter_agents(management, environment))
    found = [one for one in everything if one[0].name == wanted]
    beginning = wanted.strip().lower()
    if not found and _BEGINNING.fullmatch(beginning):
        found = [one for one in everything if one[0].id.startswith(beginning)]
    if not found:
        fail(f"the {environment} environment has no agent {wanted!r}; see: toolgate agents list")
    if len(found) > 1:
        ids = ", ".join(visible(agent.id) for agent, _ in found[:_MOST_NAMED])
        fail(f"{len(found):,} agents are called {wanted!r} or begin so: {ids}; write the id")
    agent = found[0][0]
    if not is_id(agent.id):
        raise ManagementError("the gateway answered with something that is no agent: its 'id' is wrong")
    return found[0]


def find_agent(management: Management, wanted: str, environment: str) -> Agent:
    """Return the agent that a person means.

    Raises:
        ManagementError: the gateway refused or did not answer.
        typer.Exit: there is none, or more than one; one line says so.
    """
    return get_agent(management, wanted, environment)[0]


agents = typer.Typer(
    name="agents",
    help="See who may act, and create, rename, switch off or remove agents. All of it uses your login.",
    no_args_is_help=True,
)


_COLUMNS = (
    Column("id", whole=True),
    Column("name"),
    Column("status", whole=True),
    Column("age", whole=True),
    Column("description"),
)


@agents.command("list")
def list_(environment: InEnvironment = Environment.PRODUCTION, as_json: AsJson = False) -> None:
    """List agents, newest first."""
    with stored_login() as management:
        found = list(iter_agents(management, environment))
    if as_json:
        typer.echo(ascii_json([raw for _, raw in found]))
    elif not found:
        typer.echo(f"no agents at {management.url}, {environment}")
    else:
        print_table(_COLUMNS, (_row(agent) for agent, _ in found))


@agents.command()
def show(
    agent: AgentName, environment: InEnvironment = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Show one agent."""
    with stored_login() as management:
        found, raw = get_agent(management, agent, environment)
    if as_json:
        typer.echo(ascii_json(raw))
        return
    layout = Layout(terminal_width())
    typer.echo(f"Agent {visible(found.id)} · {visible(found.status)}")
    told = {
        "name": found.told,
        "created": f"{since(found.created_at)} ago, at {management.url}, {environment}",
    }
    if found.description:
        told["description"] = visible(found.description)
    for label, text in told.items():
        for line in layout.line(label, text):
            typer.echo(line)


def _row(agent: Agent) -> tuple[str, ...]:
    return (
        visible(agent.id),
        agent.told,
        visible(agent.status),
        since(agent.created_at),
        cell(visible(agent.description or "")),
    )


Description = Annotated[str | None, typer.Option(help="What it is for.", show_default=False)]


@agents.command()
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


@agents.command()
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


@agents.command()
def deactivate(
    agent: AgentName, environment: InEnvironment = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Stop an agent at once: every check of it is blocked, and what it waited for is cancelled."""
    _put(agent, environment, {"status": "inactive"}, "deactivated", as_json=as_json)


@agents.command()
def activate(
    agent: AgentName, environment: InEnvironment = Environment.PRODUCTION, as_json: AsJson = False
) -> None:
    """Let an agent act again, with the permissions that it had."""
    _put(agent, environment, {"status": "active"}, "activated", as_json=as_json)


@agents.command()
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
