"""Lists: whole, by offset, or page by page along the links."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from hypothesis import strategies as st

from support.machine.driver import told
from support.reference.facts import Tenant

#: what a list holds when nobody asks for a size
DEFAULT = 50


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which part of a list is asked for; `along` follows the links to the end."""

    limit: int | None = None
    offset: int | None = None
    along: bool = False


def wanted() -> st.SearchStrategy[Wanted]:
    """Return which parts one may ask for."""
    return st.builds(
        Wanted,
        st.none() | st.integers(1, 7) | st.just(100),
        st.none() | st.integers(0, 12),
        st.booleans(),
    )


def compare_list(
    get: Callable[..., httpx.Response],
    tenant: Tenant,
    path: str,
    filters: Mapping[str, str | None],
    page: Wanted,
    expected: Sequence[str],
) -> list[Any]:
    """Read a part of a list, compare its ids and its length with the expected list, and return it."""
    params = {name: value for name, value in filters.items() if value is not None}
    params |= {} if page.limit is None else {"limit": str(page.limit)}
    params |= {} if page.offset is None else {"offset": str(page.offset)}
    answer = get("GET", tenant, path, **params)
    size, begin = page.limit or DEFAULT, page.offset or 0
    shown: list[Any] = []
    while True:
        part = told(answer)
        assert isinstance(part, list)
        assert answer.headers["X-Total-Count"] == str(len(expected))
        assert [one["id"] for one in part] == list(expected[begin : begin + size]), (filters, page)
        shown += part
        begin += size
        # The next page is named exactly when there is one.
        assert ("next" in answer.links) == (begin < len(expected))
        if not page.along or "next" not in answer.links:
            return shown
        cursor = httpx.URL(answer.links["next"]["url"]).params["cursor"]
        params.pop("offset", None)
        answer = get("GET", tenant, path, **params | {"limit": str(size), "cursor": cursor})
