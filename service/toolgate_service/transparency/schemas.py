"""Transparency log in responses."""

from datetime import datetime

from pydantic import BaseModel, Field

from toolgate_service.core.schemas import EXAMPLE_ID, EXAMPLE_TIME, example

_ORIGIN = f"toolgate.example.com/tlog/{EXAMPLE_ID}/production"


class TransparencyStatus(BaseModel):
    """State of the transparency log of an environment."""

    model_config = example(
        origin=_ORIGIN,
        vkey=f"{_ORIGIN}+ef7b9daa+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4",
        size=300,
        root="yjk9Apa+xeC43KuYO9H7fRRh9RLnJny4ljGtJv1m2Eg=",
        checkpoint=f"{_ORIGIN}\n300\nyjk9Apa+xeC43KuYO9H7fRRh9RLnJny4ljGtJv1m2Eg=\n\n— {_ORIGIN} 73udqg…\n",
        sealed_at=EXAMPLE_TIME,
        pending=0,
        problem=None,
        witnesses=[],
    )

    origin: str = Field(description="Name of the log, which each checkpoint contains.")
    vkey: str = Field(description="Public key with which checkpoints are verified.")
    size: int = Field(description="Number of leaves (entries of the Merkle tree) in the log.")
    root: str = Field(description="Root of the Merkle tree, in base64.")
    checkpoint: str = Field(description="Latest checkpoint: a signed note with the origin, size and root.")
    sealed_at: datetime = Field(description="Time of the latest checkpoint.")
    pending: int = Field(description="Number of stored leaves that the latest checkpoint does not cover yet.")
    problem: str | None = Field(
        description="Reason why the gateway currently cannot append leaves to the log; null if it can."
    )
    witnesses: list[str] = Field(
        description="Names of the witnesses that cosigned the latest cosigned checkpoint."
    )
