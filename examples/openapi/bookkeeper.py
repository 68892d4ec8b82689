"""Calls of a REST API, each checked as the operation in the API's OpenAPI document."""

from pathlib import Path
from typing import Any

import httpx
from payments import serving

from toolgate import ApprovalPending, GuardError
from toolgate_integrations.openapi import GuardTransport
from toolgate_integrations.refusals import refusal_text

DOCUMENT = Path(__file__).with_name("payments.json")
CALLS: list[tuple[str, str, Any]] = [
    ("GET", "/account", None),
    ("POST", "/refunds", {"charge": "ch_1", "amount": 40}),
    ("POST", "/refunds", {"charge": "ch_2", "amount": 9000}),
    ("DELETE", "/account", None),
    ("GET", "/secrets", None),
]


def call(client: httpx.Client, method: str, path: str, body: Any) -> str:
    """Call the API as a tool of an agent, and return the text for the model."""
    try:
        answer = client.request(method, path, json=body)
    except ApprovalPending as pending:
        return f"waits for a person: {pending.action}, approval {pending.approval_id}"
    except GuardError as error:
        return refusal_text(error)
    return f"{answer.status_code} {answer.text}"


def main() -> None:
    """Make each call once; a call that was approved in the meantime is allowed the next time."""
    with serving() as address:
        # The document names no server: this one has another port each time.
        guard = GuardTransport(
            httpx.HTTPTransport(),
            DOCUMENT,
            prefix="payments",
            servers=[address],
            unknown="payments.unknown",
        )
        with httpx.Client(transport=guard, base_url=address) as client:
            for method, path, body in CALLS:
                print(f"{method} {path} {body or ''}".rstrip())
                print(f"  {call(client, method, path, body)}")


if __name__ == "__main__":
    main()
