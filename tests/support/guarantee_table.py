"""The table of guarantees in the reference, from the code.

`PYTHONPATH=tests .venv/bin/python -m support.guarantee_table` writes it.
"""

from pathlib import Path

from toolgate_cli.verify.registry import Guarantee, load_guarantees

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "guarantees.md"
BEGIN, END = "<!-- guarantees -->\n", "<!-- end of guarantees -->\n"


def table() -> str:
    """Return the rows for all guarantees."""
    lines = ["| guarantee | id | AISVS |", "| --- | --- | --- |"]
    return "\n".join([*lines, *map(_row, load_guarantees())]) + "\n"


def _row(one: Guarantee) -> str:
    return f"| {one.title} | `{one.id}` | {', '.join(one.aisvs)} |"


def with_table(page: str) -> str:
    """Return the page with the present table."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
