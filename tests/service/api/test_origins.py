"""CORS: pages of other origins may call the API only if the setting names their origin."""

from collections.abc import Iterator

import httpx
import pytest
from support.gateway import LiveGateway, Owner
from support.shapes import refused

from toolgate_service.api.middleware import AllowedOrigins
from toolgate_service.core.addresses import read_origins

APP, DEV = "https://app.example.com", "http://localhost:5173"
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-api-key"}


@pytest.fixture(scope="module")
def open_house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Owner]:
    """Organization on a gateway that allows two origins."""
    env = {"TOOLGATE_CORS_ORIGINS": f"{APP}, {DEV}"}
    with LiveGateway(tmp_path_factory.mktemp("open-house"), env=env) as gateway, Owner(gateway.url) as owner:
        yield owner


PLACES = [
    ("GET", "/api/agents"),
    ("POST", "/sdk/check"),
    ("GET", "/nowhere"),
    ("PATCH", "/sdk/log"),
    ("GET", "/health"),
]


@pytest.mark.parametrize(("method", "path"), PLACES)
@pytest.mark.parametrize("origin", [APP, DEV])
def test_a_named_origin_may_read_every_answer(open_house: Owner, method: str, path: str, origin: str) -> None:
    """Error responses too, from FastAPI and plain ASGI endpoints; never with credentials."""
    answer = open_house.http.request(method, path, headers={"Origin": origin})
    assert answer.headers["Access-Control-Allow-Origin"] == origin
    assert answer.headers["Vary"] == "Origin"
    assert "X-Request-ID" in answer.headers["Access-Control-Expose-Headers"]
    assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize(("method", "path"), PLACES)
def test_a_named_origin_is_answered_before_it_calls(open_house: Owner, method: str, path: str) -> None:
    """A preflight needs no credential, and returns 204 with methods and headers."""
    answer = httpx.options(open_house.url + path, headers={"Origin": APP, **PREFLIGHT})
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["Access-Control-Allow-Origin"] == APP
    assert "PUT" in answer.headers["Access-Control-Allow-Methods"]
    assert "X-API-Key" in answer.headers["Access-Control-Allow-Headers"]
    assert answer.headers["X-Request-ID"]


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.test",
        "https://app.example.com.evil.test",
        "http://app.example.com",
        "null",
        APP + "/",
        "",
    ],
)
def test_any_other_origin_is_not_let_in(open_house: Owner, origin: str) -> None:
    """Responses contain no CORS header, and a preflight is 405 as without the setting."""
    for method in ("GET", "OPTIONS"):
        answer = open_house.http.request(method, "/api/agents", headers={"Origin": origin, **PREFLIGHT})
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert answer.headers["Vary"] == "Origin"
    refused(answer, 405, "Method Not Allowed")


def test_options_without_a_preflight_is_a_method_like_others(open_house: Owner) -> None:
    """It is 405, as without the setting."""
    refused(open_house.http.options("/api/agents", headers={"Origin": APP}), 405, "Method Not Allowed")


def test_every_origin_may_be_let_in_but_never_with_credentials() -> None:
    """With `*` the response header is `*`, which browsers do not combine with credentials."""
    every = AllowedOrigins(read_origins("*"))
    assert every.headers(b"https://any.test")[b"access-control-allow-origin"] == b"*"
    assert every.preflight(b"https://any.test")
    assert not [name for name in every.headers(None) if b"credentials" in name]


@pytest.mark.parametrize(
    "entry",
    [
        "app.example.com",
        "https://app.example.com/",
        "https://app.example.com/path",
        "https://app.example.com:443",
        "http://app.example.com:80",
        "https://APP.example.com",
        "https://user@app.example.com",
        "https://*.example.com",
        "https://",
        "https://app.example.com:port",
        "https://app.example.com?q",
        "https://app.example.com#f",
        "ftp://app.example.com",
        "null",
        "https://bücher.example",
        "https://a b.example",
        "https://[::1",
    ],
)
def test_what_is_no_origin_is_named(entry: str) -> None:
    """An entry that browsers never send is an error at start, which quotes it."""
    with pytest.raises(ValueError, match="is not an origin; write scheme") as refusal:
        read_origins(f"{APP},{entry}")
    assert repr(entry) in str(refusal.value)


def test_every_origin_stands_alone() -> None:
    """`*` together with other origins is an error."""
    with pytest.raises(ValueError, match="cannot be combined"):
        read_origins(f"*, {APP}")


def test_origins_are_read_as_a_list() -> None:
    """Origins may have spaces around commas, ports and IPv6 addresses."""
    listed = f" {APP} ,{DEV},,https://[2001:db8::1]:8443 "
    assert read_origins(listed) == (APP, DEV, "https://[2001:db8::1]:8443")
    assert read_origins("") == ()
