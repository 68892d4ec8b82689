"""Following a list page by page, as its `Link` headers say."""

from collections.abc import Iterator
from typing import Any

import httpx

from support.gateway import Owner


def pages(owner: Owner, path: str, **params: str | int) -> Iterator[httpx.Response]:
    """Yield a list's pages; the next one is asked for only when it is wanted."""
    answer = owner.http.get(path, params=params)
    while True:
        assert answer.status_code == 200, answer.text
        yield answer
        if "next" not in answer.links:
            return
        answer = owner.http.get(answer.links["next"]["url"])


def walked(owner: Owner, path: str, **params: str | int) -> list[dict[str, Any]]:
    """Return everything in a list."""
    return [thing for page in pages(owner, path, **params) for thing in page.json()]
