"""Slack's signature, by Slack's own example."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest

from toolgate_service.slack.schemas import SignedRequest, sign

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SECONDS = "1531420618"
BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&"
    b"channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&"
    b"response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&"
    b"trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
RIGHT = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
SENT = datetime.fromtimestamp(int(SECONDS), UTC)


def signed(seconds: str = SECONDS, signature: str = RIGHT, body: bytes = BODY) -> SignedRequest:
    return SignedRequest.of({"x-slack-request-timestamp": seconds, "x-slack-signature": signature}, body)


def test_the_published_example_holds() -> None:
    """The signature that Slack's documentation prints."""
    assert sign(SECRET, SECONDS, BODY) == RIGHT
    assert signed().is_signed_with(SECRET, SENT)


@pytest.mark.parametrize(
    ("seconds", "fresh"), [(-301, False), (-300, True), (0, True), (300, True), (301, False)]
)
def test_a_timestamp_is_good_for_five_minutes_either_way(seconds: int, fresh: bool) -> None:
    """What is older, or from the future, is somebody who recorded or prepared it."""
    assert signed().is_signed_with(SECRET, SENT + timedelta(seconds=seconds)) is fresh


@pytest.mark.parametrize(
    "other",
    [
        signed(signature=RIGHT[:-1] + "4"),
        signed(signature=RIGHT.upper()),
        signed(signature=RIGHT.removeprefix("v0=")),
        signed(signature="v1=" + RIGHT[3:]),
        signed(signature=""),
        signed(signature=RIGHT + "é"),
        signed(seconds="1531420619"),
        signed(seconds="+1531420618"),
        signed(seconds=" 1531420618"),
        signed(seconds="\uff11531420618"),
        signed(seconds="9" * 40),
        signed(seconds=""),
        signed(body=BODY + b"&"),
        signed(body=BODY.replace(b"%2F", b"%2f")),
        SignedRequest.of({}, BODY),
    ],
)
def test_nothing_else_holds(other: SignedRequest) -> None:
    """Not another body, byte or spelling."""
    assert not other.is_signed_with(SECRET, SENT)


def test_a_signature_over_no_timestamp_does_not_hold() -> None:
    """Whoever signs the empty timestamp that a broken one becomes has the year 1970."""
    base = b"v0::" + BODY
    empty = "v0=" + hmac.new(SECRET.encode(), base, hashlib.sha256).hexdigest()
    assert not signed(seconds="", signature=empty).is_signed_with(SECRET, SENT)
