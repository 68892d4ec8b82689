"""``toolgate admin``: operations of the gateway's operator, which change the gateway's database directly."""

from typing import Annotated, Any

import typer

from toolgate_cli.entry_points import gateway_errors, load_gateway
from toolgate_cli.output import fail

admin = typer.Typer(
    name="admin",
    help="Manage plans, payments and secrets on the database of TOOLGATE_DATABASE_URL, also while gateways run.",
    no_args_is_help=True,
)

Organization = Annotated[
    str,
    typer.Argument(metavar="ORGANIZATION", help="Its id, its slug, or the e-mail of one of its admins."),
]


@admin.command()
def create_organization(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The organization's name.")],
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="The e-mail of its first admin.")],
) -> None:
    """Create an organization and print a link with which its first admin sets a password.

    For gateways without public registration: TOOLGATE_REGISTRATION=invite or closed.
    """
    _run("create_organization", name, email)


@admin.command()
def set_plan(
    organization: Organization,
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="free, pro, business or enterprise.")],
) -> None:
    """Change an organization's plan at once."""
    _run("set_plan", organization, plan)


@admin.command()
def set_rate(
    organization: Organization,
    requests_per_minute: Annotated[
        int | None, typer.Argument(metavar="[REQUESTS]", help="Requests per minute.")
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Use the plan's rate limit again.")] = False,
) -> None:
    """Give an organization the rate limit REQUESTS; with --default, the rate limit of its plan applies again."""
    if (requests_per_minute is None) != default:
        fail("write either REQUESTS or --default")
    _run("set_rate", organization, requests_per_minute)


@admin.command()
def activate(organization: Organization) -> None:
    """Enable an organization again and reset its failed payments."""
    _run("activate", organization)


@admin.command()
def deactivate(organization: Organization) -> None:
    """Disable an organization at once; payments do not enable it again."""
    _run("deactivate", organization)


@admin.command()
def link_customer(
    organization: Organization,
    customer: Annotated[
        str | None, typer.Argument(metavar="[CUSTOMER]", help="The payment provider's customer, cus_….")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace another customer.")] = False,
    unlink: Annotated[bool, typer.Option("--unlink", help="Remove the link to a customer.")] = False,
) -> None:
    """Link an organization to a customer of the payment provider."""
    if (customer is None) != unlink:
        fail("write either CUSTOMER or --unlink")
    _run("link_customer", organization, customer, replace=replace)


@admin.command()
def reset_password(
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="The e-mail of a user.")],
) -> None:
    """Print a link with which a user can set a new password; it works once and expires after an hour."""
    _run("reset_password", email)


@admin.command()
def prune(
    force: Annotated[
        bool, typer.Option("--force", help="Prune although the clock seems to have jumped.")
    ] = False,
) -> None:
    """Delete expired data now: old log entries, expired links, audit events older than a year."""
    _run("prune_now", force=force)


@admin.command()
def rotate_secret(
    finish: Annotated[bool, typer.Option("--finish", help="Forget the former secret.")] = False,
    discard_unreadable: Annotated[
        bool,
        typer.Option(
            "--discard-unreadable",
            help="For a lost secret: delete the stored keys and webhook secrets that it encrypted.",
        ),
    ] = False,
) -> None:
    """Encrypt all stored secrets with a new secret; users stay logged in.

    The command creates the secret of an embedded gateway. Otherwise set TOOLGATE_SECRET to the new secret and
    TOOLGATE_SECRET_PREVIOUS to the former one.
    """
    if finish and discard_unreadable:
        fail("write either --finish or --discard-unreadable")
    _run("rotate_secret", finish=finish, discard_unreadable=discard_unreadable)


def _run(operation: str, *arguments: Any, **options: Any) -> None:
    with gateway_errors():
        lines = getattr(load_gateway("admin"), operation)(*arguments, **options)
    for line in lines:
        typer.echo(line)
