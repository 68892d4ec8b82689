"""Passwords and confirmations, read from the terminal and never from arguments, which other users could see."""

import getpass
import os
import sys
import warnings

import typer

from toolgate_cli.output import fail

#: longer than any password the gateway takes (decisions §9)
_LONGEST = 1000


def ask_password(question: str, *, from_stdin: bool) -> str:
    """Return a secret that the person types unseen, or the first line of standard input.

    Args:
        question: what is asked, without what follows it.
        from_stdin: read standard input, as scripts want it.

    Raises:
        typer.Exit: there is no terminal, nothing was typed, or the person gave up; one line says so.
    """
    if from_stdin:
        secret = sys.stdin.readline(_LONGEST + 2).rstrip("\r\n")
        if not secret:
            fail("standard input has no password; write it into the first line")
    else:
        secret = _typed(question)
        if not secret:
            fail("no password was given")
    if len(secret) > _LONGEST:
        fail(f"the password has more than {_LONGEST:,} characters")
    return secret


def confirm(what: str, *, yes: bool) -> None:
    """Have the person say that something may be done that cannot be taken back.

    Args:
        what: what would be done, as a question.
        yes: it was said already, by `--yes`.

    Raises:
        typer.Exit: it may not, or nobody can be asked; nothing was done.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{what} There is no terminal to ask on; add --yes to say so")
    try:
        agreed = typer.confirm(what, err=True)
    except typer.Abort:
        typer.echo(err=True)
        raise typer.Exit(130) from None
    if not agreed:
        fail("nothing was changed")


def _typed(question: str) -> str:
    if not has_terminal():
        fail("there is no terminal to ask for the password on; use --password-stdin")
    with warnings.catch_warnings():
        # Where the terminal cannot be told to hide what is typed, nothing is asked.
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


def has_terminal() -> bool:
    """Say whether somebody can be asked."""
    if os.name != "posix":
        return sys.stdin.isatty()
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
