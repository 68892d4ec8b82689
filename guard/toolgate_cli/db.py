"""``toolgate db``: the schema of the gateway's database, backups, and the move to PostgreSQL."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate_cli.entry_points import gateway_errors, load_gateway
from toolgate_cli.output import fail, print_progress

db = typer.Typer(
    name="db",
    help="Upgrade, check, back up and copy the gateway's database, that of TOOLGATE_DATABASE_URL.",
    no_args_is_help=True,
)

Database = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="Another database. Write URLs with a password into TOOLGATE_DATABASE_URL, which other users cannot see.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, in ASCII.")]


@db.command()
def current(database: Database = None, as_json: AsJson = False) -> None:
    """Show the schema's revision, the revision of this version, and what an upgrade would do."""
    _run("reading the schema", as_json, "current", database)


@db.command()
def check(database: Database = None, as_json: AsJson = False) -> None:
    """Check that the database is intact and its schema is that of this version; status 1 if not."""
    _run("checking the database", as_json, "check", database)


@db.command()
def upgrade(
    database: Database = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which migrations would run.")] = False,
    sql: Annotated[
        bool,
        typer.Option(
            "--sql",
            help="Show their statements: they are executed, with the locks they take, and rolled back.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Upgrade the schema to this version; gateways of the previous version continue to work."""
    if dry_run and sql:
        fail("write either --dry-run or --sql")
    _run("upgrading the schema", as_json, "upgrade", database, dry_run=dry_run, sql=sql)


@db.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")],
    database: Database = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a consistent copy of the embedded SQLite file to FILE; the gateway may run meanwhile."""
    _run("copying the database", as_json, "backup", file, database, force=force)


@db.command()
def copy(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            envvar="TOOLGATE_COPY_TO",
            help="An empty database, postgresql://…; write URLs with a password into TOOLGATE_COPY_TO.",
        ),
    ],
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Copy the embedded SQLite file to PostgreSQL, while no gateway runs, and compare every row."""
    _run("copying the database, then comparing every row", as_json, "copy", to, database)


def _run(step: str, as_json: bool, operation: str, *arguments: Any, **options: Any) -> None:
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
