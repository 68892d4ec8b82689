"""``toolgate doctor``: find problems that prevent agents on this machine from working, or weaken their security."""

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from toolgate_cli.doctor.gateway import check_gateway, check_key, check_login
from toolgate_cli.doctor.local import (
    Finding,
    LocalSettings,
    check_files,
    check_installation,
    check_users,
    hide_secrets,
    read_local_settings,
)
from toolgate_cli.options import GatewayUrl
from toolgate_cli.output import print_json, sanitize

_STATES: Final = {"ok": "ok     ", "warning": "warning", "wrong": "WRONG  ", "unknown": "unknown"}


def doctor(
    url: GatewayUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON, in ASCII.")] = False,
) -> None:
    """Check settings, gateway, key, agent, login, files and installation; status 1 if something is wrong.

    Changes nothing, and never prints a key or a token.
    """
    settings = read_local_settings(url)
    findings = [hide_secrets(finding, settings.secrets) for finding in _run_checks(settings)]
    if as_json:
        print_json([finding.as_dict() for finding in findings])
    else:
        for finding in findings:
            typer.echo(f"{_STATES[finding.state]}  {finding.check:<12}  {sanitize(finding.says)}")
            if finding.cure:
                typer.echo(f"{'':23}→ {sanitize(finding.cure)}")
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(1)


def _run_checks(settings: LocalSettings) -> Iterator[Finding]:
    yield from settings.findings
    gateway = list(check_gateway(settings))
    yield from gateway
    if any(finding.check == "gateway" and finding.state == "ok" for finding in gateway):
        # The API key must not be sent to any other server. It is therefore checked only after a Toolgate gateway has
        # responded.
        yield from check_key(settings)
    yield from check_login(settings)
    yield from check_files()
    yield from check_installation()
    yield from check_users(settings)
