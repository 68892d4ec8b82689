"""Headers that every answer carries (decisions §2)."""

from pathlib import Path

import httpx
import pytest
from starlette.types import Message
from support.gateway import LiveGateway, Owner
from support.shapes import UUID7

from toolgate_service.http.responses import ResponseHeaders

PLACES = [
    ("GET", "/health"),
    ("GET", "/nowhere"),
    ("GET", "/api/agents"),
    ("POST", "/auth/login"),
    ("POST", "/sdk/check"),
    ("GET", "/sdk/check"),
    ("POST", "/sdk/log"),
    ("GET", "/sdk/approvals/x"),
    ("PATCH", "/api/agents"),
]


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_every_answer_names_the_version_and_itself(anyone: httpx.Client, method: str, path: str) -> None:
    """`X-API-Version` and an `X-Request-ID` of its own stand on every answer, errors included."""
    first, second = anyone.request(method, path), anyone.request(method, path)
    for answer in (first, second):
        assert answer.headers["X-API-Version"] == "2026-11-20"
        assert UUID7.fullmatch(answer.headers["X-Request-ID"])
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Server" not in answer.headers
    assert first.headers["X-Request-ID"] != second.headers["X-Request-ID"]


@pytest.mark.parametrize("given", ["a", "req_1.2-3", "A" * 128, "..."])
def test_a_good_request_id_is_the_callers(anyone: httpx.Client, given: str) -> None:
    """The caller's id is kept if it matches `[A-Za-z0-9._-]{1,128}`."""
    for _, path in PLACES[:3]:
        answer = anyone.get(path, headers={"X-Request-ID": given})
        assert answer.headers["X-Request-ID"] == given


@pytest.mark.parametrize(
    "given", ["", "A" * 129, "two words", "a/b", "a;b", "ümlaut".encode("latin-1"), "a\tb"]
)
def test_a_bad_request_id_is_replaced(anyone: httpx.Client, given: str | bytes) -> None:
    """Anything else gets an id of the gateway's."""
    answer = anyone.get(
        "/health", headers=[(b"X-Request-ID", given if isinstance(given, bytes) else given.encode())]
    )
    assert UUID7.fullmatch(answer.headers["X-Request-ID"])


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_every_answer_is_closed_to_browsers(anyone: httpx.Client, method: str, path: str) -> None:
    """No cache keeps it, no page frames or runs it, no other site hears of it; https is not promised over http."""
    headers = anyone.request(method, path).headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY"
    assert "Strict-Transport-Security" not in headers
    assert len(headers.get_list("Cache-Control")) == 1


def test_https_is_promised_where_people_use_it(tmp_path: Path) -> None:
    """With an https address in TOOLGATE_PUBLIC_URL browsers are told to stay with it."""
    env = {"TOOLGATE_PUBLIC_URL": "https://toolgate.example.com"}
    with LiveGateway(tmp_path, env=env) as gateway:
        for path in ("/health", "/sdk/check", "/nowhere"):
            headers = httpx.get(gateway.url + path).headers
            assert headers["Strict-Transport-Security"] == "max-age=63072000"


def test_an_answer_keeps_what_it_says_itself() -> None:
    """A page with a policy of its own is not given a second one; what a request collected goes before both."""
    given = [
        (b"content-security-policy", b"default-src 'self'"),
        (b"set-cookie", b"a"),
        (b"set-cookie", b"b"),
    ]
    headers = ResponseHeaders(https=False).complete(given, b"id", {b"set-cookie-2": b"c", b"vary": b"Origin"})
    assert headers[:3] == given
    names = [name for name, _ in headers]
    assert names.count(b"content-security-policy") == 1
    replaced = ResponseHeaders(https=False).complete([(b"vary", b"x")], b"id", {b"vary": b"Origin"})
    assert [value for name, value in replaced if name == b"vary"] == [b"Origin"]


def test_headers_reach_the_server_as_lines() -> None:
    """The lines are the headers that other servers receive in the message."""
    headers = ResponseHeaders(https=True)
    given = [(b"content-type", b"application/json")]
    message: Message = {"type": "http.response.start", "status": 200, "headers": given}
    lines: list[bytes] = []
    headers.add_to(message, b"id", {b"vary": b"Origin"}, lines.append)
    expected = headers.complete(given, b"id", {b"vary": b"Origin"})[1:]
    assert message["headers"] == given
    assert sorted(b"".join(lines).splitlines(keepends=True)) == sorted(
        b"%b: %b\r\n" % header for header in expected
    )


@pytest.mark.parametrize("given", [(b"vary", b"x"), (b"cache-control", b"private")])
def test_headers_that_replace_others_are_not_sent_as_lines(given: tuple[bytes, bytes]) -> None:
    """Otherwise the response would contain both."""
    headers = ResponseHeaders(https=True)
    message: Message = {"type": "http.response.start", "status": 200, "headers": [given]}
    headers.add_to(message, b"id", {b"vary": b"Origin"}, pytest.fail)
    assert message["headers"] == headers.complete([given], b"id", {b"vary": b"Origin"})


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nset-cookie: b", b"a\rset-cookie: b"])
def test_a_line_break_in_a_header_ends_the_response(value: bytes) -> None:
    """It would start another header."""
    message: Message = {"type": "http.response.start", "status": 200, "headers": []}
    with pytest.raises(ValueError, match="line break"):
        ResponseHeaders(https=False).add_to(message, b"id", {b"vary": value}, pytest.fail)


def test_no_other_origin_is_let_in(acme: Owner) -> None:
    """CORS is off: no answer carries a word of it (decisions §2)."""
    for method in ("GET", "OPTIONS"):
        headers = {"Origin": "https://elsewhere.test", "Access-Control-Request-Method": "GET"}
        answer = acme.http.request(method, "/api/agents", headers=headers)
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
