"""``toolgate serve``: the gateway on this machine."""

import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from toolgate_cli.entry_points import load_gateway
from toolgate_cli.output import fail, show_progress

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
TlsCert: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="The file of a certificate: speak https (TOOLGATE_TLS_CERT)."),
]
TlsKey: TypeAlias = Annotated[Path | None, typer.Option(help="The file of its key (TOOLGATE_TLS_KEY).")]


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    plan: Plan = None,
    workers: Workers = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Serve the gateway until interrupted.

    Settings come from the environment: TOOLGATE_DATABASE_URL (sqlite:///PATH; default: a file in your data folder),
    TOOLGATE_SECRET (default: made once, in your configuration folder), TOOLGATE_DEFAULT_PLAN. `toolgate config show`
    prints all of them.
    """
    # The first start of an installation takes seconds: modules are compiled, and a schema may be brought up to date.
    show_progress("starting the gateway")
    run, start_error = load_gateway("serve"), load_gateway("StartError")
    ending = _Ending()
    # The gateway hands SIGTERM on once everything is closed: an orderly end is no failure.
    signal.signal(signal.SIGTERM, ending)
    try:
        overrides = named(default_plan=plan, workers=workers, tls_cert=tls_cert, tls_key=tls_key)
        run(host, port, overrides, ending.unless_heard(typer.echo))
    except start_error as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


class _Ending:
    """What SIGTERM does while the gateway begins; once it serves, it hears signals itself."""

    def __init__(self) -> None:
        self._heard = False

    def __call__(self, *_: object) -> None:
        self._heard = True
        sys.exit(0)

    def unless_heard(self, announce: Callable[[str], object]) -> Callable[[str], None]:
        """Return what announces that the gateway serves, or tells it once more to end.

        What a handler raises within a finalizer is swallowed there, and the signal would be with it.
        """

        def serving(line: str) -> None:
            if self._heard:
                signal.raise_signal(signal.SIGTERM)
            else:
                announce(line)

        return serving


def named(**options: object) -> Mapping[str, str]:
    """Return the settings that options name."""
    return {name: str(value) for name, value in options.items() if value is not None}
