"""Heads that two readers may understand differently are refused."""

import pytest
from support.gateway import Owner
from support.raw import Raw, whole
from support.shapes import problem

from toolgate_service.http.request_head import check_head

GOOD = [
    (b"GET /health HTTP/1.1\r\nHost: gateway\r\n", 200),
    (b"GET /health HTTP/1.1\r\nhOsT: GATEWAY.example:8080\r\n", 200),
    (b"GET /health HTTP/1.1\r\nHost: [::1]:8080\r\n", 200),
    (b"GET http://gateway/health HTTP/1.1\r\nHost: gateway\r\n", 200),
    (b"GET HTTP://Gateway:80/health HTTP/1.1\r\nHost: gateway\r\n", 200),
    (b"GET /health?next=%2Fa%5C HTTP/1.1\r\nHost: gateway\r\n", 200),
    (b"GET /health HTTP/1.1\r\nHost: [::ffff:127.0.0.1]\r\n", 200),
    (b"GET /health HTTP/1.0\r\n", 200),
    (b"POST /health HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: Chunked\r\n", 405),
]
BAD = [
    b"GET /health HTTP/1.1\r\n",
    b"GET /health HTTP/1.1\r\nHost: gateway\r\nHost: gateway\r\n",
    b"GET /health HTTP/1.1\r\nHost: gateway\r\nHost: evil\r\n",
    b"GET /health HTTP/1.0\r\nHost: gateway\r\nHost: evil\r\n",
    b"GET /health HTTP/1.1\r\nHost:\r\n",
    b"GET /health HTTP/1.1\r\nHost: a b\r\n",
    b"GET /health HTTP/1.1\r\nHost: user@gateway\r\n",
    b"GET /health HTTP/1.1\r\nHost: gateway, evil\r\n",
    b"GET /health HTTP/1.1\r\nHost: gateway/evil\r\n",
    b"GET /health HTTP/1.1\r\nHost: gateway:port\r\n",
    b"GET /health HTTP/1.1\r\nHost: \xff\r\n",
    b"GET /health HTTP/1.1\r\nHost: [.....]\r\n",
    b"GET /health HTTP/1.1\r\nHost: [127.0.0.1]\r\n",
    b"GET /health HTTP/1.1\r\nHost: [1:2]:80\r\n",
    b"GET /health#x HTTP/1.1\r\nHost: gateway\r\n",
    b"GET /health?a#x HTTP/1.1\r\nHost: gateway\r\n",
    b"GET /health HTTP/2.0\r\nHost: gateway\r\n",
    b"GET /health HTTP/0.9\r\nHost: gateway\r\n",
    b"GET /health\r\n",
    b"GET http://evil/health HTTP/1.1\r\nHost: gateway\r\n",
    b"GET http://gateway:81/health HTTP/1.1\r\nHost: gateway\r\n",
    b"GET http://user@gateway/health HTTP/1.1\r\nHost: gateway\r\n",
    b"GET http://gateway@evil/health HTTP/1.1\r\nHost: gateway\r\n",
    b"GET http://evil/health HTTP/1.0\r\n",
    b"GET ftp://gateway/health HTTP/1.1\r\nHost: gateway\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: gateway\r\n",
    b"CONNECT gateway:80 HTTP/1.1\r\nHost: gateway\r\n",
    b"POST /health HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
    b"POST /health HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    b"POST /health HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: identity, chunked\r\n",
    b"POST /health HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: gzip, chunked\r\n",
    b"POST /health HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: ,chunked\r\n",
    b"POST /health HTTP/1.1\r\nHost: gateway\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    b"POST /health HTTP/1.1\r\nHost: gateway\r\nContent-Length: 5\r\nContent-Length: 5\r\n",
    b"GET /health HTTP/1.1\r\nHost: gateway\r\nX-A: b\r\n c\r\n",
]


@pytest.mark.parametrize(("head", "status"), GOOD)
def test_unambiguous_head_is_answered(acme: Owner, head: bytes, status: int) -> None:
    """Spellings that mean one thing."""
    body = b"0\r\n\r\n" if b"Chunked" in head else b""
    with Raw(acme.url) as raw:
        assert whole(raw.send(head + b"\r\n" + body).answer()).status == status


@pytest.mark.parametrize("head", BAD)
def test_ambiguous_head_is_refused(acme: Owner, head: bytes) -> None:
    """400, and the connection ends: what follows is not read as another request."""
    with Raw(acme.url) as raw:
        raw.send(head + b"\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: gateway\r\n\r\n")
        answer = whole(raw.answer())
        assert (answer.status, answer.json()) == (400, problem(400, "The request is not valid HTTP"))
        assert raw.ended()


@pytest.mark.parametrize("path", [b"/sdk/check", b"/sdk/log"])
def test_ambiguous_head_is_refused_on_the_fast_path(acme: Owner, bot: str, path: bytes) -> None:
    """Also where the whole request comes in one piece from a client that was admitted before."""
    body = b'{"agent_id": "%b", "action": "a.b", "status": "success"}' % bot.encode()
    key, length = acme.key.encode(), len(body)
    start = b"POST %b HTTP/1.1\r\nHost: gateway\r\n" % path
    rest = b"X-API-Key: %b\r\nContent-Length: %d\r\n\r\n%b" % (key, length, body)
    with Raw(acme.url) as raw:
        assert raw.send(start + rest).answer().status == 200
        assert raw.send(start + rest).answer().status == 200
        assert raw.send(start + b"Host: evil\r\n" + rest).answer().status == 400
        assert raw.ended()


@pytest.mark.parametrize("path", [b"/sdk/check", b"/sdk/log", b"/sdk/check?dry_run=true"])
@pytest.mark.parametrize(
    ("before", "after", "admitted"),
    [
        (b"", b"", True),
        (b" \t", b"\t ", True),
        (b"", b"\xa0", False),
        (b"\xa0", b"", False),
        (b"\x85", b"", False),
        (b"", b"\x85", False),
    ],
)
def test_only_spaces_and_tabs_around_a_key_are_ignored(
    acme: Owner, bot: str, path: bytes, before: bytes, after: bytes, admitted: bool
) -> None:
    body = b'{"agent_id": "%b", "action": "a.b", "status": "success"}' % bot.encode()
    if b"check" in path:
        body = b'{"agent_id": "%b", "action": "a.b"}' % bot.encode()
    start = b"POST %b HTTP/1.1\r\nHost: gateway\r\nContent-Length: %d\r\n" % (path, len(body))
    key = b"X-API-Key: %b%b%b\r\n\r\n" % (before, acme.key.encode(), after)
    with Raw(acme.url) as raw:
        assert raw.send(start + key + body).answer().status == (200 if admitted else 401)


def test_version_is_checked_before_anything_else() -> None:
    """Whatever the parser makes of a version that it should not accept."""
    with pytest.raises(ValueError, match="version"):
        check_head("2.0", b"/", [(b"host", b"gateway")])
