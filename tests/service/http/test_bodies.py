"""JSON read strictly, on both surfaces (decisions §2)."""

import gzip
import zlib

import httpx
import pytest
from support.gateway import Owner
from support.shapes import complaints

NOT_JSON = [
    b"",
    b" ",
    b"{",
    b"}",
    b"{}{}",
    b"nonsense",
    b"{'name': 'x'}",
    b'{"name": "x",}',
    b'{"name": "x"} trailing',
    b'{name: "x"}',
    b"[]",
    b"[{}]",
    b"null",
    b"true",
    b"5",
    b'"text"',
    b"NaN",
    b'{"n": NaN}',
    b'{"n": Infinity}',
    b'{"n": -Infinity}',
    b'{"n": 1e401}',
    b'{"n": ' + b"1" * 401 + b"}",
    b'{"a": 1, "a": 1}',
    b'{"a": {"b": 1, "b": 2}}',
    b'{"a": [{"b": 1, "\\u0062": 2}]}',
    b'{"a": "\\u0000"}',
    b'{"\\u0000": "a"}',
    b'{"a": "\x00"}',
    b'{"a": "\n"}',
    b'{"a": "\\ud800"}',
    b'{"a": "\\udc00\\ud800"}',
    b'{"\\ud83d": 1}',
    b'{"a": ["deep", {"b": "\\ud83d"}]}',
    b'{"a": "\xff"}',
    b'{"a": "\xed\xa0\x80"}',
    b'\xef\xbb\xbf{"a": 1}',
    '{"a": 1}'.encode("utf-16"),
    b"name=x&description=y",
    b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nx\r\n--b--',
    b"[" * 100_000,
    b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
]
PLACES = ["/sdk/check", "/sdk/log", "/auth/login", "/auth/register", "/api/agents"]


def send(owner: Owner, path: str, content: bytes, **headers: str) -> httpx.Response:
    return owner.http.post(path, content=content, headers={"X-API-Key": owner.key} | headers)


@pytest.mark.parametrize("content", NOT_JSON, ids=lambda content: repr(content[:30]))
def test_what_is_no_json_object_is_refused(acme: Owner, content: bytes) -> None:
    """Anything but one well-formed object is 400 under `body`, on every path, whatever its Content-Type."""
    for path in PLACES:
        for kind in ("application/json", "text/plain"):
            answer = send(acme, path, content, **{"Content-Type": kind})
            assert list(complaints(answer)) == ["body"], path


@pytest.mark.parametrize(
    "kind",
    [
        None,
        "application/json; charset=utf-8",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/octet-stream",
        "nonsense",
    ],
)
def test_json_is_read_whatever_the_content_type(acme: Owner, kind: str | None) -> None:
    """A JSON object is a JSON object, also without a Content-Type or under a wrong one (decisions §2)."""
    headers = {} if kind is None else {"Content-Type": kind}
    assert send(acme, "/api/agents", b'{"name": "x"}', **headers).status_code == 201
    checked = send(acme, "/sdk/check", b'{"agent_id": "x", "action": "y"}', **headers)
    assert checked.status_code == 200


@pytest.mark.parametrize(
    "content", [b' \n{"agent_id": "x", "action": "y"}\r\n\t ', b'{"agent_id":"x","action":"\\u0079"}']
)
def test_white_space_and_escapes_do_not_matter(acme: Owner, content: bytes) -> None:
    """JSON may be written in many ways."""
    assert send(acme, "/sdk/check", content).status_code == 200


def test_surrogate_pairs_are_characters(acme: Owner) -> None:
    """Both halves together are one character, and come back as it."""
    made = send(acme, "/api/agents", b'{"name": "\\ud83e\\udd16 bot"}')
    assert (made.status_code, made.json()["name"]) == (201, "🤖 bot")


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_compressed_body_is_unpacked(acme: Owner, pack: object) -> None:
    """gzip and deflate bodies are read like others."""
    assert callable(pack)
    encoding = {"Content-Encoding": "gzip" if pack is gzip.compress else "deflate"}
    assert send(acme, "/api/agents", pack(b'{"name": "x"}'), **encoding).status_code == 201
    body = pack(b'{"agent_id": "x", "action": "y"}')
    assert send(acme, "/sdk/check", body, **encoding).status_code == 200


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("gzip", b'{"name": "x"}'),
        ("gzip", gzip.compress(b'{"name": "x"}')[:-4]),
        ("gzip", gzip.compress(b'{"name": "x"}') + b"more"),
        ("gzip", b""),
        ("deflate", b"\x00"),
        ("br", b'{"name": "x"}'),
        ("gzip, gzip", gzip.compress(gzip.compress(b'{"name": "x"}'))),
    ],
    # Said here: a packed text has the time in it, and workers must agree on a test's name.
    ids=["plain", "cut", "longer", "empty", "broken", "brotli", "twice"],
)
def test_what_cannot_be_unpacked_is_refused(acme: Owner, encoding: str, content: bytes) -> None:
    """A broken or unknown coding is 400 under `body`, on every path."""
    for path in PLACES:
        answer = send(acme, path, content, **{"Content-Encoding": encoding})
        assert list(complaints(answer)) == ["body"], path
