"""Signatures of deliveries as defined by Standard Webhooks."""

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.standard_webhooks import expected, is_signed, signatures_of

from toolgate_service.outbound.sender import signed_headers
from toolgate_service.webhooks.repository import new_secret

pytestmark = pytest.mark.sqlite_only("it asks no database")

#: the test vector that the reference libraries of Standard Webhooks share
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE = "msg_p5jXN8AQM9LWM0D4loKWxJek"
MOMENT = datetime.fromtimestamp(1614265330, UTC)
BODY = '{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_published_vector() -> None:
    """The gateway and the tests' verifier agree with the published signature."""
    assert signed_headers(MESSAGE, MOMENT, BODY, [SECRET]) == {
        "webhook-id": MESSAGE,
        "webhook-timestamp": "1614265330",
        "webhook-signature": SIGNATURE,
    }
    assert f"v1,{expected(SECRET, MESSAGE, '1614265330', BODY.encode())}" == SIGNATURE


@given(body=st.text(st.characters(codec="utf-8")))
def test_every_secret_signs_every_body(body: str) -> None:
    """Each secret's signature verifies, another's does not, and a changed body verifies under none."""
    first, second, other = new_secret(), new_secret(), new_secret()
    headers = signed_headers(MESSAGE, datetime.now(UTC), body, [first, second])
    assert len(signatures_of(headers)) == 2
    assert is_signed(first, headers, body.encode())
    assert is_signed(second, headers, body.encode())
    assert not is_signed(other, headers, body.encode())
    assert not is_signed(first, headers, body.encode() + b" ")


def test_a_secret_is_32_random_bytes() -> None:
    """Secrets are `whsec_` with base64, and all different."""
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    for secret in secrets:
        assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
