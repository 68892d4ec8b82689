"""What `toolgate hook install` and `serve` are told of the guard, and how they hand it on."""

import os
from collections.abc import Iterable
from typing import Annotated, TypeAlias

import typer

from toolgate.settings import checked_url

Url: TypeAlias = Annotated[str | None, typer.Option(help="The gateway's address. Default: TOOLGATE_URL.")]
Agent: TypeAlias = Annotated[
    str | None, typer.Option(metavar="AGENT", help="The agent's id, or its name. Default: TOOLGATE_AGENT_ID.")
]
Subagent: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=AGENT", help="Another agent, by its id or name, for a kind of subagent; repeatable."
    ),
]
ToolAction: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="TOOL=ACTION", help="Another action for a tool; repeatable."),
]
OnHold: TypeAlias = Annotated[str, typer.Option(help="A held call: wait, or tell the model.")]
HoldTimeout: TypeAlias = Annotated[float, typer.Option(help="Seconds to wait for the person.")]


def named_gateway(url: str | None) -> str | None:
    """Return the gateway's address, of the option or else of TOOLGATE_URL."""
    return url or os.environ.get("TOOLGATE_URL")


def named_agents(agent: str | None, subagents: Iterable[str] | None) -> list[str]:
    """Return the agents that a hook acts as: the option's or TOOLGATE_AGENT_ID's, and those of subagents."""
    own = agent or os.environ.get("TOOLGATE_AGENT_ID")
    return [*([own] if own else []), *(pair.partition("=")[2] for pair in subagents or ())]


def words_of(
    url: str | None,
    agent: str | None,
    subagent: Iterable[str] | None,
    tool_action: Iterable[str] | None,
    on_hold: str,
    hold_timeout: float,
) -> list[str]:
    """Return the words after `toolgate hook claude-code`.

    Raises:
        ConfigurationError: the address is none.
    """
    words = ["--on-hold", on_hold, *(("--hold-timeout", f"{hold_timeout:g}") if on_hold == "wait" else ())]
    address = named_gateway(url)
    words += ["--url", checked_url(address)] if address else []
    agent_id = agent or os.environ.get("TOOLGATE_AGENT_ID")
    for option, values in (
        ("--agent", [agent_id] if agent_id else []),
        ("--subagent", subagent or []),
        ("--tool-action", tool_action or []),
    ):
        words += [word for value in values for word in (option, value)]
    return words
