import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.signing import SECRET, signed

from toolgate_cli.webhook_listener import SecretError, Verifier

BODY = b'{"type":"approval.requested","data":{"n":1}}'
OTHER = "whsec_" + base64.b64encode(b"another secret, as long.").decode()


@pytest.fixture(scope="module")
def verifier() -> Verifier:
    return Verifier(SECRET)


def test_what_is_signed_with_the_secret_is_right(verifier: Verifier) -> None:
    """Also within five minutes, among several signatures, and with a body that is no JSON."""
    assert verifier.find_error(signed(BODY), BODY) is None
    assert verifier.find_error(signed(BODY, age=280), BODY) is None
    assert verifier.find_error(signed(b"not json"), b"not json") is None
    several = signed(BODY)
    several["webhook-signature"] = (
        f"v1a,xyz v1,{base64.b64encode(b'x' * 32).decode()} {several['webhook-signature']}"
    )
    assert verifier.find_error(several, BODY) is None


@pytest.mark.parametrize(
    ("changed", "body", "word"),
    [
        ({}, BODY + b" ", "the secret is wrong"),
        ({"webhook-id": "msg_2"}, BODY, "the secret is wrong"),
        ({"webhook-timestamp": "1"}, BODY, "more than 5 minutes ago"),
        ({"webhook-timestamp": "99999999999"}, BODY, "this machine's clock is behind"),
        ({"webhook-timestamp": "soon"}, BODY, "not a number"),
        ({"webhook-signature": "v1"}, BODY, "form"),
        ({"webhook-signature": "v1,A"}, BODY, "form"),
        ({"webhook-signature": "v2,AAAA"}, BODY, "no signature matches"),
        ({}, b"\xff", "UTF-8"),
        ({"webhook-signature": ""}, BODY, "webhook-signature is missing"),
    ],
)
def test_why_a_signature_is_wrong(
    verifier: Verifier, changed: dict[str, str], body: bytes, word: str
) -> None:
    """Each way of being wrong has its own words."""
    assert word in (verifier.find_error(signed(BODY) | changed, body) or "")


def test_another_secret_and_no_headers_are_told(verifier: Verifier) -> None:
    """The two mistakes that receivers begin with."""
    assert "the secret is wrong" in (verifier.find_error(signed(BODY, secret=OTHER), BODY) or "")
    told = verifier.find_error({}, BODY) or ""
    assert "webhook-id, webhook-timestamp, webhook-signature is missing" in told


@given(st.dictionaries(st.sampled_from(sorted(signed(b""))), st.text(max_size=60)), st.binary(max_size=60))
def test_nothing_else_is_right(headers: dict[str, str], body: bytes) -> None:
    """Whatever a stranger sends gets a verdict, and never a good one."""
    assert Verifier(SECRET).find_error(headers, body) is not None


@pytest.mark.parametrize("secret", ["", "whsec_", "abc", "whsec_*", "sk_" + SECRET, "whsec_é", OTHER[6:]])
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    """The line names the form and does not repeat what was given."""
    with pytest.raises(SecretError, match="whsec_BASE64") as refusal:
        Verifier(secret)
    assert not secret or secret not in str(refusal.value).replace("whsec_BASE64", "")


def test_a_secret_may_lack_its_padding() -> None:
    """As some copy it."""
    secret = "whsec_" + base64.b64encode(b"twenty-two bytes, sure").decode()
    assert secret.endswith("==")
    assert Verifier(secret.rstrip("=")).find_error(signed(BODY, secret=secret), BODY) is None
