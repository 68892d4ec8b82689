"""Request patterns, and that no path bypasses them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse
from starlette.routing import Match, Mount, Route
from support.asgi import Client, Tool

from toolgate import ConfigurationError
from toolgate.asgi import Endpoint, GuardMiddleware, _Refused, _Routes
from toolgate.testing import FakeGateway

REST = ["* /{rest:path}"]


def scope_of(request: str, **more: Any) -> dict[str, Any]:
    return {**Client(request).scope, **more}


def found(routes: _Routes, request: str, **more: Any) -> Any:
    """Return action and path arguments, None for an unguarded request, or the status of the refusal."""
    try:
        one = routes.find(scope_of(request, **more))
    except _Refused as refusal:
        return refusal.status
    return one and (one[0].action, one[1])


def test_first_matching_pattern_counts() -> None:
    routes = _Routes(
        {
            "GET /users/me": "me.read",
            "GET /users/{id}": "user.read",
            "DELETE /users/{id}": Endpoint("user.delete"),
            "GET /files/{folder}/{name:path}": "file.read",
        },
        ["GET /health", "* /docs/{page:path}"],
    )
    assert found(routes, "GET /users/me") == ("me.read", {})
    assert found(routes, "HEAD /users/7") == ("user.read", {"id": "7"})
    assert found(routes, "DELETE /users/me") == ("user.delete", {"id": "me"})
    assert found(routes, "GET /files/a/b/c.txt") == ("file.read", {"folder": "a", "name": "b/c.txt"})
    for passes in ("GET /health", "HEAD /health", "PUT /docs/", "GET /docs/a/b"):
        assert found(routes, passes) is None
    for refused in (
        "POST /health",
        "GET /users",
        "GET /users/7/x",
        "GET /users/",
        "GET /Health",
        "GET /docs",
    ):
        assert found(routes, refused) == 403


def test_root_path_is_not_part_of_the_pattern() -> None:
    routes = _Routes({"GET /a": "a.read"}, [])
    assert found(routes, "GET /v1/a", root_path="/v1") == ("a.read", {})
    assert found(routes, "GET /a", root_path="/v1") == ("a.read", {})
    assert found(routes, "GET /v12/a", root_path="/v1") == 403


@pytest.mark.parametrize("path", ["/a\n", "/a\x00", "//a", "/x/../a", "/./a", "/a/..", "/x//a"])
def test_ambiguous_path_is_refused(path: str) -> None:
    assert found(_Routes({"GET /a": "a.read"}, REST), "GET /", path=path) == 400


PIECES = [*"/ab.{}:%?;\n\r\0\t é", "/refunds/", "/all"]
PATHS = st.lists(st.sampled_from(PIECES), max_size=8).map(lambda pieces: "/" + "".join(pieces))


@given(st.sampled_from(["GET", "HEAD", "POST", "PUT", "get"]), PATHS, st.sampled_from(["", "/b"]))
def test_no_path_bypasses_the_guard(method: str, path: str, root: str) -> None:
    named = {
        "GET /refunds/{charge}": "get",
        "POST /refunds/{charge}/all": "all",
        "POST /a/{rest:path}": "rest",
        "GET /a": "a",
    }

    def answer(_: Any) -> PlainTextResponse:
        return PlainTextResponse("")

    inner = [
        Route(pattern.partition(" ")[2], answer, methods=[pattern.partition(" ")[0]], name=action)
        for pattern, action in named.items()
    ]
    scope = scope_of(f"{method} /", path=root + path, root_path=root)
    matches = [(route.matches(scope), route) for route in inner]
    takes = [(child["path_params"], route.name) for (how, child), route in matches if how is Match.FULL]
    try:
        one = _Routes(named, REST).find(scope)
    except _Refused:
        return
    if takes:
        assert one is not None
        assert (one[1], one[0].action) == takes[0]
    else:
        assert one is None


async def test_mounted_application_is_guarded_by_its_own_paths(fake_gateway: FakeGateway) -> None:
    fake_gateway.allow("a.read")
    tool = Tool()
    app = Mount("/v1", GuardMiddleware(tool, actions={"GET /a/{id}": "a.read"}))
    client = await Client("GET /v1/a/7").ask(app)
    assert (client.status, len(tool.ran)) == (200, 1)
    assert (await Client("GET /v1/b").ask(app)).status == 403
    fake_gateway.assert_checked("a.read", id="7")


async def test_function_returns_the_action(fake_gateway: FakeGateway) -> None:
    fake_gateway.allow("tools.read")
    fake_gateway.require_approval("tools.write")
    tool = Tool()

    def named(scope: Any) -> str | None:
        return {"GET": "tools.read", "POST": "tools.write"}.get(scope["method"])

    app = GuardMiddleware(tool, actions=named, unguarded=["PUT /health"])
    assert (await Client("GET /x?a=1&a=2&b=").ask(app)).status == 200
    context = fake_gateway.checks[0].context
    assert context == {"method": "GET", "path": "/x", "query": {"a": ["1", "2"], "b": ""}}
    key = {"Idempotency-Key": "k"}
    assert (await Client("POST /x?a=1", {"n": 1}, headers=key).ask(app)).status == 202
    fake_gateway.approve(context={"method": "POST", "path": "/x", "query": {"a": "2"}, "n": 1})
    assert (await Client("POST /x?a=1", {"n": 1}, headers=key).ask(app)).status == 200
    assert tool.ran[-1] == ("/x", "a=2", b'{"n": 1}')
    for taken in ("path", "method", "query"):
        assert (await Client("POST /x", {taken: "/y"}).ask(app)).status == 400
    assert (await Client("PUT /health").ask(app)).status == 200
    assert (await Client("PUT /x").ask(app)).status == 403


async def test_request_without_a_pattern_is_refused(fake_gateway: FakeGateway) -> None:
    tool = Tool()
    app = GuardMiddleware(tool, actions={"POST /a": "a.write"}, unguarded=["GET /health"])
    client = await Client("POST /b").ask(app)
    assert (client.status, client.json["outcome"], tool.ran) == (403, "unnamed", [])
    assert client.json["detail"] == "no action is configured for POST /b"
    passes = await Client("GET /health").ask(app)
    assert (passes.status, tool.scopes[0] is passes.scope) == (200, True)
    fake_gateway.assert_not_checked()


async def test_websockets_pass_only_unguarded_paths() -> None:
    tool = Tool()
    app = GuardMiddleware(tool, actions={"POST /a": "a.write"}, unguarded=["GET /live", "PUT /a"])
    for path, passes in (("/a", False), ("/b", False), ("/live", True)):
        client = Client(f"GET {path}")
        client.scope["type"] = "websocket"
        del client.scope["method"]
        await client.ask(app)
        assert client.sent == ([] if passes else [{"type": "websocket.close", "code": 1008}])
    lifespan = {"type": "lifespan"}
    client = Client("GET /")
    client.scope = lifespan
    await client.ask(app)
    assert [scope.get("path") for scope in tool.scopes] == ["/live", None]
    assert tool.scopes[1] is lifespan
    client.scope = {"type": "webtransport"}
    with pytest.raises(ConfigurationError, match="webtransport"):
        await client.ask(app)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("/refunds", "Invalid request pattern"),
        ("POST refunds", "Invalid request pattern"),
        ("post /refunds", "Invalid request pattern"),
        ("* /refunds", "Invalid request pattern"),
        ("POST /a b", "Invalid request pattern"),
        ("POST /{id:int}", "Invalid request pattern"),
        ("POST /{id", "Invalid request pattern"),
        ("POST /{}", "Invalid request pattern"),
        ("POST /{a-b}", "Invalid request pattern"),
        ("POST /a?", "Invalid request pattern"),
        ("POST /a?b&&c", "Invalid request pattern"),
        ("POST /{id}/{id}", "Duplicate argument"),
        ("POST /{id}?id", "Duplicate argument"),
        (3, "Invalid request pattern"),
    ],
)
def test_invalid_pattern_is_refused(pattern: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as raised:
        _Routes({pattern: "a.b"}, [])
    assert repr(pattern) in str(raised.value)


def test_unguarded_pattern_has_no_query() -> None:
    with pytest.raises(ConfigurationError, match="Invalid request pattern"):
        _Routes({}, ["GET /health?verbose"])
