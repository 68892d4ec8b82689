"""The gateway is asked about what a function tool of the OpenAI Agents SDK receives."""

import uuid
from typing import Annotated, Any

import pytest
from agents import FunctionTool, RunContextWrapper, function_tool
from pydantic import BaseModel, Field

from toolgate_integrations._arguments import InvalidArgumentsError, receive
from toolgate_integrations.openai_agents.internals import schema_of


class Order(BaseModel):
    price: int = Field(3, alias="p")


@function_tool(strict_mode=False)
def pay(context: RunContextWrapper[Any], to: str, order: Order, amount: int = 5000) -> str:
    """Pay."""
    return to


@function_tool(strict_mode=False)
def pay_by_alias(
    to: str,
    amount: Annotated[int, Field(alias="amt")] = 5000,
    key: str = Field(default_factory=lambda: uuid.uuid4().hex),
) -> str:
    """Pay."""
    return to


async def invoke(context: Any, text: str) -> str:
    return text


OWN = FunctionTool(
    "pay",
    "Pay.",
    {"type": "object", "properties": {"to": {}, "amount": {"default": 5000}}},
    invoke,
    strict_json_schema=False,
)


@pytest.mark.parametrize(
    ("tool", "sent", "received"),
    [
        (pay, {"to": "eve", "order": {}}, {"to": "eve", "order": Order(), "amount": 5000}),
        (pay, {"to": "eve", "order": {"p": "9"}, "amount": "50"}, {"order": Order(p=9), "amount": 50}),
        (pay_by_alias, {"to": "eve", "amount": 50, "amt": 5000}, {"to": "eve", "amount": 5000}),
        (OWN, {"to": "eve"}, {"to": "eve", "amount": 5000}),
    ],
)
def test_function_receives_what_is_asked_about(
    tool: FunctionTool, sent: dict[str, Any], received: dict[str, Any]
) -> None:
    schema = schema_of(tool)
    found = receive(sent, schema)
    assert received.items() <= found.values.items()
    assert schema.received(found.to_send(found.values)) == found.values
    assert "context" not in found.values


def test_invalid_arguments_are_told_from_valid_ones() -> None:
    with pytest.raises(InvalidArgumentsError):
        receive({"to": "eve", "order": {}, "amount": "much"}, schema_of(pay))
