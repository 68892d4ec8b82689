"""``toolgate login``, ``logout``, ``whoami`` and ``slack link``, and the clients with which other commands send requests.

The stored login is a token of scope ``cli`` in the user's configuration folder. Commands that use it can read
data and manage agents, but they cannot decide approval requests or show keys. A command that decides requests or shows
keys asks for the password, creates a second login with all rights, and ends this login when the command is done.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from toolgate._files import PrivateFileError, read_private, remove_private, write_private
from toolgate._settings import checked_url, travels_readable
from toolgate.errors import ConfigurationError
from toolgate_cli.client import GatewayClient, GatewayError
from toolgate_cli.options import PasswordStdin
from toolgate_cli.output import ask_password, fail, print_note, sanitize

#: default address of `toolgate serve`
DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class StoredLogin:
    """Login of the user, stored in a private file.

    Attributes:
        url: the gateway's address; the token is sent to no other address.
        email: the user's e-mail address.
        token: the token of scope `cli`, which is secret.
    """

    url: str
    email: str
    token: str = field(repr=False)

    @classmethod
    def load(cls) -> "StoredLogin | None":
        """Return the stored login, or None when the user is not logged in.

        Raises:
            PrivateFileError: the file is unsafe or damaged.
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
        if not (isinstance(url, str) and isinstance(email, str) and _is_token(token)):
            raise PrivateFileError(
                f"{str(path)!r} does not contain a valid login; log in again to replace it: toolgate login"
            )
        return cls(url, email, token)

    @classmethod
    def require(cls) -> "StoredLogin":
        """Return the stored login.

        Raises:
            typer.Exit: the user is not logged in, or the file is unsafe or damaged.
        """
        try:
            stored = cls.load()
        except PrivateFileError as error:
            fail(str(error))
        if stored is None:
            fail("you are not logged in; run: toolgate login --url URL --email EMAIL")
        return stored

    def save(self) -> None:
        """Replace the stored login by this one.

        Raises:
            PrivateFileError: the file cannot be written.
        """
        content = {"url": self.url, "email": self.email, "token": self.token}
        write_private(login_path(), json.dumps(content).encode())

    def client(self) -> GatewayClient:
        """Return a client that uses this login."""
        return GatewayClient(self.url, self.token)


def login_path() -> Path:
    """Return the path of the stored login."""
    from platformdirs import user_config_path

    return user_config_path("toolgate", appauthor=False) / "login.json"


@contextmanager
def stored_session() -> Iterator[GatewayClient]:
    """Yield a client that uses the stored login; if one of its requests fails, the command ends with an error.

    Raises:
        typer.Exit: the user is not logged in, or a request failed.
    """
    login = StoredLogin.require()
    try:
        with login.client() as client:
            yield client
    except GatewayError as error:
        fail(describe_error(error))


@contextmanager
def password_session(
    purpose: str, *, password_stdin: bool, refusal: str = "nothing was changed"
) -> Iterator[GatewayClient]:
    """Ask for the password, log in, yield a client for this new login, and log out at the end of the `with` block.

    Args:
        purpose: what the password is used for, such as "create a webhook"; the prompt ends with "to" and this text.
        password_stdin: read the password from the first line of standard input.
        refusal: beginning of the error message if the login fails.

    Raises:
        typer.Exit: the user is not logged in, the password is wrong, or a request failed.
    """
    login = StoredLogin.require()
    password = ask_password(f"Password of {sanitize(login.email)} to {purpose}", from_stdin=password_stdin)
    try:
        token = request_token(login.url, login.email, password, "full")
    except GatewayError as error:
        fail(f"{refusal}: {error.detail or error}")
    with GatewayClient(login.url, token) as client:
        try:
            yield client
        except GatewayError as error:
            fail(describe_error(error))
        finally:
            try:
                _revoke(client)
            except GatewayError as error:
                print_note(f"the temporary login of this command could not be revoked: {error}")


def describe_error(error: GatewayError) -> str:
    """Return the message that a command prints for a failed request."""
    if error.is_outcome_unknown:
        return f"it is unknown whether the gateway made the change: {error}; check before you try again"
    return (
        ("your login has expired or was revoked; log in again: toolgate login")
        if error.is_unauthorized
        else str(error)
    )


def request_token(url: str, email: str, password: str, scope: Literal["full", "cli"]) -> str:
    """Exchange e-mail and password for a token.

    Raises:
        GatewayError: the gateway refused the login, or a server that is not a Toolgate gateway responded.
    """
    with GatewayClient(url) as client:
        content = client.post("/auth/login", {"email": email, "password": password, "scope": scope})
    token = content.get("access_token") if isinstance(content, dict) else None
    if not isinstance(token, str) or not _is_token(token):
        raise GatewayError(
            f"{url!r} is not the address of a Toolgate gateway: the response to the login contains no token; "
            "correct the address"
        )
    return token


