"""Preset ``--allow-reading``: tools that only read ask for one action, which the agent is permitted."""

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, TypeAlias

import typer

from toolgate_cli.agents.finding import PATH as AGENTS
from toolgate_cli.agents.finding import find_agent
from toolgate_cli.answers import read_as
from toolgate_cli.approvals.options import Environment
from toolgate_cli.conversation import own_login, stored_login
from toolgate_cli.permissions.finding import Permission, iter_permissions
from toolgate_cli.stored_login import StoredLogin
from toolgate_cli.visible import visible

#: the action of every tool that only reads files of this machine
ACTION: Final = "files.read"
#: the tools by coding agent; tools that reach the network are not among them
TOOLS: Final = {
    "claude-code": ("Read", "Glob", "Grep", "LS", "NotebookRead"),
    "opencode": ("read", "glob", "grep", "list"),
}

AllowReading: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-reading",
        help=f"Tools that only read files ask for one action, {ACTION}, and the agent is permitted it; "
        "this asks for your password.",
    ),
]


def with_reading_actions(program: str, tool_actions: Iterable[str] | None) -> list[str]:
    """Return TOOL=ACTION pairs with those of the preset; a tool that has an action keeps it.

    Args:
        program: the coding agent.
        tool_actions: the pairs that the user gave.
    """
    given = list(tool_actions or ())
    named = {pair.partition("=")[0] for pair in given}
    return [*given, *(f"{tool}={ACTION}" for tool in TOOLS[program] if tool not in named)]


def permit_reading(url: str | None, agents: Sequence[str], *, password_stdin: bool) -> None:
    """Permit agents the action, or print the commands that do where nobody can be asked for a password.

    Args:
        url: the gateway of the hook.
        agents: ids or names.
        password_stdin: the password is the first line of standard input.

    Raises:
        typer.Exit: an agent does not exist, the password is wrong, or the gateway refuses; nothing was written.
    """
    login = StoredLogin.find()
    is_there = login is not None and url is not None and login.url.rstrip("/") == url.rstrip("/")
    if not agents or not is_there or not (password_stdin or sys.stdin.isatty()):
        typer.echo(f"tools that only read ask for {ACTION}; as an admin, permit it with:")
        for name in agents or ["AGENT"]:
            typer.echo(f"  toolgate permissions grant {visible(name)} {ACTION}")
        return
    with stored_login() as management:
        found = [find_agent(management, name, Environment.PRODUCTION) for name in dict.fromkeys(agents)]
        granted = {
            agent.id: permission
            for agent in found
            for permission, _ in iter_permissions(management, agent, Environment.PRODUCTION)
            if permission.action == ACTION
        }
    missing = [agent for agent in found if agent.id not in granted]
    for agent in found:
        if agent.id in granted:
            approval = granted[agent.id].approval_told
            typer.echo(f"{agent.told} has a permission for {ACTION} already: approval {approval}")
    if not missing:
        return
    names = ", ".join(agent.told for agent in missing)
    with own_login(f"let {names} do {ACTION}", password_stdin=password_stdin) as management:
        for agent in missing:
            body = {"action": ACTION}
            raw = management.post(f"{AGENTS}/{agent.id}/permissions?environment=production", body)
            permission = read_as(Permission, raw, "permission")
            typer.echo(
                f"{agent.told} may do {visible(permission.action)}: approval {permission.approval_told}"
            )
