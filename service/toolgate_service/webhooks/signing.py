"""The headers that Standard Webhooks asks for."""

import base64
import os
from collections.abc import Sequence
from datetime import UTC, datetime

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    """Return a new signing secret."""
    return PREFIX + base64.b64encode(os.urandom(SECRET_BYTES)).decode()


def signed_headers(event_id: str, moment: datetime, body: str, secrets: Sequence[str]) -> dict[str, str]:
    """Return the headers of one attempt.

    Args:
        event_id: the same in every attempt.
        moment: of the attempt.
        body: what is sent.
        secrets: each signs: after a rotation the former one too, until every receiver knows the new one.
    """
    # Not at the top: the library brings an HTTP client along, a tenth of the time that a gateway takes to start.
    from standardwebhooks import Webhook as Signer

    whole = moment.astimezone(UTC).replace(microsecond=0)
    signatures = [Signer(secret).sign(event_id, whole, body) for secret in secrets]
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(whole.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
