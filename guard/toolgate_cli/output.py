"""Output of all commands: errors, tables, JSON, and text of others with invisible characters escaped."""

import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolgate._capture.jsontext import dumps

#: controls, formats (bidirectional, zero width), surrogates, private use, unassigned, line and paragraph separators;
#: and every space but the one that looks like it: a no-break space makes two names look alike
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})

#: shown as nothing although Unicode calls them letters, marks or symbols: its Default_Ignorable_Code_Point beyond the
#: categories above, and the empty Braille pattern
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

#: marks upon one letter; more of them reach into the lines above and below
_MOST_MARKS = 4

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def visible(text: object, *, quote: str = "") -> str:
    """Return a text on one line in which every character can be seen.

    Args:
        text: what is not a string is shown as Python's `str` has it.
        quote: a character that stands around the text, and so is escaped in it as well.
    """
    shown: list[str] = []
    marks = _MOST_MARKS
    for char in str(text):
        if char.isascii() and char.isprintable() and char not in ("\\", quote):
            marks = 0
            shown.append(char)
            continue
        if unicodedata.category(char) in {"Mn", "Me", "Mc"}:
            # One that has nothing to stand on would change what stands before the text.
            marks += 1
            safe = marks <= _MOST_MARKS and not _is_blank(char)
        else:
            marks = 0
            safe = not _is_hidden(char) and char not in _SHORT and char != quote
        if safe:
            shown.append(char)
        else:
            marks = _MOST_MARKS
            shown.append(f"\\{char}" if char == quote else escape(char))
    return "".join(shown)


def escape(char: str) -> str:
    r"""Return the escape of a character: ``\n``, ``\x1b``, ``\u202e``, ``\U000e0041``."""
    if char in _SHORT:
        return _SHORT[char]
    # Printable ASCII has no escape of its own; nothing asks for one.
    return char.encode("unicode_escape").decode("ascii")


def _is_hidden(char: str) -> bool:
    return char != " " and (unicodedata.category(char) in _ESCAPED_CATEGORIES or _is_blank(char))


def _is_blank(char: str) -> bool:
    code = ord(char)
    return any(first <= code <= last for first, last in _BLANK)


def show_progress(step: str) -> None:
    """Print what a command does now, to a person at a terminal; scripts and logs are not told."""
    if sys.stderr.isatty():
        typer.echo(f"{step} …", err=True)


def fail(message: str) -> NoReturn:
    """Print one line on standard error and end with status 1.

    Raises:
        typer.Exit: always.
    """
    # One line whatever is quoted in it: a message may carry what a gateway or a model library said.
    typer.echo(f"toolgate: {_one_line(message)}", err=True)
    raise typer.Exit(1)


def _one_line(message: str) -> str:
    # A backslash is printable, and stands in messages that are escaped already.
    return "".join(char if char == "\\" else visible(char) for char in message)


#: of what no terminal shows: a row a line
_UNBROKEN = 240

#: characters of a cell that others fill
LONGEST_CELL = 40


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        heading: what stands above it.
        whole: it is never broken.
        right: its cells stand at the right.
    """

    heading: str
    whole: bool = False
    right: bool = False


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print a table of texts that are safe to print."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(
            column.heading,
            no_wrap=column.whole,
            overflow="fold",
            justify="right" if column.right else "left",
        )
    for row in rows:
        # Text, because in a plain string rich would follow the markup of whoever wrote it.
        table.add_row(*map(Text, row))
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNBROKEN
    console.print(table)


def cell(text: str, longest: int = LONGEST_CELL) -> str:
    """Return a text, cut where it is too long for a cell."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


#: of what no terminal shows, and so nothing breaks
_WIDE = 100
_NOT_ASCII = re.compile(r"[^ -~]")


def terminal_width() -> int:
    """Return how many cells a line has."""
    return shutil.get_terminal_size((_WIDE, 24)).columns


def ascii_json(value: Any) -> str:
    """Return JSON on one line in which nothing but printable ASCII stands, numbers with their digits."""
    return _NOT_ASCII.sub(_escaped, dumps(value))


def _escaped(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
