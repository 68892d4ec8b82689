"""Output of all commands, and questions to the user.

The output consists of error messages, tables, JSON, and text from the gateway with unsafe characters escaped. Text from
the gateway may contain anything: agents choose their names, and models choose the arguments of tool calls. All of it
passes through `sanitize` before it is printed.

Commands do not accept passwords as arguments, because other users of the machine can read the arguments of a process.
Passwords are read from the terminal or from standard input.
"""

import getpass
import os
import re
import shutil
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolgate._capture.jsontext import dumps

MAX_CELL = 40

#: number of cells (columns) in a line if the output is not a terminal
_DEFAULT_WIDTH = 100
#: number of cells (columns) in a line of a table if the output is not a terminal, so that each row takes only one line
_PIPED_TABLE_WIDTH = 240

# Unicode categories that `sanitize` escapes: controls, formats (bidirectional, zero width), surrogates, private use,
# unassigned, line and paragraph separators, and spaces. Of the spaces only U+0020 is printed, because a no-break space
# would make two different names look alike.
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Ranges of characters that are invisible although Unicode classifies them as letters, marks or symbols: characters with
# the property Default_Ignorable_Code_Point outside of the categories above, and the empty Braille pattern.
_BLANK = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0000, 0xE0FFF),
)
# Maximum number of combining marks on one letter. More marks would cover the lines above and below.
_MAX_MARKS = 4
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_NOT_ASCII = re.compile(r"[^ -~]")


def fail(message: str) -> NoReturn:
    """Print an error on standard error, in one line, and end the command with status 1.

    Raises:
        typer.Exit: always.
    """
    # Backslashes are printed unchanged, because they may be part of escape sequences that `sanitize` has already
    # inserted.
    line = "".join(char if char == "\\" else sanitize(char) for char in message)
    print_note(line)
    raise typer.Exit(1)


def print_note(message: str) -> None:
    """Print a line on standard error, so that standard output contains only the result."""
    typer.echo(f"toolgate: {message}", err=True)


def print_progress(step: str) -> None:
    """Print the current step of a command on standard error; print nothing if standard error is not a terminal."""
    if sys.stderr.isatty():
        typer.echo(f"{step} …", err=True)


def print_json(value: Any) -> None:
    """Print a value as JSON on one line, in printable ASCII; decimals keep all digits."""
    typer.echo(to_ascii_json(value))


def to_ascii_json(value: Any) -> str:
    """Return a value as JSON on one line, in printable ASCII; decimals keep all digits."""
    return _NOT_ASCII.sub(_escape_json, dumps(value))


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table.

    Attributes:
        heading: the text above the column.
        no_wrap: if true, the text of a cell is never broken into several lines.
        right: whether cells are aligned to the right.
    """

    heading: str
    no_wrap: bool = False
    right: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of sanitized texts, as wide as the terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(
            column.heading,
            no_wrap=column.no_wrap,
            overflow="fold",
            justify="right" if column.right else "left",
        )
    for row in rows:
        # rich interprets markup in a plain string, but not in a Text.
        table.add_row(*map(Text, row))
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPED_TABLE_WIDTH
    console.print(table)


def truncate(text: str, length: int = MAX_CELL) -> str:
    """Return a text, shortened if it has more than `length` characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def terminal_width() -> int:
    """Return the number of cells in a line of the terminal."""
    return shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns


def sanitize(text: object, *, quote: str = "") -> str:
    """Return a text on one line, with every invisible or unsafe character replaced by an escape sequence.

    The results for two different texts are always different.

    Args:
        text: values that are not strings are converted with `str`.
        quote: the quotation mark that the caller prints around the text; inside of the text it is escaped.
    """
    shown: list[str] = []
    marks = _MAX_MARKS
    for char in str(text):
        if char.isascii() and char.isprintable() and char not in ("\\", quote):
            marks = 0
            shown.append(char)
            continue
        if unicodedata.category(char) in {"Mn", "Me", "Mc"}:
            # `marks` begins at its maximum, so that a combining mark at the beginning of the text is escaped. It would
            # otherwise combine with the character that is printed before the text.
            marks += 1
            is_safe = marks <= _MAX_MARKS and not _is_blank(char)
        else:
            marks = 0
            is_safe = not _is_hidden(char) and char not in _SHORT_ESCAPES and char != quote
        if is_safe:
            shown.append(char)
        else:
            marks = _MAX_MARKS
            shown.append(f"\\{char}" if char == quote else _escape(char))
    return "".join(shown)


def _escape(char: str) -> str:
    r"""Return a character's escape sequence, such as ``\n``, ``\x1b``, ``\u202e`` or ``\U000e0041``."""
    return _SHORT_ESCAPES.get(char) or char.encode("unicode_escape").decode("ascii")


def _escape_json(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _is_hidden(char: str) -> bool:
    return char != " " and (unicodedata.category(char) in _ESCAPED_CATEGORIES or _is_blank(char))


def _is_blank(char: str) -> bool:
    code = ord(char)
    return any(first <= code <= last for first, last in _BLANK)


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
            fail("standard input contains no password; write the password into its first line")
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
        fail(f"{question} Without a terminal, the command cannot ask; add --yes to confirm")
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
        fail("without a terminal, the command cannot ask for the password; use --password-stdin")
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
