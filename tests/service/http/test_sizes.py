"""How much is too much: requests, contexts, depth (decisions §2)."""

import gzip
import json
from collections.abc import Iterator

import httpx
import pytest
from support.gateway import Owner
from support.shapes import complaints, refused

MAX_BODY = 256 * 1024
MAX_CONTEXT = 64 * 1024
TOO_LARGE = f"The request is larger than {MAX_BODY} bytes"
PLACES = pytest.mark.parametrize("path", ["/sdk/check", "/sdk/log", "/api/agents"])
START = b'{"agent_id": "x", "action": "a", "status": "success", "name": "x", "description": "'


def padded(size: int) -> bytes:
    """Return a body of so many bytes whose filling every surface ignores: white space."""
    body = START + b'"}'
    return body + b" " * (size - len(body))


def send(owner: Owner, path: str, content: bytes | Iterator[bytes], **headers: str) -> httpx.Response:
    return owner.http.post(path, content=content, headers={"X-API-Key": owner.key} | headers)


def chunks(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), 10_000):
        yield content[start : start + 10_000]


@PLACES
@pytest.mark.parametrize("size", [MAX_BODY + 1, 2 * MAX_BODY, 8 * 1024 * 1024])
def test_a_larger_request_is_refused(acme: Owner, path: str, size: int) -> None:
    """One byte above 256 KiB is 413, in one piece, chunked, and unpacked."""
    content = padded(size)
    refused(send(acme, path, content), 413, TOO_LARGE)
    refused(send(acme, path, chunks(content)), 413, TOO_LARGE)
    refused(send(acme, path, gzip.compress(content), **{"Content-Encoding": "gzip"}), 413, TOO_LARGE)


@PLACES
def test_the_largest_request_is_read(acme: Owner, path: str) -> None:
    """256 KiB to the byte are judged by what they say, in one piece, chunked, and unpacked."""
    content = padded(MAX_BODY)
    answers = [
        send(acme, path, content),
        send(acme, path, chunks(content)),
        send(acme, path, gzip.compress(content), **{"Content-Encoding": "gzip"}),
    ]
    assert {answer.status_code for answer in answers} <= {200, 400, 404}


def test_the_gateway_goes_on_after_a_refusal(acme: Owner) -> None:
    """A connection that was refused disturbs no other."""
    refused(send(acme, "/sdk/check", padded(4 * MAX_BODY)), 413, TOO_LARGE)
    assert acme.http.get("/health").status_code == 200


@pytest.mark.parametrize("path", ["/sdk/check", "/sdk/log"])
def test_a_larger_request_is_judged_after_the_key(acme: Owner, path: str) -> None:
    """The key comes before the body (decisions §4): without one it is 401, with one 413 and counted."""
    answer = acme.http.post(path, content=padded(MAX_BODY + 1))
    refused(answer, 401, "Missing API key")
    answer = send(acme, path, padded(MAX_BODY + 1))
    refused(answer, 413, TOO_LARGE)
    assert int(answer.headers["X-RateLimit-Remaining"]) < int(answer.headers["X-RateLimit-Limit"])


@pytest.mark.parametrize("path", ["/sdk/check", "/sdk/log"])
def test_a_context_has_sixty_four_kibibytes(acme: Owner, bot: str, path: str) -> None:
    """A context of 64 KiB is taken, one byte more is 400 under `context`; bytes count, not characters."""
    acme.permit(bot, "a")
    overhead = len('{"a":"é"}'.encode())

    def sized(size: int) -> httpx.Response:
        body = {"agent_id": bot, "action": "a", "status": "success"}
        context = {"a": "é" + "x" * (size - overhead)}
        return acme.http.post(path, json=body | {"context": context}, headers={"X-API-Key": acme.key})

    assert sized(MAX_CONTEXT).status_code == 200
    assert list(complaints(sized(MAX_CONTEXT + 1))) == ["context"]


def nested(opening: bytes, closing: bytes, levels: int) -> bytes:
    return opening * levels + b"1" + closing * levels


@pytest.mark.parametrize("path", ["/sdk/check", "/sdk/log"])
@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]"), (b'[{"a":', b"}]")])
def test_a_context_has_thirty_two_levels(
    acme: Owner, bot: str, path: str, opening: bytes, closing: bytes
) -> None:
    """32 levels, the context's own included, are taken; deeper ones are 400, however deep."""
    acme.permit(bot, "a")
    step = opening.count(b"[") + opening.count(b"{")

    def deep(levels: int) -> httpx.Response:
        inner = nested(opening, closing, (levels - 1) // step)
        inner = b"[" + inner + b"]" if (levels - 1) % step else inner
        start = b'{"agent_id": "%s", "action": "a", "status": "success", "context": {"a": ' % bot.encode()
        return send(acme, path, start + inner + b"}}")

    assert deep(32).status_code == 200
    assert list(complaints(deep(33))) == ["context"]
    for levels in (100, 400, 600, 800, 950, 5_000, 40_000):
        assert set(complaints(deep(levels))) <= {"context", "body"}


def test_an_unknown_member_may_be_deep(acme: Owner, bot: str) -> None:
    """What is ignored is ignored, also where its text is looked through."""
    acme.permit(bot, "a")
    body = b'{"agent_id": "%s", "action": "a", "x": %s, "y": "\\u00e9"}'
    for levels in (33, 400, 800):
        answer = send(acme, "/sdk/check", body % (bot.encode(), nested(b"[", b"]", levels)))
        assert answer.json()["allowed"] is True


def test_a_request_has_five_thousand_values(acme: Owner, bot: str) -> None:
    """One more is 400 under `body`, whatever they are; the values of an entry among others are counted alone."""
    entry = {"agent_id": bot, "action": "a.b", "status": "success"}
    for path in ("/sdk/check", "/sdk/log"):
        # The body, its four members and the list are six.
        for count, status in ((4_994, 200), (4_995, 400)):
            answer = send(acme, path, json.dumps({**entry, "context": {"n": [1] * count}}).encode())
            assert answer.status_code == status, answer.text
        assert answer.json()["detail"] == {"body": ["The body has more than 5000 JSON values"]}
    many = {"entries": [{**entry, "context": {"n": [1] * count}} for count in (4_994, 4_995, 10)]}
    results = send(acme, "/sdk/logs", json.dumps(many).encode()).json()["results"]
    assert [one["status"] for one in results] == [200, 400, 200]
    assert results[1]["detail"] == {"entry": ["must not contain more than 5000 JSON values"]}


def test_a_batch_has_twenty_five_thousand_values(acme: Owner, bot: str) -> None:
    """Beyond them fewer entries have to be sent at once, as beyond the size."""
    entry = {"agent_id": bot, "action": "a.b", "status": "success", "context": {"n": [1] * 4_000}}
    answer = send(acme, "/sdk/logs", json.dumps({"entries": [entry] * 7}).encode())
    assert answer.status_code == 413
    assert "send fewer entries" in answer.json()["detail"]
