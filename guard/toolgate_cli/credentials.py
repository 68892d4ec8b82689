"""``toolgate login``, ``logout`` and ``whoami``, and the stored login that other commands use."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from toolgate._files import PrivateFileError, read_private, remove_private, write_private
from toolgate.errors import ConfigurationError
from toolgate.settings import checked_url, travels_readable
from toolgate_cli.client import Management, ManagementError, issue_token
from toolgate_cli.options import PasswordStdin
from toolgate_cli.output import fail, visible
from toolgate_cli.prompts import ask_password


@dataclass(frozen=True, slots=True)
class StoredLogin:
    """Who is logged in, and where.

    Attributes:
        url: the gateway's address; the token goes nowhere else.
        email: the user.
        token: never shown.
    """

    url: str
    email: str
    token: str = field(repr=False)

    @classmethod
    def find(cls) -> "StoredLogin | None":
        """Return what was stored, or None when nobody is logged in.

        Raises:
            PrivateFileError: the file is not as it must be.
        """
        path = login_path()
        content = read_private(path)
        if content is None:
            return None
        try:
            stored = json.loads(content)
            url, email, token = stored["url"], stored["email"], stored["token"]
        except (ValueError, TypeError, KeyError, RecursionError):
            url = email = token = None
        # What goes into a header must be fit for one: the error would show it.
        fit = isinstance(token, str) and token and all("!" <= char <= "~" for char in token)
        if not (isinstance(url, str) and isinstance(email, str) and fit):
            raise PrivateFileError(
                f"{str(path)!r} cannot be read as a login; log in again, which replaces it"
            )
        return cls(url, email, token)

    @classmethod
    def required(cls) -> "StoredLogin":
        """Return what was stored.

        Raises:
            typer.Exit: nobody is logged in, or the file is not as it must be; one line says what to do.
        """
        try:
            stored = cls.find()
        except PrivateFileError as error:
            fail(str(error))
        if stored is None:
            fail("you are not logged in; run: toolgate login --url URL --email EMAIL")
        return stored

    def save(self) -> None:
        """Store it in place of the former.

        Raises:
            PrivateFileError: it cannot be stored.
        """
        content = {"url": self.url, "email": self.email, "token": self.token}
        write_private(login_path(), json.dumps(content).encode())

    @staticmethod
    def forget() -> None:
        """Remove what was stored.

        Raises:
            PrivateFileError: it cannot be removed.
        """
        remove_private(login_path())

    def management(self) -> Management:
        """Begin a conversation with it."""
        return Management(self.url, self.token)


def login_path() -> Path:
    """Return where the login is stored."""
    from platformdirs import user_config_path

    return user_config_path("toolgate", appauthor=False) / "login.json"


def explain(error: ManagementError) -> str:
    """Return a refusal's message; for a login that is over, what to do."""
    if error.is_login_over:
        return "your login has ended; run: toolgate login"
    return str(error)


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
        fail(_failure_text(error))


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
        fail(_failure_text(error))


@contextmanager
def _logged_out(management: Management) -> Iterator[None]:
    try:
        yield
    finally:
        try:
            management.log_out()
        except ManagementError as error:
            typer.echo(f"toolgate: the login of this command could not be ended: {error}", err=True)


def _failure_text(error: ManagementError) -> str:
    if error.leaves_unknown:
        return f"whether it was done is unknown: {error}; look before you try again"
    return explain(error)


#: where `toolgate serve` listens unless told otherwise
DEFAULT_URL = "http://127.0.0.1:8000"


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
