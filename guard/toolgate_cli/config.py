"""``toolgate config``: what a gateway would be started with here, and whether it could be."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import typer

from toolgate_cli.entry_points import load_gateway
from toolgate_cli.output import ascii_json, fail, visible
from toolgate_cli.serve import Plan, TlsCert, TlsKey, Workers, named

config = typer.Typer(
    name="config",
    help="Look at the gateway's settings before it starts. Nothing is changed or made, and no secret is shown.",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, in ASCII.")]

_MARKS: Final = {"ok": "ok     ", "warning": "warning", "wrong": "WRONG  "}
#: variables that agents, and this command line, read
OTHERS: Final = frozenset(
    {
        "TOOLGATE_AGENT_ID",
        "TOOLGATE_API_KEY",
        "TOOLGATE_CA_FILE",
        "TOOLGATE_CLIENT_CERT",
        "TOOLGATE_CLIENT_KEY",
        "TOOLGATE_CLIENT_KEY_PASSWORD",
        "TOOLGATE_COPY_TO",
        "TOOLGATE_HOOK_SECRET",
        "TOOLGATE_HTTP",
        "TOOLGATE_OUTBOX",
        "TOOLGATE_OUTBOX_BYTES",
        "TOOLGATE_OUTBOX_EXIT",
        "TOOLGATE_OUTBOX_ROWS",
        "TOOLGATE_OUTBOX_SYNC",
        "TOOLGATE_PROXY",
        "TOOLGATE_TIMEOUT",
        "TOOLGATE_URL",
        "TOOLGATE_WEBHOOK_SECRET",
    }
)


@config.command()
def show(
    plan: Plan = None,
    workers: Workers = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: AsJson = False,
) -> None:
    """Print every setting, its value, and where it comes from."""
    start_error = load_gateway("StartError")
    try:
        settings = load_gateway("config").show(
            named(default_plan=plan, workers=workers, tls_cert=tls_cert, tls_key=tls_key)
        )
    except start_error as error:
        fail(str(error))
    if as_json:
        typer.echo(ascii_json(_settings(settings)))
    else:
        _print_settings(settings)


@config.command()
def check(
    plan: Plan = None,
    workers: Workers = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: AsJson = False,
) -> None:
    """Print every setting, and look at what they name: database, secret, mail, files. Status 1 when something is wrong."""
    overrides = named(default_plan=plan, workers=workers, tls_cert=tls_cert, tls_key=tls_key)
    report = load_gateway("config").check(overrides, OTHERS)
    if as_json:
        findings = [
            {"check": one.check, "state": one.state, "says": one.says, "cure": one.cure}
            for one in report.findings
        ]
        typer.echo(ascii_json({"settings": _settings(report.settings), "findings": findings}))
    else:
        _print_settings(report.settings)
        typer.echo()
        for one in report.findings:
            typer.echo(f"{_MARKS[one.state]}  {one.check:<9}  {visible(one.says)}")
            if one.cure:
                typer.echo(f"{'':20}→ {visible(one.cure)}")
    if not report.is_good:
        raise typer.Exit(1)


def _settings(settings: Iterable[Any]) -> Mapping[str, Mapping[str, str | None]]:
    return {one.variable: {"value": one.value, "source": one.source} for one in settings}


def _print_settings(settings: Iterable[Any]) -> None:
    for one in settings:
        value = "-" if one.value is None else visible(one.value)
        typer.echo(f"{one.variable:<42} {one.source:<11}  {value}")
