"""``toolgate serve``: the gateway on this machine."""

import signal
import sys
from collections.abc import Mapping
from typing import Annotated, TypeAlias

import typer

from toolgate.cli.gateway import load_gateway
from toolgate.cli.output import fail

Plan: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The plan of new organizations: free, pro, business or enterprise (TOOLGATE_DEFAULT_PLAN)."
    ),
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that serve together (TOOLGATE_WORKERS; default 1)."),
]


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    plan: Plan = None,
    workers: Workers = None,
) -> None:
    """Serve the gateway until interrupted.

    Settings come from the environment: TOOLGATE_DATABASE_URL (sqlite:///PATH; default: a file in your data folder),
    TOOLGATE_SECRET (default: made once, in your configuration folder), TOOLGATE_DEFAULT_PLAN. `toolgate config show`
    prints all of them.
    """
    run, start_error = load_gateway("serve"), load_gateway("StartError")
    # The gateway hands SIGTERM on once everything is closed: an orderly end is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        run(host, port, overrides_of(plan, workers), typer.echo)
    except start_error as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def overrides_of(plan: str | None, workers: int | None) -> Mapping[str, str]:
    """Return the settings that options name."""
    given = {"default_plan": plan, "workers": workers}
    return {name: str(value) for name, value in given.items() if value is not None}
