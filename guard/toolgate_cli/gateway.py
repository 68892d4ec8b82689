"""Commands that run a gateway on this machine, or change its settings and its database.

These are ``toolgate serve``, ``toolgate config``, ``toolgate db`` and ``toolgate admin``.
"""

import json
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from toolgate_cli.entry_points import gateway_errors, load_gateway
from toolgate_cli.output import fail, print_json, print_progress, sanitize

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
    typer.Option(help="Path of the PEM file with the TLS certificate, to serve https (TOOLGATE_TLS_CERT)."),
]
TlsKey: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Path of the PEM file with the certificate's private key (TOOLGATE_TLS_KEY)."),
]


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 chooses a free port.")
    ] = 8000,
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
    # This line tells the user to wait: the first start takes several seconds, because Python compiles the modules, and
    # the schema may be upgraded.
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
        """Return a function that calls `announce`, unless SIGTERM arrived during the start of the gateway.

        The gateway calls the function with a line for the user as soon as it has started. SIGTERM normally ends the
        process, because the signal handler raises `SystemExit`. If the handler runs inside a finalizer, Python ignores
        the exception, and the start continues. In this case the function raises SIGTERM again, which stops the gateway.
        """

        def on_started(line: str) -> None:
            if self._is_received:
                signal.raise_signal(signal.SIGTERM)
            else:
                announce(line)

        return on_started


config = typer.Typer(
    name="config",
    help="Show and check the gateway's settings before it starts. Nothing is changed, and no secret is shown.",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, in ASCII.")]

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
        "TOOLGATE_OUTBOX_FLUSH_TIMEOUT",
        "TOOLGATE_OUTBOX_ROWS",
        "TOOLGATE_OUTBOX_SYNC",
        "TOOLGATE_PROXY",
        "TOOLGATE_TIMEOUT",
        "TOOLGATE_URL",
        "TOOLGATE_WEBHOOK_SECRET",
    }
)


@config.command("show")
def show_settings(
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


@config.command("check")
def check_settings(
    plan: Plan = None,
    workers: Workers = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    as_json: AsJson = False,
) -> None:
    """Print every setting, and check database, secret, mail and files. Exit with 1 if a check fails."""
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


db = typer.Typer(
    name="db",
    help="Upgrade, check, back up and copy the gateway's database, whose URL is in TOOLGATE_DATABASE_URL.",
    no_args_is_help=True,
)

Database = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="The database's URL. If it contains a password, set the environment variable "
        "TOOLGATE_DATABASE_URL instead: other users of this machine can see the options of a command.",
    ),
]


@db.command()
def current(database: Database = None, as_json: AsJson = False) -> None:
    """Show the revision of the database schema, the latest revision, and the migrations that an upgrade would run."""
    _run_on_database("reading the schema", as_json, "current", database)


@db.command("check")
def check_database(database: Database = None, as_json: AsJson = False) -> None:
    """Check that the database is intact and has the schema of this version of Toolgate; exit with 1 if not."""
    _run_on_database("checking the database", as_json, "check", database)


