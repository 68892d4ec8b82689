"""``toolgate admin``: what an operator does by hand, straight on the gateway's database."""

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from toolgate_cli.entry_points import load_gateway
from toolgate_cli.output import fail

admin = typer.Typer(
    name="admin",
    help="Do what no user may: plans, payments, secrets. Works on the database of TOOLGATE_DATABASE_URL, also while "
    "gateways run.",
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
    """Create an organization and print a link with which its first admin chooses a password.

    For gateways on which nobody can register: TOOLGATE_REGISTRATION=invite or closed.
    """
    _show(lambda: load_gateway("admin").create_organization(name, email))


@admin.command()
def set_plan(
    organization: Organization,
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="free, pro, business or enterprise.")],
) -> None:
    """Put an organization on a plan at once."""
    _show(lambda: load_gateway("admin").set_plan(organization, plan))


@admin.command()
def set_rate(
    organization: Organization,
    requests_per_minute: Annotated[
        int | None, typer.Argument(metavar="[REQUESTS]", help="Requests a minute.")
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="The plan's rate again.")] = False,
) -> None:
    """Give an organization a rate of its own, or its plan's again."""
    if (requests_per_minute is None) != default:
        fail("write either REQUESTS or --default")
    _show(lambda: load_gateway("admin").set_rate(organization, requests_per_minute))


@admin.command()
def activate(organization: Organization) -> None:
    """Let an organization work again and forgive its failed payments."""
    _show(lambda: load_gateway("admin").activate(organization))


@admin.command()
def deactivate(organization: Organization) -> None:
    """Stop an organization at once; no payment takes that back."""
    _show(lambda: load_gateway("admin").deactivate(organization))


@admin.command()
def link_customer(
    organization: Organization,
    customer: Annotated[
        str | None, typer.Argument(metavar="[CUSTOMER]", help="The payment provider's customer, cus_….")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="In place of another customer.")] = False,
    unlink: Annotated[bool, typer.Option("--unlink", help="From its customer, to nobody.")] = False,
) -> None:
    """Say which customer of the payment provider an organization is."""
    if (customer is None) != unlink:
        fail("write either CUSTOMER or --unlink")
    _show(lambda: load_gateway("admin").link_customer(organization, customer, replace=replace))


@admin.command()
def reset_password(
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="The e-mail of a user.")],
) -> None:
    """Print a link that lets a user choose a new password, once, for an hour."""
    _show(lambda: load_gateway("admin").reset_password(email))


@admin.command()
def prune(
    force: Annotated[bool, typer.Option("--force", help="Although the clock seems to have jumped.")] = False,
) -> None:
    """Remove now what is kept no longer: old log entries, expired links, audit entries of more than a year ago."""
    _show(lambda: load_gateway("admin").prune_now(force=force))


@admin.command()
def rotate_secret(
    finish: Annotated[bool, typer.Option("--finish", help="Forget the former secret.")] = False,
    discard_unreadable: Annotated[
        bool,
        typer.Option(
            "--discard-unreadable",
            help="For a secret that is lost: remove the stored keys and webhook secrets that it sealed.",
        ),
    ] = False,
) -> None:
    """Seal everything anew under a new secret; nobody has to log in again.

    The embedded gateway's secret is made by the command. Otherwise set TOOLGATE_SECRET to the new secret and
    TOOLGATE_SECRET_PREVIOUS to the one until now.
    """
    if finish and discard_unreadable:
        fail("write either --finish or --discard-unreadable")
    _show(lambda: load_gateway("admin").rotate_secret(finish=finish, discard_unreadable=discard_unreadable))


def _show(work: Callable[[], Iterable[str]]) -> None:
    start_error = load_gateway("StartError")
    try:
        lines = work()
    except start_error as error:
        fail(str(error))
    for line in lines:
        typer.echo(line)
