"""``toolgate db``: the gateway's database as a whole: its schema, its backups, and where it is kept."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate_cli.entry_points import load_gateway
from toolgate_cli.output import fail, show_progress

db = typer.Typer(
    name="db",
    help="Look after the gateway's database: its schema, backups, and the way to PostgreSQL. Works on that of "
    "TOOLGATE_DATABASE_URL.",
    no_args_is_help=True,
)

Database = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="In place of TOOLGATE_DATABASE_URL, which others of this machine do not see: a password belongs there.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print what came of it as JSON, in ASCII.")]


@db.command()
def current(database: Database = None, as_json: AsJson = False) -> None:
    """Show the schema's revision, this version's, and what an upgrade would do."""
    _show("reading the schema", lambda: load_gateway("db").current(database), as_json=as_json)


@db.command()
def check(database: Database = None, as_json: AsJson = False) -> None:
    """Look whether the database is whole and its schema this version's; status 1 if not."""
    _show("checking the database", lambda: load_gateway("db").check(database), as_json=as_json)


@db.command()
def upgrade(
    database: Database = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which migrations would run.")] = False,
    sql: Annotated[
        bool,
        typer.Option(
            "--sql",
            help="Show their statements: they are carried out and taken back, with the locks that they take.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the schema to this version's; gateways of the version before go on meanwhile."""
    if dry_run and sql:
        fail("write either --dry-run or --sql")
    _show(
        "upgrading the schema",
        lambda: load_gateway("db").upgrade(database, dry_run=dry_run, sql=sql),
        as_json=as_json,
    )


@db.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes.")],
    database: Database = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file of that name.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy the embedded SQLite file at one moment, while the gateway serves it."""
    _show(
        "copying the database",
        lambda: load_gateway("db").backup(file, database, force=force),
        as_json=as_json,
    )


@db.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What 'toolgate db backup' made.")],
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Put a backup in the place of the embedded SQLite file, which nobody serves; what was there is kept aside."""
    _show("restoring the database", lambda: load_gateway("db").restore(file, database), as_json=as_json)


@db.command()
def copy(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            envvar="TOOLGATE_COPY_TO",
            help="An empty database, postgresql://…; with a password, write it into TOOLGATE_COPY_TO instead.",
        ),
    ],
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Copy the embedded SQLite file, which nobody serves, to PostgreSQL, and compare every row."""
    _show(
        "copying the database, then comparing every row",
        lambda: load_gateway("db").copy(to, database),
        as_json=as_json,
    )


def _show(step: str, work: Callable[[], Any], *, as_json: bool) -> None:
    show_progress(step)
    start_error = load_gateway("StartError")
    try:
        report = work()
    except start_error as error:
        fail(str(error))
    if as_json:
        typer.echo(json.dumps(report.facts, ensure_ascii=True))
    else:
        for line in report.lines:
            typer.echo(line)
    if not report.good:
        raise typer.Exit(1)
