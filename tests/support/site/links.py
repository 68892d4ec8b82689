"""Links from pages to files of the repository, which the site generator does not check."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from support.readme import ROOT

REPOSITORY: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
_LINK = re.compile(rf"{re.escape(REPOSITORY)}/(?:blob|tree|raw)/main/([^)\s\"#]+)")
_RAW = re.compile(
    re.escape(REPOSITORY.replace("github.com", "raw.githubusercontent.com")) + r"/main/([^)\s\"#]+)"
)


def list_repository_links(page: Path) -> Iterator[str]:
    """Yield the paths in the repository that a page links to by their public address."""
    text = page.read_text()
    for pattern in (_LINK, _RAW):
        yield from pattern.findall(text)


def find_dead_links() -> list[str]:
    """Return a line for each link to a file that does not exist in the repository."""
    pages = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "zensical.toml")),
    ]
    return [
        f"{page.relative_to(ROOT)}: {path} does not exist"
        for page in sorted(pages)
        for path in list_repository_links(page)
        if not (ROOT / path).exists()
    ]
