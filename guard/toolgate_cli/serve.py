"""``toolgate serve``: run the gateway on this machine."""

import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from toolgate_cli.entry_points import gateway_errors, load_gateway
from toolgate_cli.output import print_progress

Plan: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The plan of new organizations: free, pro, business or enterprise (TOOLGATE_DEFAULT_PLAN)."
    ),
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="Number of server processes (TOOLGATE_WORKERS; default 1)."),
]
TlsCert: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="File of a certificate, to serve https (TOOLGATE_TLS_CERT)."),
]
TlsKey: TypeAlias = Annotated[
    Path | None, typer.Option(help="File of the certificate's key (TOOLGATE_TLS_KEY).")
]


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8000,
    plan: Plan = None,
    workers: Workers = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
) -> None:
    """Run the gateway until Ctrl-C.

    Settings come from the environment: TOOLGATE_DATABASE_URL (sqlite:///PATH; default: a file in your data folder),
    TOOLGATE_SECRET (default: created once, in your configuration folder), TOOLGATE_DEFAULT_PLAN. `toolgate config show`
    prints all of them.
    """
    # The first start takes several seconds, because Python compiles the modules, and the schema may be upgraded.
    print_progress("starting the gateway")
    run = load_gateway("serve")
    termination = _Termination()
    # After its shutdown, the gateway raises SIGTERM again. This handler then ends the process with status 0.
    signal.signal(signal.SIGTERM, termination)
    try:
        with gateway_errors():
            overrides = setting_overrides(
                default_plan=plan, workers=workers, tls_cert=tls_cert, tls_key=tls_key
            )
            run(host, port, overrides, termination.unless_received(typer.echo))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def setting_overrides(**options: object) -> Mapping[str, str]:
    """Return the options that are given (not None), as a mapping from the setting's name to its value as a string."""
    return {name: str(value) for name, value in options.items() if value is not None}


class _Termination:
    """Handler of SIGTERM before the gateway runs and after it has stopped; in between, the gateway handles SIGTERM."""

    def __init__(self) -> None:
        self._is_received = False

    def __call__(self, *_: object) -> None:
        self._is_received = True
        sys.exit(0)

    def unless_received(self, announce: Callable[[str], object]) -> Callable[[str], None]:
        """Return a function that the gateway calls with a line for the user when it has started.

        Usually the function passes the line to `announce`. If SIGTERM arrived during the start but did not end the
        process, the function raises SIGTERM again, which stops the gateway. This happens if the handler ran inside a
        finalizer, because Python ignores exceptions in finalizers, such as the handler's `SystemExit`.
        """

        def on_started(line: str) -> None:
            if self._is_received:
                signal.raise_signal(signal.SIGTERM)
            else:
                announce(line)

        return on_started
