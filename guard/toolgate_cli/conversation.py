"""Conversations that commands have with the gateway: under the stored login, or under one of their own."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from toolgate_cli.answers import ManagementError
from toolgate_cli.ask import ask_password
from toolgate_cli.management import Management
from toolgate_cli.output import fail
from toolgate_cli.stored_login import StoredLogin, explain
from toolgate_cli.visible import visible


@contextmanager
def stored_login() -> Iterator[Management]:
    """Talk under the stored login, which reads and manages agents.

    Raises:
        typer.Exit: nobody is logged in, or the gateway refuses or does not answer; one line says what to do.
    """
    login = StoredLogin.required()
    try:
        with login.management() as management:
            yield management
    except ManagementError as error:
        fail(_told(error))


@contextmanager
def own_login(purpose: str, *, password_stdin: bool) -> Iterator[Management]:
    """Talk under a login of this command, for which the password is asked and which ends with it.

    Args:
        purpose: what the password is for, behind "to".
        password_stdin: the password is the first line of standard input.

    Raises:
        typer.Exit: as for `stored_login`.
    """
    login = StoredLogin.required()
    password = ask_password(f"Password of {visible(login.email)} to {purpose}", from_stdin=password_stdin)
    try:
        management = Management.login(login.url, login.email, password)
    except ManagementError as error:
        fail(f"nothing was changed: {error.detail or error}")
    try:
        with management, _logged_out(management):
            yield management
    except ManagementError as error:
        fail(_told(error))


@contextmanager
def _logged_out(management: Management) -> Iterator[None]:
    try:
        yield
    finally:
        try:
            management.log_out()
        except ManagementError as error:
            typer.echo(f"toolgate: the login of this command could not be ended: {error}", err=True)


def _told(error: ManagementError) -> str:
    if error.leaves_unknown:
        return f"whether it was done is unknown: {error}; look before you try again"
    return explain(error)
