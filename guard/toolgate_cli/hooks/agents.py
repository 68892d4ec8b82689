"""Agents of a hook: look-up of their ids, and creation of their permission to read files."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Final

import typer

from toolgate_cli.agents import find_agent
from toolgate_cli.client import is_id
from toolgate_cli.credentials import StoredLogin, password_session, stored_session
from toolgate_cli.options import Environment
from toolgate_cli.output import fail, sanitize
from toolgate_cli.permissions import create_permission, iter_permissions

#: action that `--allow-reading` assigns to all tools that only read files
READING_ACTION: Final = "files.read"
#: names of the tools that only read local files, for each coding agent; tools that use the network are not included
READING_TOOLS: Final = {
    "claude-code": ("Read", "Glob", "Grep", "LS", "NotebookRead"),
    "opencode": ("read", "glob", "grep", "list"),
}


def resolve_agents(
    url: str | None, agent: str | None, subagents: Iterable[str]
) -> tuple[str | None, list[str]]:
    """Replace agents' names by their ids, which are requested from the gateway with the stored login.

    Return a pair: the id of `agent` (None if no agent is given), and the subagents as strings `NAME=ID`.

    Args:
        url: the gateway's address, or None for the gateway of the stored login.
        agent: an id or a name. Default: TOOLGATE_AGENT_ID.
        subagents: strings `NAME=AGENT`, where AGENT is an id or a name. Tool calls of subagents of the type NAME are
            checked with the permissions of AGENT.

    Raises:
        typer.Exit: a name is given without a login at this gateway, or no agent has this name.
    """
    login = StoredLogin.load()
    has_login = login is not None and (url is None or login.url.rstrip("/") == url.rstrip("/"))
    # TOOLGATE_AGENT_ID may contain a name, and finding its id requires a login. Without a login, the variable is not
    # read here. The hook reads it when it starts, and then reports an error if the value is not an id.
    own = agent or (os.environ.get("TOOLGATE_AGENT_ID") if has_login else None)
    pairs = [pair.partition("=") for pair in subagents]
    names = [name for name in (own, *(pair[2] for pair in pairs)) if name and not is_id(name.lower())]
    if names and not has_login:
        where = f" --url {url}" if url else ""
        fail(
            f"{names[0]!r} is not an agent id, and the command can look up a name only with a login at the gateway; "
            f"run: toolgate login{where}, or write the id (a UUID)"
        )
    ids: dict[str, str] = {}
    if names:
        with stored_session() as client:
            ids = {name: find_agent(client, name, Environment.PRODUCTION).id for name in names}
    return (
        own and ids.get(own, own),
        ["".join((kind, equals, ids.get(name, name))) for kind, equals, name in pairs],
    )


def add_reading_actions(program: str, tool_actions: Iterable[str]) -> list[str]:
    """Return the given pairs `TOOL=ACTION`, and a pair `TOOL=files.read` for each other tool that only reads files.

    Args:
        program: the coding agent, `claude-code` or `opencode`.
        tool_actions: pairs `TOOL=ACTION` from the command line.
    """
    given = list(tool_actions)
    named = {pair.partition("=")[0] for pair in given}
    return [*given, *(f"{tool}={READING_ACTION}" for tool in READING_TOOLS[program] if tool not in named)]


def grant_reading(url: str | None, agents: Sequence[str], *, password_stdin: bool) -> None:
    """Create a permission for `files.read` for each agent that does not have one.

    If no agents are given, if there is no login at this gateway, or if the password cannot be read, create no
    permission, but print the commands that create the permissions.

    Args:
        url: the gateway's address.
        agents: ids or names.
        password_stdin: read the password from standard input.

    Raises:
        typer.Exit: an agent does not exist, the password is wrong, or a request failed.
    """
    login = StoredLogin.load()
    has_login = login is not None and url is not None and login.url.rstrip("/") == url.rstrip("/")
    if not agents or not has_login or not (password_stdin or sys.stdin.isatty()):
        typer.echo(
            f"tools that only read files have the action {READING_ACTION}, and the agent needs a permission "
            f"for {READING_ACTION}; an admin creates the permission with:"
        )
        for name in agents or ["AGENT"]:
            typer.echo(f"  toolgate permissions create {sanitize(name)} {READING_ACTION}")
        return
    with stored_session() as client:
        found = [find_agent(client, name, Environment.PRODUCTION) for name in dict.fromkeys(agents)]
        granted = {
            agent.id: permission
            for agent in found
            for permission, _ in iter_permissions(client, agent, Environment.PRODUCTION)
            if permission.action == READING_ACTION
        }
    missing = [agent for agent in found if agent.id not in granted]
    for agent in found:
        if agent.id in granted:
            approval = granted[agent.id].approval_text
            typer.echo(f"{agent.label} already has a permission for {READING_ACTION}: approval {approval}")
    if not missing:
        return
    names = ", ".join(agent.label for agent in missing)
    with password_session(f"let {names} do {READING_ACTION}", password_stdin=password_stdin) as client:
        for agent in missing:
            body = {"action": READING_ACTION}
            permission, _ = create_permission(client, agent, Environment.PRODUCTION, body)
            typer.echo(
                f"{agent.label} may do {sanitize(permission.action)}: approval {permission.approval_text}"
            )
