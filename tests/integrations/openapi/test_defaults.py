"""What a request leaves to the API's defaults is part of what the gateway is asked about."""

from typing import Any

import httpx
import pytest

from toolgate import ActionDenied, ConfigurationError
from toolgate.testing import FakeGateway
from toolgate_integrations.openapi import GuardTransport

REFUND: dict[str, Any] = {
    "type": "object",
    "properties": {
        "charge": {"type": "string"},
        "amount": {"type": "integer", "default": 5000},
        "to": {"$ref": "#/components/schemas/Account"},
    },
}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "servers": [{"url": "https://api.example.com"}],
    "paths": {
        "/refunds": {
            "parameters": [{"$ref": "#/components/parameters/Limit"}],
            "post": {
                "operationId": "refund",
                "requestBody": {"$ref": "#/components/requestBodies/Refund"},
                "responses": {},
            },
            "patch": {
                "operationId": "patch",
                "requestBody": {"$ref": "#/components/requestBodies/Refund"},
                "responses": {},
            },
            "get": {
                "operationId": "list",
                "parameters": [
                    {"name": "limit", "in": "query", "schema": {"default": 20}},
                    {"name": "X-Mode", "in": "header", "schema": {"default": "live"}},
                ],
                "responses": {},
            },
        }
    },
    "components": {
        "parameters": {"Limit": {"name": "limit", "in": "query", "schema": {"default": 10}}},
        "requestBodies": {
            "Refund": {
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/Refund"}},
                    "application/x-www-form-urlencoded": {"schema": {"$ref": "#/components/schemas/Refund"}},
                }
            }
        },
        "schemas": {
            "Refund": REFUND,
            "Account": {"type": "object", "properties": {"country": {"default": "DE"}, "name": {}}},
        },
    },
}


def send(gateway: FakeGateway, method: str, *, options: Any = None, **request: Any) -> list[httpx.Request]:
    """Send a request, and return what reached the API."""
    reached: list[httpx.Request] = []

    def answer(each: httpx.Request) -> httpx.Response:
        reached.append(each)
        return httpx.Response(200)

    inner = httpx.MockTransport(answer)
    transport = GuardTransport(inner, DOCUMENT, prefix="pay", guard=gateway.guard(), **(options or {}))
    with httpx.Client(transport=transport, base_url="https://api.example.com") as client:
        client.request(method, "/refunds", **request)
    return reached


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway(allow=["pay.refund", "pay.patch", "pay.list"])


@pytest.mark.parametrize(
    ("method", "request_", "context"),
    [
        ("POST", {"json": {"charge": "c"}}, {"charge": "c", "amount": 5000, "limit": "10"}),
        ("POST", {"json": {"amount": 5}}, {"amount": 5, "limit": "10"}),
        (
            "POST",
            {"json": {"to": {"name": "eve"}}},
            {"amount": 5000, "limit": "10", "to": {"name": "eve", "country": "DE"}},
        ),
        ("POST", {"data": {"charge": "c"}}, {"charge": "c", "amount": 5000, "limit": "10"}),
        ("POST", {}, {"limit": "10"}),
        ("PATCH", {"json": {"charge": "c"}}, {"charge": "c", "limit": "10"}),
        ("GET", {}, {"limit": "20"}),
        ("GET", {"params": {"limit": "5"}}, {"limit": "5"}),
        ("GET", {"options": {"headers": ["X-Mode"]}}, {"limit": "20", "X-Mode": "live"}),
    ],
)
def test_defaults_of_the_document_are_asked_about(
    gateway: FakeGateway, method: str, request_: dict[str, Any], context: dict[str, Any]
) -> None:
    assert len(send(gateway, method, **request_)) == 1
    assert gateway.checks[-1].context == context


def test_default_amount_is_compared_with_the_permitted_one() -> None:
    gateway = FakeGateway()
    gateway.allow("pay.refund", max_amount=100)
    with pytest.raises(ActionDenied):
        send(gateway, "POST", json={"charge": "c"})


def test_amount_in_another_place_than_its_default_is_not_sent(gateway: FakeGateway) -> None:
    with pytest.raises(ConfigurationError, match="has a default in another part"):
        send(gateway, "POST", params={"amount": "5"}, json={"charge": "c"})


@pytest.mark.parametrize("edit", [{"amount": 25}, {"limit": "3"}])
def test_approver_may_edit_what_was_left_to_its_default(edit: dict[str, Any]) -> None:
    gateway = FakeGateway()
    gateway.require_approval("pay.refund")
    reached: list[httpx.Request] = []

    def decide(pending: Any) -> str:
        gateway.approve(pending.approval_id, context={"charge": "c", "amount": 5000, "limit": "10", **edit})
        return "check"

    reached = send(gateway, "POST", options={"on_hold": decide}, json={"charge": "c"})
    (request,) = reached
    assert (b'"amount":25' in request.content.replace(b" ", b"")) == ("amount" in edit)
    assert (request.url.params.get("limit") == "3") == ("limit" in edit)
