"""What the performers need of whoever talks to the gateway."""

from __future__ import annotations

from typing import Protocol

from toolgate._capture.context import Captured
from toolgate._capture.jsontext import Json
from toolgate.decision import Decision
from toolgate.steps import Approval, Check

__all__ = ["Arguments", "AsyncClient", "Client"]


class Client(Protocol):
    """What asks the gateway."""

    def check(self, check: Check, seconds: float | None = None) -> Decision:
        """Ask whether an action is allowed, within `seconds` if given."""
        ...

    def approval(self, approval_id: str, wait: int) -> Approval:
        """Ask what became of an approval request."""
        ...

    def cancel(self, approval_id: str, seconds: float) -> Approval:
        """Withdraw an approval request."""
        ...


class AsyncClient(Protocol):
    """What asks the gateway, asynchronously."""

    async def check(self, check: Check, seconds: float | None = None) -> Decision:
        """Ask whether an action is allowed, within `seconds` if given."""
        ...

    async def approval(self, approval_id: str, wait: int) -> Approval:
        """Ask what became of an approval request."""
        ...

    async def cancel(self, approval_id: str, seconds: float) -> Approval:
        """Withdraw an approval request."""
        ...


class Arguments(Protocol):
    """The arguments of one call, or the context of one block."""

    def capture(self) -> Captured:
        """What they are now, with a person's edit if there was one."""
        ...

    def edit(self, asked: dict[str, Json], approved: dict[str, Json]) -> str | None:
        """Put the edit that made `approved` of `asked` into them; returns what stands against it."""
        ...

    def difference(self) -> str | None:
        """Return the first name whose value is not what `capture` last found, or None."""
        ...

    def as_given(self) -> None:
        """Forget the edit."""
        ...
