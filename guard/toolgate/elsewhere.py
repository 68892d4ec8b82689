"""A call whose tool runs elsewhere: asked for here, carried out and recorded by another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from toolgate._capture.jsontext import Json

__all__ = ["Permitted"]


@dataclass(frozen=True, slots=True)
class Permitted:
    """What may be carried out now, once, and by whoever asked.

    Attributes:
        context: What was asked about, with what an approver edited in it.
        asked: What the gateway was told of it: hidden values are digests, so it may be written down.
        agent_id: Who acts.
        approval_id: The approval that let it through, if it was held.
        decision_id: The gateway's decision.
    """

    context: dict[str, Any] = field(repr=False)
    asked: dict[str, Json] = field(repr=False)
    agent_id: str
    approval_id: str | None
    decision_id: str | None
