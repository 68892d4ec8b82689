"""The code blocks of a Markdown page."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    """Return a page's code blocks in a language, in order."""
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def section(page: str, heading: str) -> str:
    """Return the text under a second-level heading."""
    text = (ROOT / page).read_text()
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no section {heading!r}"
    return found.group(1)
