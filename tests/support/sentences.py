"""The sentences of the specification and the decisions, and the tests that verify them.

A document is one or more pages. Their paragraphs, list items and table rows are split into sentences, and a table in
`tests/service/sentences/` names the tests of each sentence.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from support.readme import ROOT

TABLES = ROOT / "tests" / "service" / "sentences"
#: pages in `docs/internals` by document, in order
DOCUMENTS = {
    "specification": ("specification", "specification-endpoints", "specification-rules"),
    "decisions": (
        "decisions",
        "decisions-endpoints",
        "decisions-checks",
        "decisions-operation",
        "decisions-sdk",
    ),
}

_END = re.compile(r"(?<=[.?!])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z`*\"(])")
_RULE = re.compile(r"\|?[\s:|-]+\|?")
_ROW = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a document, under the heading where it stands."""

    heading: str
    text: str

    def __str__(self) -> str:
        """Return the beginning of the row that the table must have for it."""
        return f"| {_cell(self.heading)} | {_cell(self.text)} |"


@dataclass(frozen=True, slots=True)
class Row:
    """The tests of one sentence.

    Attributes:
        sentence: as the document has it.
        tests: ``service/…/test_x.py::test_y`` or ``…::test_y[case]``, relative to the folder of tests.
        instead: why no test holds it, if none does: ``settled by …``, ``later: …`` or ``no rule: …``; beside tests
            ``later: …``, for the part of the sentence that is not built.
    """

    sentence: Sentence
    tests: tuple[str, ...] = ()
    instead: str = ""


def sentences(document: str) -> list[Sentence]:
    """Return the sentences of a document's pages, in order."""
    folder = ROOT / "docs" / "internals"
    text = "\n".join((folder / f"{page}.md").read_text() for page in DOCUMENTS[document])
    return [Sentence(heading, part) for heading, block in _blocks(text) for part in _cut(block)]


def table(document: str) -> list[Row]:
    """Return the rows of `tests/service/sentences/<document>.md`."""
    lines = (TABLES / f"{document}.md").read_text().splitlines()
    # The first two are the table's head.
    return [_row(line) for line in lines if line.startswith("|")][2:]


def _row(line: str) -> Row:
    cells = [cell.strip().replace(r"\|", "|") for cell in _ROW.split(line.strip())[1:-1]]
    assert len(cells) == 3, rf"a row has three cells (a | within one is written \|): {line}"
    heading, text, held = cells
    if "::" not in held:
        return Row(Sentence(heading, text), (), held)
    parts = [part.strip() for part in held.split("<br>")]
    later = [part for part in parts if part.startswith("later: ")]
    return Row(
        Sentence(heading, text), tuple(part for part in parts if part not in later), "<br>".join(later)
    )


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    # A block is a paragraph, a list item or a table row; a table's head names its columns and says nothing.
    lines = text.splitlines()
    block: list[str] = []
    heading = ""
    for number, line in enumerate(lines):
        follows = lines[number + 1] if number + 1 < len(lines) else ""
        is_row = line.startswith("|")
        head = is_row and bool(_RULE.fullmatch(follows)) and "-" in follows
        starts = is_row or line.startswith(("#", "- ")) or not line.strip()
        if starts and block:
            yield heading, " ".join(block)
            block = []
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.strip() or line.startswith("#") or head or (is_row and _RULE.fullmatch(line)):
            continue
        block.append(line.strip())
    if block:
        yield heading, " ".join(block)


def _cut(block: str) -> Iterator[str]:
    if not block.startswith("|"):
        yield from _END.split(block.removeprefix("- "))
        return
    # A row whose last cell holds several sentences gives as many, each with the row's head.
    *head, last = [cell.strip() for cell in _ROW.split(block.strip("|"))]
    for part in _END.split(last):
        yield " | ".join([*head, part]).strip()
