"""``toolgate login``, ``logout`` and ``whoami``: which user the commands speak for."""

import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from toolgate._files import PrivateFileError
from toolgate.errors import ConfigurationError
from toolgate.settings import checked_url, travels_readable
from toolgate_cli.answers import ManagementError
from toolgate_cli.ask import ask_password
from toolgate_cli.management import Management, issue_token
from toolgate_cli.output import fail
from toolgate_cli.stored_login import StoredLogin, explain, login_path
from toolgate_cli.visible import visible

#: where `toolgate serve` listens unless told otherwise
DEFAULT_URL = "http://127.0.0.1:8000"

PasswordStdin = Annotated[
    bool,
    typer.Option("--password-stdin", help="Read the password from standard input, for scripts."),
]


def login(
    url: Annotated[
        str | None,
        typer.Option(
            help="The gateway's address. Default: TOOLGATE_URL, else where you were logged in before, else "
            f"{DEFAULT_URL}."
        ),
    ] = None,
    email: Annotated[
        str | None, typer.Option(help="Who you are. Default: as whom you were logged in there, or asked for.")
    ] = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """Log in, for the other commands.

    The password is asked for on the terminal and not kept. What is kept, for seven days and for you alone, is a token
    of scope 'cli': it reads, and manages agents, but it neither decides nor shows keys.
    """
    former = _former()
    address = gateway_address(
        url or os.environ.get("TOOLGATE_URL") or (former.url if former else DEFAULT_URL)
    )
    who = email or (former.email if former and former.url == address else None) or _asked_email(address)
    password = ask_password(f"Password of {visible(who)} at {address}", from_stdin=password_stdin)
    try:
        token = issue_token(address, who, password, "cli")
    except ManagementError as error:
        fail(error.detail if error.is_login_over else str(error))
    stored = StoredLogin(address, who, token)
    try:
        stored.save()
    except PrivateFileError as error:
        _revoke(stored)
        fail(str(error))
    if former is not None:
        # Nobody has it any more.
        _revoke(former)
    typer.echo(f"logged in as {visible(who)} at {address}")


def logout(
    here_only: Annotated[
        bool, typer.Option("--here-only", help="Only remove the file, although the token works on.")
    ] = False,
) -> None:
    """End the login: at the gateway, and on this machine."""
    stored = None if here_only else StoredLogin.required()
    if stored is not None:
        try:
            with stored.management() as management:
                management.log_out()
        except ManagementError as error:
            # One that has ended already needs no ending.
            if not error.is_login_over:
                fail(
                    f"{error}; you are still logged in (--here-only removes the file, but the token works on)"
                )
    try:
        StoredLogin.forget()
    except PrivateFileError as error:
        fail(str(error))
    typer.echo("logged out" if stored else f"removed {str(login_path())!r}")


def whoami() -> None:
    """Say who is logged in, and where."""
    stored = StoredLogin.required()
    try:
        with stored.management() as management:
            user, organization = management.get("/auth/me"), management.get("/api/organization")
    except ManagementError as error:
        fail(explain(error))
    try:
        email, name = user["email"], organization["name"]
    except (TypeError, KeyError):
        fail(f"what answers at {stored.url!r} is no Toolgate gateway")
    typer.echo(f"{visible(email)} · {visible(name)} · {stored.url}")


def gateway_address(url: str) -> str:
    """Return the address of a gateway that a password may be sent to.

    Raises:
        typer.Exit: it is none, or everybody on the way could read the password.
    """
    try:
        address = checked_url(url)
    except ConfigurationError as error:
        fail(str(error))
    if travels_readable(address):
        fail(f"{address!r} is plain http, so your password would travel readable; use https")
    return address


def _former() -> StoredLogin | None:
    # One that cannot be used is replaced.
    try:
        return StoredLogin.find()
    except PrivateFileError:
        return None


def _asked_email(address: str) -> str:
    if not sys.stdin.isatty():
        fail("who logs in? name yourself with --email")
    try:
        asked: str = typer.prompt(f"E-mail of your account at {address}")
    except typer.Abort:
        typer.echo(err=True)
        raise typer.Exit(130) from None
    return asked.strip()


def _revoke(login: StoredLogin) -> None:
    with suppress(ManagementError), Management(login.url, login.token) as management:
        management.log_out()
