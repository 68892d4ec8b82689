"""``toolgate doctor``: what keeps agents of this user on this machine from working, or from being safe."""

from collections.abc import Iterator
from typing import Annotated

import typer

from toolgate_cli.doctor.gateway import check_gateway, check_key, check_login
from toolgate_cli.doctor.local import (
    Finding,
    Surroundings,
    check_files,
    check_installation,
    check_users,
    look_around,
    without_secrets,
)
from toolgate_cli.output import ascii_json, visible

_MARKS = {"ok": "ok     ", "warning": "warning", "wrong": "WRONG  ", "unknown": "unknown"}


def doctor(
    url: Annotated[
        str | None,
        typer.Option(help="The gateway's address. Default: TOOLGATE_URL, else where you are logged in."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON, in ASCII.")] = False,
) -> None:
    """Look for what is wrong with this machine's set-up; status 1 when something is.

    It reads and asks, and changes nothing; it never shows a key or a token.
    """
    around = look_around(url)
    findings = [without_secrets(finding, around.secrets) for finding in _findings(around)]
    if as_json:
        typer.echo(ascii_json([finding.as_dict() for finding in findings]))
    else:
        for finding in findings:
            typer.echo(f"{_MARKS[finding.state]}  {finding.check:<12}  {visible(finding.says)}")
            if finding.cure:
                typer.echo(f"{'':23}→ {visible(finding.cure)}")
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(1)


def _findings(around: Surroundings) -> Iterator[Finding]:
    yield from around.findings
    gateway = list(check_gateway(around))
    yield from gateway
    if any(finding.check == "gateway" and finding.state == "ok" for finding in gateway):
        # What is no gateway is not given the key.
        yield from check_key(around)
    yield from check_login(around)
    yield from check_files()
    yield from check_installation()
    yield from check_users(around)
