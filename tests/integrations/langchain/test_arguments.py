"""The gateway is asked about what the function of a LangChain tool receives."""

import uuid
from typing import Annotated, Any

import pytest
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from langgraph.prebuilt import InjectedState, ToolRuntime
from pydantic import AliasChoices, BaseModel, Field

from toolgate_integrations._arguments import InvalidArgumentsError, receive
from toolgate_integrations.langchain import schema_of


@tool
def pay(to: str, amount: int = 5000) -> str:
    """Pay."""
    return to


@tool
def pay_with_context(
    to: str,
    runtime: ToolRuntime,
    state: Annotated[dict[str, Any], InjectedState],
    call_id: Annotated[str, InjectedToolCallId],
    amount: int = 5000,
) -> str:
    """Pay."""
    return to


class Payment(BaseModel):
    to: str
    amount: int = Field(5000, alias="amt")
    code: int = Field(7, validation_alias=AliasChoices("pin_code", "code"))
    key: str = Field(default_factory=lambda: uuid.uuid4().hex)


def pay_by_alias(to: str, amount: int, code: int, key: str, note: str = "none") -> str:
    return to


class Payer(BaseTool):
    name: str = "payer"
    description: str = "Pay."

    def _run(self, to: str, amount: int = 5000) -> str:
        return to


ALIASED = StructuredTool.from_function(pay_by_alias, name="pay", description="Pay.", args_schema=Payment)
REMOTE = StructuredTool(
    name="pay",
    description="Pay.",
    func=lambda **given: str(given),
    args_schema={"type": "object", "properties": {"to": {}, "amount": {"type": "integer", "default": 5000}}},
)


@pytest.mark.parametrize(
    ("of", "sent", "received"),
    [
        (pay, {"to": "eve"}, {"to": "eve", "amount": 5000}),
        (pay, {"to": "eve", "amount": "50"}, {"to": "eve", "amount": 50}),
        (pay_with_context, {"to": "eve", "state": {"a": 1}}, {"to": "eve", "amount": 5000}),
        (
            ALIASED,
            {"to": "eve", "amount": 50, "amt": 5000, "code": 1},
            {"amount": 5000, "code": 1, "note": "none"},
        ),
        (ALIASED, {"to": "eve"}, {"amount": 5000, "code": 7}),
        (Payer(), {"to": "eve"}, {"to": "eve", "amount": 5000}),
        (REMOTE, {"to": "eve"}, {"to": "eve", "amount": 5000}),
    ],
)
def test_function_receives_what_is_asked_about(
    of: Any, sent: dict[str, Any], received: dict[str, Any]
) -> None:
    function = getattr(of, "func", None) or of._run
    schema = schema_of(of, function)
    found = receive(sent, schema)
    assert received.items() <= found.values.items()
    assert found.values.keys().isdisjoint({"state", "runtime", "call_id"})
    assert schema.received(found.to_send(found.values)) == found.values


def test_invalid_arguments_are_told_from_valid_ones() -> None:
    with pytest.raises(InvalidArgumentsError):
        receive({"amount": "much"}, schema_of(pay, None))
