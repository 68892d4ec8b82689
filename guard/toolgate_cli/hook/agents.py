"""The agents that a hook acts as: names are replaced by ids, which are what the gateway takes."""

import os
from collections.abc import Iterable, Sequence

from toolgate_cli.agents.finding import find_agent, is_id
from toolgate_cli.approvals.options import Environment
from toolgate_cli.conversation import stored_login
from toolgate_cli.hook.options import named_gateway
from toolgate_cli.output import fail
from toolgate_cli.stored_login import StoredLogin


def agent_ids(
    url: str | None, agent: str | None, subagents: Iterable[str] | None
) -> tuple[str | None, list[str]]:
    """Return the options `--agent` and `--subagent` with ids in the place of names.

    A name is looked up under the stored login. TOOLGATE_AGENT_ID is resolved likewise where there is a login.

    Args:
        url: the option `--url`.
        agent: the option `--agent`.
        subagents: the options `--subagent`, NAME=ID each.

    Raises:
        typer.Exit: a name cannot be looked up: there is no login at this gateway, or no such agent.
    """
    login, address = StoredLogin.find(), named_gateway(url)
    is_there = login is not None and (address is None or login.url.rstrip("/") == address.rstrip("/"))
    own = agent or (os.environ.get("TOOLGATE_AGENT_ID") if is_there else None)
    pairs = [pair.partition("=") for pair in subagents or ()]
    wanted = [name for name in (own, *(pair[2] for pair in pairs)) if name and not is_id(name.lower())]
    ids = _look_up(wanted, address, is_there=is_there) if wanted else {}
    return (
        own and ids.get(own, own),
        ["".join((kind, equals, ids.get(name, name))) for kind, equals, name in pairs],
    )


def _look_up(names: Sequence[str], address: str | None, *, is_there: bool) -> dict[str, str]:
    if not is_there:
        where = f" --url {address}" if address else ""
        fail(
            f"{names[0]!r} is not an agent id, and an agent's name is looked up under your login at the gateway; "
            f"run: toolgate login{where}, or write the id (a UUID)"
        )
    with stored_login() as management:
        return {name: find_agent(management, name, Environment.PRODUCTION).id for name in names}
