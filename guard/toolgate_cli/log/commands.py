"""``toolgate log``: export and verify the transparency log, and get receipts of single rows.

A file is verified without a gateway and without a login. The verifier, `toolgate_cli.log.verification`, also runs without
the rest of this package.
"""

import sys
from contextlib import AbstractContextManager, closing, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from toolgate_cli.client import is_id, print_page
from toolgate_cli.credentials import stored_session
from toolgate_cli.log.status import EXPORT_PATH, STATUS_PATH, fetch_receipt, parse_status
from toolgate_cli.logs import open_export
from toolgate_cli.options import AsJson, Environment, EnvironmentOption
from toolgate_cli.output import fail, print_json, print_note, sanitize

_STDIO: Final = "-"
#: exit code if a file, a key or a state file cannot be used
_USAGE: Final = 2

log = typer.Typer(
    name="log",
    help="Export and verify the transparency log, which shows whether the gateway's records were changed later.",
    no_args_is_help=True,
)

Output = Annotated[
    str,
    typer.Option("--output", "-o", metavar="FILE", help="The file to write, or - for standard output."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]


class Subject(StrEnum):
    """Kind of a row that has a receipt."""

    ENTRY = "entry"
    DECISION = "decision"
    APPROVAL = "approval"


_SUBJECT_PATHS: Final = {Subject.ENTRY: "logs", Subject.DECISION: "decisions", Subject.APPROVAL: "approvals"}


@log.command()
def verify(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="An export or a receipt, or - for standard input. Default: an export from the gateway at which you "
            "are logged in.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="VKEY",
            help=(
                "The public key of the log, with which its checkpoints are verified. Default: the key in the "
                "state file, or else the key in the export."
            ),
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "A file with the keys and checkpoints of earlier verifications. The command creates the file, "
                "compares the log with it, and adds the new checkpoint."
            ),
        ),
    ] = None,
    witness: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VKEY",
            help=(
                "The public key of a witness, a server that cosigns the log's checkpoints; repeat the option for "
                "several witnesses."
            ),
        ),
    ] = None,
    witnesses: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Number of the witnesses in --witness that must have cosigned the checkpoint. Default: all.",
        ),
    ] = None,
    fail_on_gaps: Annotated[
        bool,
        typer.Option(
            "--fail-on-gaps",
            help="Exit with 1 if the log has gaps, such as allowed calls without a log entry.",
        ),
    ] = False,
    environment: EnvironmentOption = Environment.PRODUCTION,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, in ASCII.")] = False,
) -> None:
    """Verify an export or a receipt of the transparency log; without a file, verify the log at the gateway.

    The exit code is 0 if the log is verified, 1 if there are findings, and 2 if a file or key cannot be used.
    """
    # These modules compile regular expressions and load cryptography, which no other command needs.
    from toolgate_cli.log.online import verify_online
    from toolgate_cli.log.verification.command import parse_keys, verify_file
    from toolgate_cli.log.verification.notes import VerificationError
    from toolgate_cli.log.verification.state import State

    try:
        log_key, keys, required = parse_keys(key, witness or [], witnesses)
        stored = State(state)
        if file is None:
            with stored_session() as client:
                result = verify_online(client, environment, log_key, stored, keys, required)
        else:
            with nullcontext(sys.stdin.buffer) if file == _STDIO else Path(file).open("rb") as opened:
                result = verify_file(opened, key=log_key, state=stored, witnesses=keys, required=required)
    except (OSError, ValueError, VerificationError) as error:
        print_note(sanitize(error))
        raise typer.Exit(_USAGE) from None
    if as_json:
        print_json(result.to_json())
    else:
        typer.echo(result.report())
    raise typer.Exit(result.exit_code(fail_on_gaps=fail_on_gaps))


@log.command()
def export(
    output: Output = _STDIO,
    force: Force = False,
    environment: EnvironmentOption = Environment.PRODUCTION,
) -> None:
    """Write the transparency log, and the database rows that its leaves (entries) describe, to a file."""
    if output == _STDIO and sys.stdout.isatty():
        fail("log export does not print to a terminal; name a file with --output")
    with stored_session() as client, _open_output(output, force=force) as file:
        with closing(client.stream(EXPORT_PATH, {"environment": environment})) as chunks:
            for chunk in chunks:
                file.write(chunk)
        file.flush()
    if output != _STDIO:
        print_note(f"wrote {output!r}; verify it with: toolgate log verify {output}")


@log.command()
def receipt(
    subject: Annotated[Subject, typer.Argument(help="The kind of the database row.", show_default=False)],
    row_id: Annotated[
        str, typer.Argument(metavar="ID", help="The complete id of the database row.", show_default=False)
    ],
    output: Output = _STDIO,
    force: Force = False,
    environment: EnvironmentOption = Environment.PRODUCTION,
) -> None:
    """Write the receipt of a database row: a proof that the transparency log contains the row."""
    if not is_id(row_id):
        fail(
            f"invalid id {row_id[:80]!r}: expected a complete id, such as 0199a3f2-4b1c-7000-8000-000000000001"
        )
    with stored_session() as client:
        text = fetch_receipt(client, _SUBJECT_PATHS[subject], row_id, environment)
    with _open_output(output, force=force) as file:
        file.write(text)
        file.flush()


@log.command()
def status(environment: EnvironmentOption = Environment.PRODUCTION, as_json: AsJson = False) -> None:
    """Show the size, the key and the witnesses of the transparency log."""
    with stored_session() as client:
        raw = client.get(STATUS_PATH, {"environment": environment})
        found = parse_status(raw)
    if as_json:
        print_json(raw)
        return
    print_page(
        sanitize(found.origin),
        {
            "key": sanitize(found.vkey),
            "leaves": f"{found.size:,}",
            "root": sanitize(found.root),
            "sealed": f"{found.sealed_at:%Y-%m-%d %H:%M:%S} UTC",
            "pending": f"{found.pending:,}",
            "problem": found.problem and sanitize(found.problem),
            "witnesses": ", ".join(map(sanitize, found.witnesses)),
        },
    )


def _open_output(output: str, *, force: bool) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdout.buffer) if output == _STDIO else open_export(Path(output), replace=force)
