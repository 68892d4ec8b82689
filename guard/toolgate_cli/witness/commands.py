"""``toolgate witness``: keys and server of a witness."""

import signal
import socket
import sys
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from platformdirs import user_state_path

from toolgate._files import PrivateFileError
from toolgate_cli.output import fail, print_note

witness = typer.Typer(
    name="witness",
    help="Run a witness, which cosigns the checkpoints of transparency logs.",
    no_args_is_help=True,
)

DEFAULT_PORT: Final = 7380

KeyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--key", help="The file of the private key. Default: witness.key in your state folder."),
]


@witness.command()
def keygen(
    name: Annotated[
        str, typer.Option(help="The name of the witness, such as example.com/witness; it need not be a URL.")
    ],
    key: KeyFile = None,
) -> None:
    """Create the private key of a witness, and print its verifier key for the settings of logs."""
    # These modules import cryptography, which takes longer than most commands.
    from toolgate_cli.witness.keys import WitnessNameError, create_key

    path = key or _default_path("witness.key")
    try:
        created = create_key(name, path)
    except (WitnessNameError, PrivateFileError) as error:
        fail(str(error))
    print_note(f"the private key is in {str(path)!r}; back up the key, but not the state of the witness")
    typer.echo(created.vkey)


@witness.command()
def serve(
    key: KeyFile = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="The SQLite file with the latest cosigned checkpoints. Default: witness.sqlite in your state folder."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 chooses a free port.")
    ] = DEFAULT_PORT,
    log: Annotated[
        list[str] | None,
        typer.Option(metavar="VKEY", help="The verifier key of a log to cosign; repeatable."),
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(help="A file with one verifier key per line; # begins a comment.")
    ] = None,
) -> None:
    """Cosign the checkpoints of logs over HTTP, if each is consistent with the log's previous checkpoint.

    Never restore the state from a backup, and never run two witnesses with one key and different states: such a witness
    may cosign two inconsistent checkpoints. After a loss of the state, create another key.
    """
    from toolgate_cli.witness.cosigner import Cosigner
    from toolgate_cli.witness.keys import read_key
    from toolgate_cli.witness.logs import LogsError, parse_logs, read_logs_file
    from toolgate_cli.witness.server import serve_witness
    from toolgate_cli.witness.state import StateError, WitnessState

    try:
        trusted = parse_logs([*(log or ()), *(read_logs_file(logs) if logs else ())])
        if not trusted:
            fail("the witness has no logs; use --log VKEY or --logs FILE")
        private = read_key(key or _default_path("witness.key"))
        path = state or _default_path("witness.sqlite")
        stored = WitnessState(path, private.vkey)
    except (LogsError, PrivateFileError, StateError) as error:
        fail(str(error))
    if stored.is_new:
        print_note(
            f"created {str(path)!r}; if this key has cosigned checkpoints before, stop and create another key"
        )
    try:
        with _listen(host, port) as listener:
            # While uvicorn runs, its own signal handlers are active. This handler applies before and after that.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            number = f"{len(trusted)} log{'' if len(trusted) == 1 else 's'}"
            print_note(f"cosigning the checkpoints of {number} as {private.vkey}")
            print_note(f"listening at {_url(listener)}; stop with Ctrl-C")
            serve_witness(Cosigner(private, trusted, stored), listener)
    finally:
        stored.close()


def _default_path(name: str) -> Path:
    return user_state_path("toolgate", appauthor=False) / name


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        fail(f"cannot listen on {host!r}, port {port}: {error.strerror}; use another --host or --port")


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
