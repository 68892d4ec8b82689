"""Which operation a request is: the one that every server would take it for, or none."""

import re
from typing import Any

import httpx
import pytest
from support.rest_api import BASE, DOCUMENT

from toolgate import ConfigurationError
from toolgate_integrations.openapi.document import operations
from toolgate_integrations.openapi.matching import Found, Routes


def find(method: str, address: str, document: dict[str, Any] = DOCUMENT, **more: Any) -> Found | str:
    url = address if "://" in address else BASE + address
    return Routes(operations(document, None)).find(httpx.Request(method, url, **more))


def described(*paths: str, servers: tuple[str, ...] = (BASE,)) -> dict[str, Any]:
    """A document with these paths, each with a GET."""
    return {
        "openapi": "3.0.3",
        "servers": [{"url": each} for each in servers],
        "paths": {each: {"get": {}} for each in paths},
    }


@pytest.mark.parametrize(
    ("method", "path", "name", "values"),
    [
        ("POST", "/refunds", "PostRefunds", {}),
        ("post", "/refunds?x=/v1/admin", "PostRefunds", {}),
        ("GET", "/refunds/re_1", "GET:/refunds/{id}", {"id": "re_1"}),
        ("GET", "/refunds/mine", "GetMine", {}),
        ("GET", "/refunds/a%20b%3Fc", "GET:/refunds/{id}", {"id": "a b?c"}),
        ("GET", "/%72efunds/ü", "GET:/refunds/{id}", {"id": "ü"}),
        ("PATCH", "/refunds/mine", "PatchRefund", {"id": "mine"}),
        ("POST", "/refunds/re_1:cancel", "Cancel", {"id": "re_1"}),
        ("GET", "/reports/march.2026.csv", "GetReport", {"name": "march", "format": "2026.csv"}),
        ("GET", "HTTPS://API.example.test:443/v1/refunds", "ListRefunds", {}),
    ],
)
def test_what_an_operation_is_found_by(method: str, path: str, name: str, values: dict[str, str]) -> None:
    """Method, server and path; what is written out goes before what is a parameter, and parameters are decoded."""
    found = find(method, path)
    assert isinstance(found, Found), found
    assert (found.operation.name, found.values) == (name, values)


@pytest.mark.parametrize(
    ("method", "address", "why"),
    [
        ("PUT", "/refunds", "no operation with this method and path"),
        ("HEAD", "/refunds", "no operation with this method and path"),
        ("GET", "/", "no operation with this method and path"),
        ("GET", "/refunds/", "no operation with this method and path"),
        ("GET", "//refunds", "no operation with this method and path"),
        ("GET", "/refunds/a/b", "no operation with this method and path"),
        ("GET", "https://api.example.test/refunds", "no operation with this method and path"),
        ("GET", "https://api.example.test/v2/refunds", "no operation with this method and path"),
        ("GET", "http://api.example.test/v1/refunds", "does not belong to a server"),
        ("GET", "https://api.example.test:8443/v1/refunds", "does not belong to a server"),
        ("GET", "https://api.example.test.evil.test/v1/refunds", "does not belong to a server"),
        ("GET", "https://api.example.test@evil.test/v1/refunds", "does not belong to a server"),
        ("GET", "/refunds/%2e%2e", "several ways"),
        ("GET", "/refunds/.%2E", "several ways"),
        ("GET", "/refunds/a%2Fb", "several ways"),
        ("GET", "/refunds/..%5Cadmin", "several ways"),
        ("GET", "/refunds/a%00b", "several ways"),
        ("GET", "/refunds/%ff", "several ways"),
        ("GET", "/refunds/mine;x=1", "several ways"),
        ("GET", "/refunds/MINE", "not spelled exactly like '/v1/refunds/mine'"),
        ("POST", "/Refunds", "not spelled exactly like '/v1/refunds'"),
        ("POST", "/refunds/x:CANCEL", "not spelled exactly like"),
    ],
)
def test_what_is_no_operation(method: str, address: str, why: str) -> None:
    """Other methods, servers and paths are not in the document; nor is what a server might read as another path."""
    found = find(method, address)
    assert isinstance(found, str)
    assert re.search(re.escape(why), found), found


@pytest.mark.parametrize(
    ("paths", "asked"),
    [(("/{kind}/mine", "/books/{id}"), "/books/mine"), (("/books/{id}", "/books/{name}"), "/books/a")],
)
def test_two_paths_that_both_fit(paths: tuple[str, ...], asked: str) -> None:
    """Where the document does not say which of two is meant, it is neither."""
    found = find("GET", asked, described(*paths))
    assert isinstance(found, str)
    assert "both match the path of the request" in found


def test_capitals_of_every_alphabet() -> None:
    """What is another spelling of a path that is written out is not taken for a parameter."""
    document = described("/straße", "/{name}")
    for spelling in ("/STRASSE", "/STRAẞE", "/Straße"):
        found = find("GET", spelling, document)
        assert isinstance(found, str)
        assert "not spelled exactly like '/v1/straße'" in found


def test_several_servers() -> None:
    """Each of them has all paths, and none of them those of another one's base."""
    document = described("/a", servers=("https://one.test", "https://two.test/base/", "http://[::1]:8080/v1"))
    for address in ("https://one.test/a", "https://two.test/base/a", "http://[::1]:8080/v1/a"):
        assert isinstance(find("GET", address, document), Found)
    for address in ("https://one.test/base/a", "https://two.test/a", "http://[::1]/v1/a"):
        assert isinstance(find("GET", address, document), str)


def test_a_path_that_is_written_again() -> None:
    """Parameters that a person changed are encoded, so that they stay one piece of the path."""
    found = find("GET", "/reports/march.csv")
    assert isinstance(found, Found)
    assert found.path_with({"name": "a/b c", "format": "x"}) == "/v1/reports/a%2Fb%20c.x"


def test_a_path_that_names_a_parameter_twice() -> None:
    """Nobody could say which of the two is the argument."""
    with pytest.raises(ConfigurationError, match=r"'/a/\{id\}/b/\{id\}' names a parameter twice"):
        Routes(operations(described("/a/{id}/b/{id}"), None))
