"""Standard Webhooks by hand: signed with nothing but the standard library."""

import base64
import hashlib
import hmac
import time

SECRET = "whsec_" + base64.b64encode(b"a secret of 24 bytes. ok").decode()


def signature(body: bytes, name: str, timestamp: str, secret: str = SECRET) -> str:
    """Return one entry of `webhook-signature`."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{name}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + base64.b64encode(digest).decode()


def signed(body: bytes, name: str = "msg_1", *, age: float = 0, secret: str = SECRET) -> dict[str, str]:
    """Return the headers of an event that was signed some seconds ago."""
    timestamp = str(int(time.time() - age))
    return {
        "webhook-id": name,
        "webhook-timestamp": timestamp,
        "webhook-signature": signature(body, name, timestamp, secret),
    }
