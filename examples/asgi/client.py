"""HTTP tool of an agent: it repeats requests that are pending, and passes all other responses to the model."""

import os
from typing import Any
from uuid import uuid4

import httpx

SERVICE = os.environ.get("SERVICE_URL", "http://127.0.0.1:8000")
CALLS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "/charges/ch_1", None),
    ("DELETE", "/charges/ch_1", None),
    ("POST", "/charges/ch_1/refunds", {"amount": 40}),
]


def call(method: str, path: str, body: dict[str, Any] | None) -> httpx.Response:
    """Send a request with an idempotency key, so that repeated attempts run it once."""
    headers = {"Idempotency-Key": str(uuid4())}
    while True:
        answer = httpx.request(method, SERVICE + path, json=body, headers=headers)
        if answer.headers.get("X-Toolgate-Outcome") != "pending":
            return answer
        print(f"  waits for a person: approval {answer.json()['approval_id']}", flush=True)
        input("  Enter to ask again: ")


if __name__ == "__main__":
    for one in CALLS:
        print(*one[:2], flush=True)
        said = call(*one)
        print(f"  -> {said.status_code} {said.text}", flush=True)