@db.command()
def upgrade(
    database: Database = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which migrations would run.")] = False,
    sql: Annotated[
        bool,
        typer.Option(
            "--sql",
            help=(
                "Print the SQL of the migrations that would run. To obtain the SQL, the command runs the "
                "migrations, which locks tables, and then rolls back all changes."
            ),
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Upgrade the database schema to this version of Toolgate; gateways of the previous version continue to work."""
    if dry_run and sql:
        fail("--dry-run and --sql exclude each other; use only one of them")
    _run_on_database("upgrading the schema", as_json, "upgrade", database, dry_run=dry_run, sql=sql)


@db.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Path of the backup file to write.")],
    database: Database = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a consistent copy of the embedded SQLite file to FILE, also while the gateway runs."""
    _run_on_database("copying the database", as_json, "backup", file, database, force=force)


@db.command()
def copy(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            envvar="TOOLGATE_COPY_TO",
            help="The URL of an empty PostgreSQL database, postgresql://…. If it contains a password, set "
            "the environment variable TOOLGATE_COPY_TO instead of this option.",
        ),
    ],
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Copy the embedded SQLite file to PostgreSQL, while no gateway runs, and compare every row."""
    _run_on_database("copying the database, then comparing every row", as_json, "copy", to, database)


def _run_on_database(step: str, as_json: bool, operation: str, *arguments: Any, **options: Any) -> None:
    print_progress(step)
    with gateway_errors():
        report = getattr(load_gateway("db"), operation)(*arguments, **options)
    if as_json:
        typer.echo(json.dumps(report.facts, ensure_ascii=True))
    else:
        for line in report.lines:
            typer.echo(line)
    if not report.good:
        raise typer.Exit(1)


admin = typer.Typer(
    name="admin",
    help="Manage plans, payments and secrets in the database at TOOLGATE_DATABASE_URL, also while gateways run.",
    no_args_is_help=True,
)

Organization = Annotated[
    str,
    typer.Argument(
        metavar="ORGANIZATION",
        help="The organization: its id, its slug, or the e-mail address of one of its admins.",
    ),
]


@admin.command()
def create_organization(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The organization's name.")],
    email: Annotated[
        str, typer.Argument(metavar="EMAIL", help="The e-mail address of the organization's first admin.")
    ],
) -> None:
    """Create an organization and print a link with which its first admin sets a password.

    For gateways without public registration: TOOLGATE_REGISTRATION=invite or closed.
    """
    _run_as_operator("create_organization", name, email)


@admin.command()
def set_plan(
    organization: Organization,
    plan: Annotated[
        str, typer.Argument(metavar="PLAN", help="The new plan: free, pro, business or enterprise.")
    ],
) -> None:
    """Change an organization's plan at once."""
    _run_as_operator("set_plan", organization, plan)


@admin.command()
def set_rate(
    organization: Organization,
    requests_per_minute: Annotated[
        int | None, typer.Argument(metavar="[REQUESTS]", help="The new rate limit, in requests per minute.")
    ] = None,
    default: Annotated[
        bool, typer.Option("--default", help="Apply the rate limit of the organization's plan again.")
    ] = False,
) -> None:
    """Give an organization the rate limit REQUESTS; with --default, the rate limit of its plan applies again."""
    if (requests_per_minute is None) != default:
        fail("give either a number of requests or --default, not both")
    _run_as_operator("set_rate", organization, requests_per_minute)


@admin.command()
def activate(organization: Organization) -> None:
    """Enable an organization again, and waive its failed payments."""
    _run_as_operator("activate", organization)


@admin.command()
def deactivate(organization: Organization) -> None:
    """Disable an organization at once; a later payment does not enable the organization again."""
    _run_as_operator("deactivate", organization)


@admin.command()
def link_customer(
    organization: Organization,
    customer: Annotated[
        str | None,
        typer.Argument(
            metavar="[CUSTOMER]", help="The id of the customer at the payment provider, such as cus_…."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the customer to which the organization is linked now.")
    ] = False,
    unlink: Annotated[
        bool, typer.Option("--unlink", help="Remove the organization's link to a customer.")
    ] = False,
) -> None:
    """Link an organization to a customer of the payment provider."""
    if (customer is None) != unlink:
        fail("give either the id of a customer or --unlink, not both")
    _run_as_operator("link_customer", organization, customer, replace=replace)


@admin.command()
def reset_password(
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="The user's e-mail address.")],
) -> None:
    """Print a link with which a user can set a new password; it works once and expires after an hour."""
    _run_as_operator("reset_password", email)


@admin.command()
def prune(
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Delete expired data even if this machine's clock seems to have jumped forward."
        ),
    ] = False,
) -> None:
    """Delete expired data now: old log entries, expired links, audit events older than a year."""
    _run_as_operator("prune_now", force=force)


@admin.command()
def rotate_secret(
    finish: Annotated[
        bool,
        typer.Option(
            "--finish",
            help="Delete the former secret. Use this option when all gateways use the new secret.",
        ),
    ] = False,
    discard_unreadable: Annotated[
        bool,
        typer.Option(
            "--discard-unreadable",
            help="If the former secret is lost: delete the stored keys and webhook secrets that were "
            "encrypted with it.",
        ),
    ] = False,
) -> None:
    """Replace the gateway's secret, and encrypt all stored keys and webhook secrets with the new one.

    Users stay logged in.

    For an embedded gateway, the command creates the new secret. For any other gateway, set TOOLGATE_SECRET to the new
    secret and TOOLGATE_SECRET_PREVIOUS to the former secret before you run the command.
    """
    if finish and discard_unreadable:
        fail("--finish and --discard-unreadable exclude each other; use only one of them")
    _run_as_operator("rotate_secret", finish=finish, discard_unreadable=discard_unreadable)


def _run_as_operator(operation: str, *arguments: Any, **options: Any) -> None:
    with gateway_errors():
        lines = getattr(load_gateway("admin"), operation)(*arguments, **options)
    for line in lines:
        typer.echo(line)
