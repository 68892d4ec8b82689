"""``toolgate config``: show and check the gateway's settings without starting it."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import typer

from toolgate_cli.entry_points import gateway_errors, load_gateway
from toolgate_cli.output import print_json, sanitize
from toolgate_cli.serve import Plan, TlsCert, TlsKey, Workers, setting_overrides

config = typer.Typer(
    name="config",
    help="Show and check the gateway's settings before it starts. Nothing is changed, and no secret is shown.",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, in ASCII.")]

_STATES: Final = {"ok": "ok     ", "warning": "warning", "wrong": "WRONG  "}
#: environment variables of the SDK, the plugins and the command line, which are not settings of the gateway
CLIENT_VARIABLES: Final = frozenset(
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
    """Print every setting with its value and its source."""
    overrides = setting_overrides(default_plan=plan, workers=workers, tls_cert=tls_cert, tls_key=tls_key)
    with gateway_errors():
        settings = load_gateway("config").show(overrides)
    if as_json:
        print_json(_as_dict(settings))
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
    """Print every setting, and check database, secret, mail and files. Status 1 if something is wrong."""
    overrides = setting_overrides(default_plan=plan, workers=workers, tls_cert=tls_cert, tls_key=tls_key)
    report = load_gateway("config").check(overrides, CLIENT_VARIABLES)
    if as_json:
        findings = [
            {"check": one.check, "state": one.state, "says": one.message, "cure": one.hint}
            for one in report.findings
        ]
        print_json({"settings": _as_dict(report.settings), "findings": findings})
    else:
        _print_settings(report.settings)
        typer.echo()
        for one in report.findings:
            typer.echo(f"{_STATES[one.state]}  {one.check:<9}  {sanitize(one.message)}")
            if one.hint:
                typer.echo(f"{'':20}→ {sanitize(one.hint)}")
    if not report.is_good:
        raise typer.Exit(1)


def _as_dict(settings: Iterable[Any]) -> Mapping[str, Mapping[str, str | None]]:
    return {one.variable: {"value": one.value, "source": one.source} for one in settings}


def _print_settings(settings: Iterable[Any]) -> None:
    for one in settings:
        value = "-" if one.value is None else sanitize(one.value)
        typer.echo(f"{one.variable:<42} {one.source:<11}  {value}")
