"""The command ``toolgate evidence``."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from toolgate_cli.credentials import stored_session
from toolgate_cli.evidence.period import parse_period
from toolgate_cli.logs import open_export
from toolgate_cli.options import Environment, EnvironmentOption
from toolgate_cli.output import fail, print_note

_MOMENT: Final = (
    "a time such as 2026-01-01 or 2026-01-31T12:00:00Z (UTC by default), or a duration before now, such as "
    "90d"
)


def evidence(
    begins: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help=f"The beginning of the period: {_MOMENT}.", show_default=False
        ),
    ],
    ends: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TIME", help="The end of the period, exclusive. Default: now.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The archive to write. Default: toolgate-evidence-ENVIRONMENT-FROM-TO.zip in the current folder.",
            show_default=False,
        ),
    ] = None,
    verify_report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file with the output of 'toolgate verify --json', which the archive will contain.",
            show_default=False,
        ),
    ] = None,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing",
            help="Write the archive even if retention has deleted data of the period; the archive lists the missing data.",
        ),
    ] = False,
    environment: EnvironmentOption = Environment.PRODUCTION,
) -> None:
    """Write an archive for auditors about a period: policies, approvals, access, freezes, and the transparency log.

    Only an admin can do this. The archive contains arguments of tool calls and personal data. It is evidence, not a
    certification. The exit code is 1 if the archive was not written, or if it contains a log that is not verified.
    """
    # These modules load cryptography, which few commands need.
    from toolgate_cli.evidence.collection import write_evidence

    period = parse_period(begins, ends, datetime.now(UTC))
    name = f"toolgate-evidence-{environment}-{period.begin:%Y%m%d}-{period.end:%Y%m%d}.zip"
    target = output or Path(name)
    with stored_session() as client, open_export(target, replace=False) as file:
        is_verified = write_evidence(
            client, environment, period, file, verify_report=verify_report, allow_missing=allow_missing
        )
    print_note(f"wrote {str(target)!r}")
    if not is_verified:
        fail("the transparency log in the archive is NOT VERIFIED; see index.md in the archive")
