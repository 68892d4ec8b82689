"""The names of what upkeep tests are handed, and moments in the past."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Protocol

from toolgate_service.core.clock import wire
from toolgate_service.decisions.service import ContextRetention


class Prune(Protocol):
    """Prunes a gateway's database and returns how many rows of which table went."""

    def __call__(
        self, *, batch: int = 100, force: bool = False, contexts: ContextRetention | None = None
    ) -> Counter[str]: ...


def ago(**spans: float) -> datetime:
    """Return a moment in the past, for instance `ago(days=7)`."""
    return datetime.now(UTC) - timedelta(**spans)


def ago_text(**spans: float) -> str:
    """Return a moment in the past as the database keeps it."""
    return wire(ago(**spans))
