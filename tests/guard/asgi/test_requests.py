"""Invalid and ambiguous requests are refused without a check."""

from __future__ import annotations

from typing import Any

import pytest
from support.asgi import JSON, Client, Tool

from toolgate.asgi import GuardMiddleware
from toolgate.testing import FakeGateway

ACTIONS = {"POST /a/{id}?note": "a.write"}


@pytest.mark.parametrize(
    ("request_line", "body", "headers", "status"),
    [
        ("POST /a/1", b'{"n": 1, "n": 2}', {}, 400),
        ("POST /a/1", b'{"n": 1, "\\u006e": 2}', {}, 400),
        ("POST /a/1", b'{"n": NaN}', {}, 400),
        ("POST /a/1", b'{"n": 1e999}', {}, 400),
        ("POST /a/1", b'{"n": ' + b"9" * 5000 + b"}", {}, 400),
        ("POST /a/1", b'{"n": ' + b"[" * 100_000, {}, 400),
        ("POST /a/1", b'{"n": "\xff"}', {}, 400),
        ("POST /a/1", '{"n": 1}'.encode("utf-16"), {}, 400),
        ("POST /a/1", b'\xef\xbb\xbf{"n": 1}', {}, 400),
        ("POST /a/1", b"[1]", {}, 400),
        ("POST /a/1", b"null", {}, 400),
        ("POST /a/1", b" ", {}, 400),
        ("POST /a/1", b'{"id": "2"}', {}, 400),
        ("POST /a/1", b'{"note": "2"}', {}, 400),
        ("POST /a/1?other=2", b"", {}, 400),
        ("POST /a/1?note=%ff", b"", {}, 400),
        ("POST /a/1", b"", {"Idempotency-Key": "k" * 256}, 400),
        ("POST /a/1", b"", {"Idempotency-Key": ""}, 400),
        ("POST /a/1", b"n=1", {"content-type": "application/x-www-form-urlencoded"}, 415),
        ("POST /a/1", b'{"n": 1}', {"content-type": "text/plain"}, 415),
        ("POST /a/1", b'{"n": 1}', {"content-encoding": "br"}, 415),
        ("POST /a/1", b'{"n": "' + b"a" * 1024 + b'"}', {}, 413),
    ],
)
async def test_invalid_request_is_refused_without_a_check(
    fake_gateway: FakeGateway, request_line: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    fake_gateway.allow("a.write")
    tool = Tool()
    client = Client(request_line, body, headers=headers)
    limit = 1024 if status == 413 else 1024 * 1024
    await client.ask(GuardMiddleware(tool, actions=ACTIONS, max_body=limit))
    assert (client.status, client.json["outcome"], tool.ran) == (status, "refused", [])
    fake_gateway.assert_not_checked()


@pytest.mark.parametrize("name", [b"content-type", b"idempotency-key", b"content-encoding"])
async def test_duplicate_header_is_refused(fake_gateway: FakeGateway, name: bytes) -> None:
    fake_gateway.allow("a.write")
    value = b"application/json" if name == b"content-type" else b"identity"
    headers = [(b"content-type", b"application/json")] * (name != b"content-type") + [(name, value)] * 2
    tool = Tool()
    client = await Client("POST /a/1", {"n": 1}, headers=headers).ask(GuardMiddleware(tool, actions=ACTIONS))
    assert (client.status, tool.ran) == (400, [])


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "application/x+json"]
)
async def test_json_media_types_are_accepted(fake_gateway: FakeGateway, kind: str) -> None:
    fake_gateway.allow("a.write")
    tool = Tool()
    app = GuardMiddleware(tool, actions=ACTIONS)
    body = '{"é": [1.50, {"a": null}], "$ref": "x"}'.encode()
    assert (await Client("POST /a/1", body, headers={"content-type": kind}).ask(app)).status == 200
    assert (await Client("POST /a/1", headers={"content-type": "text/plain"}).ask(app)).status == 200
    assert [each for *_, each in tool.ran] == [body, b""]
    fake_gateway.assert_checked("a.write", id="1")


async def test_disconnect_during_the_body_runs_nothing(fake_gateway: FakeGateway) -> None:
    fake_gateway.allow("a.write")
    tool, client = Tool(), Client("POST /a/1", headers=JSON)
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"{}", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    await GuardMiddleware(tool, actions=ACTIONS)(client.scope, receive, client.send)
    assert (client.sent, tool.ran) == ([], [])
    fake_gateway.assert_not_checked()


async def test_endless_body_is_refused_at_the_limit(fake_gateway: FakeGateway) -> None:
    tool, client, reads = Tool(), Client("POST /a/1", headers=JSON), list[int]()

    async def receive() -> dict[str, Any]:
        reads.append(1)
        return {"type": "http.request", "body": b"a" * 100, "more_body": True}

    await GuardMiddleware(tool, actions=ACTIONS, max_body=1000)(client.scope, receive, client.send)
    assert (client.status, len(reads)) == (413, 11)
