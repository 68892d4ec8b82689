"""The navigation of the documentation site, compared with the pages that exist."""

import tomllib
from collections.abc import Iterator
from typing import Any

from support.readme import ROOT

CONFIG = ROOT / "zensical.toml"
DOCS = ROOT / "docs"


def load_navigation() -> list[dict[str, Any]]:
    """Return the navigation of the site's configuration."""
    nav: list[dict[str, Any]] = tomllib.loads(CONFIG.read_text())["project"]["nav"]
    return nav


def list_targets(entries: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the pages and addresses of a navigation, in order."""
    for entry in entries:
        for target in entry.values():
            if isinstance(target, list):
                yield from list_targets(target)
            else:
                yield target


def find_navigation_errors() -> list[str]:
    """Return a line for each page outside the navigation, missing page, and page that is listed twice."""
    listed = [target for target in list_targets(load_navigation()) if not target.startswith("https://")]
    existing = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    return [
        *(f"{page}: not in the navigation of zensical.toml" for page in sorted(existing - set(listed))),
        *(f"{page}: in the navigation, but there is no such page" for page in sorted(set(listed) - existing)),
        *(f"{page}: more than once in the navigation" for page in {p for p in listed if listed.count(p) > 1}),
    ]
