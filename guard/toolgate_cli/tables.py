"""Tables for people: as wide as the terminal, and a row a line where there is none."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

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
