"""A small payment service: nothing in its endpoints knows of the gateway, one line asks it before any of them runs."""

import os
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from toolgate.asgi import GuardMiddleware

BOOK = Path(os.environ.get("REFUNDS_BOOK", "refunds.txt"))

app = FastAPI()
app.add_middleware(
    GuardMiddleware,
    actions={
        "GET /charges/{charge_id}": "charges.read",
        "POST /charges/{charge_id}/refunds": "stripe.refund",
        "DELETE /charges/{charge_id}": "charges.delete",
    },
    unguarded=["GET /health"],
)


class Refund(BaseModel):
    """Amount to refund."""

    amount: float


@app.get("/health")
def health() -> str:
    """Return a fixed text for health checks."""
    return "here"


@app.get("/charges/{charge_id}")
def charge(charge_id: str) -> dict[str, str]:
    """Return a charge."""
    return {"id": charge_id, "customer": "ada@example.test"}


@app.delete("/charges/{charge_id}")
def forget(charge_id: str) -> None:
    """Delete a charge permanently."""
    _note(f"deleted {charge_id}")


@app.post("/charges/{charge_id}/refunds", status_code=201)
def refund(charge_id: str, what: Refund) -> str:
    """Give money back."""
    _note(f"refunded {what.amount:.2f} of {charge_id}")
    return f"refunded {what.amount:.2f}"


def _note(line: str) -> None:
    with BOOK.open("a") as book:
        book.write(f"{line}\n")


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
