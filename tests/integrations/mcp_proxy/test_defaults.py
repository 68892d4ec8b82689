"""The proxy asks about the arguments that the server's tool gets, defaults included."""

import json
from typing import Any

import pytest
from support.proxies import Bank, text_of

from toolgate_integrations._json_schema import SchemaDefaultError, complete_arguments

NUMBER = {"type": "integer", "default": 5000}


@pytest.mark.parametrize(
    ("schema", "given", "expected"),
    [
        ({"properties": {"amount": NUMBER}}, {}, {"amount": 5000}),
        ({"properties": {"amount": NUMBER}}, {"amount": 1}, {"amount": 1}),
        ({"properties": {"amount": NUMBER}}, {"amount": None}, {"amount": None}),
        ({"properties": {"a": {"properties": {"b": NUMBER}}}}, {"a": {}}, {"a": {"b": 5000}}),
        ({"properties": {"a": {"properties": {"b": NUMBER}}}}, {}, {}),
        ({"properties": {"a": {"default": {}, "properties": {"b": NUMBER}}}}, {}, {"a": {"b": 5000}}),
        ({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": NUMBER}}, {}, {"a": 5000}),
        ({"properties": {"a": {"$ref": "#/$defs/n", "default": 7}}, "$defs": {"n": NUMBER}}, {}, {"a": 7}),
        ({"properties": {"a": {"allOf": [{"$ref": "#/$defs/n"}]}}, "$defs": {"n": NUMBER}}, {}, {"a": 5000}),
        (
            {"allOf": [{"properties": {"a": NUMBER}}, {"properties": {"b": NUMBER}}]},
            {"b": 1},
            {"a": 5000, "b": 1},
        ),
        ({"$ref": "#/$defs/o", "$defs": {"o": {"properties": {"a": NUMBER}}}}, {}, {"a": 5000}),
        (
            {"properties": {"l": {"items": {"properties": {"n": NUMBER}}}}},
            {"l": [{}, {"n": 1}]},
            {"l": [{"n": 5000}, {"n": 1}]},
        ),
        (
            {"properties": {"l": {"prefixItems": [{"properties": {"n": NUMBER}}]}}},
            {"l": [{}]},
            {"l": [{"n": 5000}]},
        ),
        ({"additionalProperties": {"properties": {"n": NUMBER}}}, {"x": {}}, {"x": {"n": 5000}}),
        (
            {
                "properties": {
                    "a": {"anyOf": [{"type": "object", "properties": {"n": NUMBER}}, {"type": "null"}]}
                }
            },
            {"a": {}},
            {"a": {"n": 5000}},
        ),
        ({"properties": {"a": {"anyOf": [NUMBER, {"type": "null"}], "default": None}}}, {}, {"a": None}),
        ({}, {"x": 1}, {"x": 1}),
    ],
)
def test_absent_members_get_their_defaults(
    schema: dict[str, Any], given: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = json.dumps(given)
    filled = complete_arguments(schema, given)
    assert filled == expected
    assert json.dumps(given) == before


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"properties": {"a": {"type": "integer", "default": "x"}}}, "default of 'a'"),
        ({"properties": {"a": {"type": "integer", "default": True}}}, "default of 'a'"),
        ({"properties": {"a": {"enum": [1, 2], "default": 3}}}, "'enum'"),
        ({"properties": {"a": {"anyOf": [{"type": "integer"}], "default": "x"}}}, "'anyOf'"),
        ({"properties": {"a": {"type": "money", "default": 1}}}, "unknown"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "'#/$defs/none'"),
        ({"properties": {"a": {"$ref": "https://example.com/schema"}}}, "does not contain"),
        ({"$ref": "#"}, "nested too deep"),
        ({"properties": [1]}, "not an object"),
        (
            {"allOf": [{"properties": {"a": NUMBER}}, {"properties": {"a": {"default": 1}}}]},
            "two different defaults for 'a'",
        ),
    ],
)
def test_defaults_that_cannot_be_filled_in_are_an_error(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(SchemaDefaultError, match=why.replace("$", r"\$")):
        complete_arguments(schema, {})


SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}, "amount": NUMBER}}


async def test_a_default_above_the_maximum_is_denied(bank: Bank) -> None:
    bank.tells({"name": "pay", "inputSchema": SCHEMA})
    bank.permit("pay", max_amount=100)
    async with bank.client() as client:
        denied = await client.call_tool("pay", {"to": "eve"})
        allowed = await client.call_tool("pay", {"to": "eve", "amount": 40})
    assert denied.is_error
    assert not allowed.is_error
    assert bank.ran() == [("pay", {"to": "eve", "amount": 40})]


async def test_the_server_gets_the_defaults_that_were_asked_about(bank: Bank) -> None:
    bank.tells({"name": "pay", "inputSchema": SCHEMA})
    bank.permit("pay")
    async with bank.client() as client:
        await client.call_tool("pay", {"to": "eve"})
    assert bank.ran() == [("pay", {"to": "eve", "amount": 5000})]
    [entry] = bank.owner.entries()
    assert (entry["context"]["to"], entry["context"]["amount"]) == ("eve", 5000)


async def test_a_tool_with_an_invalid_default_does_not_run(bank: Bank) -> None:
    bank.tells(
        {
            "name": "pay",
            "inputSchema": {"type": "object", "properties": {"amount": {"type": "integer", "default": "x"}}},
        }
    )
    bank.permit("pay")
    async with bank.client() as client:
        refused = await client.call_tool("pay", {})
    assert "the default of 'amount' in the input schema is 'x'" in text_of(refused)
    assert bank.ran() == []


async def test_a_key_that_the_gateway_refuses_ends_the_proxy(bank: Bank) -> None:
    proxy = bank.proxy(env={"TOOLGATE_API_KEY": "ak_" + "0" * 37})
    assert await proxy.ended() == 1
    assert "refuses these settings" in proxy.said
