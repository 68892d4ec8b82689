"""What only so many may do at the same time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from toolgate_service.errors import ApiError

RETRY_AFTER = 10


class Turnstile:
    """Lets in so many at once, and of one organization only some of them: nobody keeps the others out.

    Args:
        what: what they do, in the plural.
        most: how many may at once.
        each: how many of one organization.
    """

    def __init__(self, what: str, most: int, each: int) -> None:
        self._what = what
        self._most = most
        self._each = each
        self._inside: Counter[str] = Counter()

    @contextmanager
    def inside(self, organization_id: str) -> Iterator[None]:
        """Be inside for a block.

        Raises:
            ApiError: 429, there is no room.
        """
        if self._inside.total() >= self._most or self._inside[organization_id] >= self._each:
            raise ApiError(
                429,
                f"Too many {self._what} run at the same time; retry after {RETRY_AFTER} seconds",
                {"Retry-After": str(RETRY_AFTER)},
            )
        self._inside[organization_id] += 1
        try:
            yield
        finally:
            self._inside[organization_id] -= 1
            # Without those that are out, and organizations that came once.
            self._inside = +self._inside
