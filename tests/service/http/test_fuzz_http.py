"""Requests put together from whatever: each gets a whole answer or a closed connection, never a 5xx."""

from http.client import RemoteDisconnected

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.gateway import Owner
from support.raw import Raw, whole

FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=3_000)

methods = st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"TRACE"])
targets = st.sampled_from(
    [b"/sdk/check", b"/sdk/log", b"/api/agents", b"/api/logs", b"/auth/login", b"/health", b"*"]
)
odd = st.sampled_from(
    [b"%00", b"%ff", b"%ED%A0%80", b"%", b"%2f", b"..", b"//", b"?", b"&", b"=", b"a=1", b";", b"#", b"@"]
)
tails = st.lists(odd | st.binary(max_size=8), max_size=4).map(b"".join)
names = st.sampled_from(
    [
        b"Content-Length",
        b"Transfer-Encoding",
        b"Content-Encoding",
        b"Content-Type",
        b"X-API-Key",
        b"Authorization",
        b"Idempotency-Key",
        b"X-Request-ID",
        b"X-Forwarded-For",
        b"Connection",
        b"Expect",
        b"Origin",
    ]
) | st.binary(max_size=6)
values = st.sampled_from(
    [
        b"",
        b"0",
        b"5",
        b"-1",
        b"chunked",
        b"gzip",
        b"gzip, gzip",
        b"identity",
        b"close",
        b"upgrade",
        b"100-continue",
        b"\xff",
    ]
) | st.binary(max_size=12)
headers = st.lists(st.tuples(names, values), max_size=6)
bodies = st.sampled_from(
    [b"", b"{}", b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", b"0\r\nX: y\r\n\r\n"]
) | st.binary(max_size=40)


def survive(owner: Owner, head: bytes, given_headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    lines = b"".join(b"%b: %b\r\n" % pair for pair in given_headers)
    # A gateway that waits for more is right to: it is given a moment, not half a minute.
    with Raw(owner.url, seconds=0.5) as raw:
        raw.send(head + b" HTTP/1.1\r\n" + lines + b"\r\n" + body)
        try:
            answer = raw.answer(head.split(b" ")[0].decode())
        except (TimeoutError, RemoteDisconnected):
            return
        assert whole(answer).status < 500


@FEW
@given(method=methods, target=targets, tail=tails, given_headers=headers, body=bodies)
def test_no_request_is_too_strange(
    acme: Owner,
    method: bytes,
    target: bytes,
    tail: bytes,
    given_headers: list[tuple[bytes, bytes]],
    body: bytes,
) -> None:
    """Any method, target, headers and body, well-formed or not."""
    survive(acme, method + b" " + target + tail, given_headers, body)


@pytest.mark.slow
@MANY
@given(method=methods, target=targets, tail=tails, given_headers=headers, body=bodies)
def test_no_request_is_too_strange_at_length(
    acme: Owner,
    method: bytes,
    target: bytes,
    tail: bytes,
    given_headers: list[tuple[bytes, bytes]],
    body: bytes,
) -> None:
    """The same for longer."""
    survive(acme, method + b" " + target + tail, given_headers, body)