def login(
    url: Annotated[
        str | None,
        typer.Option(
            help="The gateway's address. Default: TOOLGATE_URL, else the address of your last login, else "
            f"{DEFAULT_URL}."
        ),
    ] = None,
    email: Annotated[
        str | None,
        typer.Option(
            help="The e-mail address of your account. Default: the address of your last login at this "
            "gateway. Without an earlier login, the command asks for the address."
        ),
    ] = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """Log in; the other commands then use this login.

    The password is not stored. A token of scope 'cli' is stored for seven days in a file that only you can read: it can
    read, and manage agents, but it cannot decide approval requests or show keys.
    """
    try:
        former = StoredLogin.load()
    except PrivateFileError:
        # A stored login that cannot be used is replaced by the new one.
        former = None
    address = _check_address(url or os.environ.get("TOOLGATE_URL") or (former.url if former else DEFAULT_URL))
    user = email or (former.email if former and former.url == address else None) or _ask_email(address)
    password = ask_password(f"Password of {sanitize(user)} at {address}", from_stdin=password_stdin)
    try:
        stored = StoredLogin(address, user, request_token(address, user, password, "cli"))
    except GatewayError as error:
        fail(error.detail if error.is_unauthorized else str(error))
    try:
        stored.save()
    except PrivateFileError as error:
        with suppress(GatewayError), stored.client() as client:
            _revoke(client)
        fail(str(error))
    if former is not None:
        with suppress(GatewayError), former.client() as client:
            _revoke(client)
    typer.echo(f"logged in as {sanitize(user)} at {address}")


def logout(
    here_only: Annotated[
        bool,
        typer.Option(
            "--here-only",
            help="Delete the login only from this machine; the login's token stays valid at the gateway.",
        ),
    ] = False,
) -> None:
    """End the login at the gateway and remove it from this machine."""
    stored = None if here_only else StoredLogin.require()
    if stored is not None:
        try:
            with stored.client() as client:
                _revoke(client)
        except GatewayError as error:
            # An invalid or expired token does not have to be revoked at the gateway, so only the file is removed.
            if not error.is_unauthorized:
                fail(
                    f"{error}; you are still logged in; to delete the login only from this "
                    "machine, add --here-only (the login's token then stays valid at the gateway)"
                )
    try:
        remove_private(login_path())
    except PrivateFileError as error:
        fail(str(error))
    typer.echo("logged out" if stored else f"removed {str(login_path())!r}")


def whoami() -> None:
    """Print the user, the organization and the gateway of your login."""
    with stored_session() as client:
        user, organization = client.get("/auth/me"), client.get("/api/organization")
    try:
        email, name = user["email"], organization["name"]
    except (TypeError, KeyError):
        fail(
            f"{client.url!r} is not the address of a Toolgate gateway; log in again with: toolgate login --url URL"
        )
    typer.echo(f"{sanitize(email)} · {sanitize(name)} · {client.url}")


def _check_address(url: str) -> str:
    """Return the gateway's address, or end the command if a password would be sent to it unencrypted."""
    try:
        address = checked_url(url)
    except ConfigurationError as error:
        fail(str(error))
    if travels_readable(address):
        fail(f"{address!r} is plain http, which would send your password unencrypted; use https")
    return address


def _ask_email(address: str) -> str:
    if not sys.stdin.isatty():
        fail(
            "no e-mail address is given, and without a terminal the command cannot ask for it; add --email ADDRESS"
        )
    try:
        answer: str = typer.prompt(f"E-mail of your account at {address}")
    except typer.Abort:
        typer.echo(err=True)
        raise typer.Exit(130) from None
    return answer.strip()


def _revoke(client: GatewayClient) -> None:
    client.post("/auth/logout")


def _is_token(token: object) -> bool:
    # The token is sent in a header. If it contained characters that are invalid in a header, an error message would
    # show the header, which contains the secret token.
    return isinstance(token, str) and token != "" and all("!" <= char <= "~" for char in token)


_PATH: Final = "/api/slack/link-codes"

slack = typer.Typer(name="slack", no_args_is_help=True)


# Without a callback, Typer would replace a group that contains one command by that command.
@slack.callback()
def _slack() -> None:
    """Link your Slack account to your Toolgate account, so that you can decide approval requests in Slack."""


@slack.command()
def link(
    webhook: Annotated[
        str | None,
        typer.Option(
            help="The id of the webhook of the Slack app to use; required only if several Slack apps are connected."
        ),
    ] = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """Print a code that links your Slack account to this account. Asks for your password.

    The Slack user who enters the code within ten minutes decides approval requests in your name.
    """
    with password_session(
        "link your Slack account", password_stdin=password_stdin, refusal="no code was created"
    ) as client:
        content = client.post(_PATH, None if webhook is None else {"webhook_id": webhook})
    code = content.get("code") if isinstance(content, dict) else None
    if not isinstance(code, str):
        fail(f"invalid response to POST {_PATH!r}: it has no code")
    typer.echo(f"type this in Slack within ten minutes:  /toolgate link {sanitize(code)}")
