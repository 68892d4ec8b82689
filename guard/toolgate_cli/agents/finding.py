"""Agents, as the gateway tells of them, found by what a person writes."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer
from pydantic import AwareDatetime, BaseModel, ConfigDict

from toolgate_cli.answers import ManagementError, read_as
from toolgate_cli.management import Management
from toolgate_cli.output import fail
from toolgate_cli.visible import visible

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
