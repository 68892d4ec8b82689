"""Passwords and confirmations, which are read from the terminal.

Commands do not accept passwords as arguments, because other users of the machine can read the arguments of a process.
"""

import getpass
import os
import sys
import warnings

import typer

from toolgate_cli.output import fail

#: maximum characters that are read as a password; the gateway accepts only shorter passwords
_MAX_LENGTH = 1000


def ask_password(question: str, *, from_stdin: bool) -> str:
    """Ask the user for a password without showing it, or read the first line of standard input, and return it.

    Raises:
        typer.Exit: there is no terminal, the input is empty or too long, or the user pressed Ctrl-C.
    """
    if from_stdin:
        secret = sys.stdin.readline(_MAX_LENGTH + 2).rstrip("\r\n")
        if not secret:
            fail("standard input contains no password; write it into the first line")
    else:
        secret = _read_hidden(question)
        if not secret:
            fail("the password is empty; type it at the prompt")
    if len(secret) > _MAX_LENGTH:
        fail(f"the password has more than {_MAX_LENGTH:,} characters")
    return secret


def confirm(question: str, *, yes: bool) -> None:
    """Ask the user to confirm an irreversible operation; `yes` skips the question.

    Raises:
        typer.Exit: the user did not confirm, or there is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} There is no terminal to ask on; add --yes to confirm")
    try:
        is_confirmed = typer.confirm(question, err=True)
    except typer.Abort:
        typer.echo(err=True)
        raise typer.Exit(130) from None
    if not is_confirmed:
        fail("nothing was changed")


def has_terminal() -> bool:
    """Return whether a user can be asked for a password."""
    if os.name != "posix":
        return sys.stdin.isatty()
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _read_hidden(question: str) -> str:
    if not has_terminal():
        fail("there is no terminal to ask for the password on; use --password-stdin")
    with warnings.catch_warnings():
        # If the terminal cannot hide the input, getpass only warns. The filter makes the warning an error, which is
        # raised before the user types the password.
        warnings.simplefilter("error", getpass.GetPassWarning)
        try:
            return getpass.getpass(f"{question}: ")
        except EOFError:
            return ""
        except KeyboardInterrupt:
            typer.echo(err=True)
            raise typer.Exit(130) from None
        except getpass.GetPassWarning:
            fail("the terminal would show the password; use --password-stdin")
