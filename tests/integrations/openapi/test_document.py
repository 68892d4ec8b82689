"""What is read of an OpenAPI document, however it is given, and what is refused."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.rest_api import DOCUMENT

from toolgate import ConfigurationError
from toolgate_integrations.openapi import GuardTransport
from toolgate_integrations.openapi.document import Document, load, operations

YAML = """
openapi: 3.1.0
servers: [{url: "https://api.example.test"}]
paths:
  /orders/{id}:
    get: {responses: {200: {description: fine}}}
    x-internal: true
  x-more: [1]
"""


def transport(document: Document, **options: Any) -> GuardTransport:
    inner = httpx.MockTransport(lambda _: httpx.Response(200))
    return GuardTransport(inner, document, **{"prefix": "pay", **options})


def test_actions_are_named_after_operations() -> None:
    """An operationId is the action behind the prefix, one without it has method and path; none needs a blank."""
    document = {**DOCUMENT, "paths": {**DOCUMENT["paths"], "/odd": {"get": {"operationId": "get odd~%é"}}}}
    actions = transport(document, prefix="pay.").actions
    assert actions["PostRefunds"] == "pay.PostRefunds"
    assert actions["GET:/refunds/{id}"] == "pay.GET:/refunds/{id}"
    assert actions["get odd~%é"] == "pay.get%20odd~%25%C3%A9"
    assert len(actions) == 10


def test_actions_can_be_named_otherwise() -> None:
    """By the operation's name, as a mapping or a function; the others keep theirs."""
    for given in ({"Drop": "refunds.delete"}, lambda name: "refunds.delete" if name == "Drop" else None):
        actions = transport(DOCUMENT, actions=given).actions
        assert (actions["Drop"], actions["Cancel"]) == ("refunds.delete", "pay.Cancel")


@pytest.mark.parametrize("given", ["mapping", "path", "text path", "text"])
@pytest.mark.parametrize("written", ["json", "yaml"])
def test_a_document_in_any_form(tmp_path: Path, given: str, written: str) -> None:
    """A mapping, a path and text say the same, as JSON and as YAML, whatever the file is called."""
    parsed = load(YAML)
    text = YAML if written == "yaml" else json.dumps(parsed)
    file = tmp_path / "api.txt"
    file.write_text(text, "utf-8")
    source: Any = {"mapping": parsed, "path": file, "text path": str(file), "text": text}[given]
    [found] = operations(load(source), None)
    assert (found.name, found.method, found.path) == ("GET:/orders/{id}", "GET", "/orders/{id}")
    assert found.servers == ("https://api.example.test",)


def test_yaml_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused with what to install; JSON needs none."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigurationError, match="pip install pyyaml"):
        load(YAML)
    assert load(json.dumps(DOCUMENT)) == DOCUMENT


def test_servers_of_the_nearest() -> None:
    """An operation's own count before its path's, and those before the document's; variables take each value."""
    document = {
        "openapi": "3.1.0",
        "servers": [
            {
                "url": "https://{region}.example.test/{base}",
                "variables": {"region": {"default": "eu", "enum": ["eu", "us"]}, "base": {"default": "v1"}},
            }
        ],
        "paths": {
            "/a": {"get": {}},
            "/b": {
                "servers": [{"url": "https://b.test"}],
                "get": {},
                "post": {"servers": [{"url": "https://c.test"}]},
            },
            "/d": {"$ref": "#/components/pathItems/d~1e"},
        },
        "components": {"pathItems": {"d/e": {"delete": {"operationId": "d"}}}},
    }
    found = {each.name: each.servers for each in operations(document, None)}
    expanded = ("https://eu.example.test/v1", "https://us.example.test/v1")
    assert found == {
        "GET:/a": expanded,
        "GET:/b": ("https://b.test",),
        "POST:/b": ("https://c.test",),
        "d": expanded,
    }
    given = operations(document, ["http://127.0.0.1:8000"])
    assert {each.servers for each in given} == {("http://127.0.0.1:8000",)}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"swagger": "2.0", "paths": {}}, "convert a Swagger 2.0"),
        ("{", "is not JSON"),
        ('{"openapi": "3.1.0", "openapi": "3.1.0"}', "contains the same key twice"),
        ("openapi: 3.1.0\npaths: [", "neither JSON nor YAML"),
        ("- a\n- b\n", "OpenAPI version is None"),
        ("no-such-file.json", r"'no-such-file\.json' cannot be read: No such file"),
        (7, "is a 'int'"),
        ({**DOCUMENT, "servers": []}, r"no servers; pass the addresses that you use, such as servers="),
        ({**DOCUMENT, "servers": [{"url": "/v1"}]}, "'/v1' is not an address with a host"),
        ({**DOCUMENT, "servers": [{"url": "ftp://x.test"}]}, "is not an address"),
        ({**DOCUMENT, "servers": [{"url": "https://{a}.test"}]}, "no default for 'a'"),
        ({**DOCUMENT, "servers": [{}]}, "has no url"),
        ({**DOCUMENT, "paths": [1]}, "paths is a 'list'"),
        ({**DOCUMENT, "paths": {"/a": []}}, r"paths\['/a'\] is a 'list'"),
        ({**DOCUMENT, "paths": {"/a": {"get": {"operationId": 7}}}}, "operationId is 7"),
        ({**DOCUMENT, "paths": {"/a": {"$ref": "other.json#/a"}}}, "into one file"),
        ({**DOCUMENT, "paths": {"/a": {"$ref": "#/paths/~1a"}}}, "without circular references"),
        (
            {**DOCUMENT, "paths": {"/a": {"get": {"operationId": "x"}, "put": {"operationId": "x"}}}},
            "GET '/a' and PUT '/a' would have the same action 'pay.x'",
        ),
    ],
)
def test_documents_that_are_none(document: Any, said: str) -> None:
    """What cannot be read, or says two things at once, is refused when the transport is made, with the cure."""
    with pytest.raises(ConfigurationError, match=said):
        transport(document)
