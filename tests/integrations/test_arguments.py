"""The gateway is asked about what a tool's function receives, and the function receives exactly that."""

from __future__ import annotations

import itertools
import uuid
from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, model_validator

from toolgate import ConfigurationError
from toolgate_integrations._arguments import (
    AnnotatedSchema,
    ArgumentSchema,
    CustomSchema,
    InvalidArgumentsError,
    JsonSchema,
    ModelSchema,
    ReceivedCalls,
    SignatureSchema,
    probe_of,
    receive,
    receive_or_keep,
)


class Line(BaseModel):
    price: int = Field(3, alias="p")


class Pay(BaseModel):
    to: str
    amount: int = Field(5000, alias="amt")
    line: Line = Line(p=7)
    day: date = date(2026, 1, 2)


class PayByEither(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    amount: int = Field(5000, alias="amt")


class PayByChoice(BaseModel):
    amount: int = Field(5000, validation_alias=AliasChoices("amt", "sum"))


class PayInCents(BaseModel):
    amount: int

    @model_validator(mode="before")
    @classmethod
    def in_cents(cls, data: Any) -> Any:
        return {"amount": int(data["amount"]) * 100}


def pay(to: str, amount: Annotated[int, Field(alias="amt")] = 5000, day: date = date(2026, 1, 2)) -> None: ...


@pytest.mark.parametrize(
    ("schema", "sent", "received"),
    [
        (ModelSchema(Pay), {"to": "eve"}, {"to": "eve", "amount": 5000, "day": date(2026, 1, 2)}),
        (ModelSchema(Pay), {"to": "eve", "amount": 50, "amt": 5000}, {"amount": 5000}),
        (
            ModelSchema(Pay),
            {"to": "eve", "amt": "50", "day": "2026-03-04"},
            {"amount": 50, "day": date(2026, 3, 4)},
        ),
        (ModelSchema(PayByEither), {"amount": 50}, {"amount": 50}),
        (ModelSchema(PayByEither), {"amount": 50, "amt": 5000}, {"amount": 5000}),
        (ModelSchema(PayByChoice), {"sum": 50}, {"amount": 50}),
        (ModelSchema(PayByChoice), {"sum": 50, "amt": 60}, {"amount": 60}),
        (ModelSchema(PayInCents), {"amount": 5}, {"amount": 500}),
        (AnnotatedSchema(pay), {"to": "eve"}, {"amount": 5000, "day": date(2026, 1, 2)}),
        (AnnotatedSchema(pay), {"to": "eve", "amt": "50"}, {"amount": 50}),
        (AnnotatedSchema(pay, {"day"}), {"to": "eve"}, {"amount": 5000}),
        (SignatureSchema(pay), {"to": "eve", "amount": "50"}, {"amount": "50"}),
    ],
)
def test_function_receives_defaults_aliases_and_conversions(
    schema: ArgumentSchema, sent: dict[str, Any], received: dict[str, Any]
) -> None:
    found = receive(sent, schema)
    assert received.items() <= found.values.items()
    assert schema.received(found.to_send(found.values)) == found.values


def test_edited_values_are_sent_by_the_names_that_the_tool_is_validated_with() -> None:
    schema = ModelSchema(Pay)
    found = receive({"to": "eve", "amount": 50, "amt": 60}, schema)
    sent = found.to_send({**found.values, "amount": 25})
    assert schema.received(sent)["amount"] == 25


def test_edited_values_that_the_tool_would_change_are_refused() -> None:
    found = receive({"amount": 5}, ModelSchema(PayInCents))
    with pytest.raises(ConfigurationError, match="approver's edit cannot be passed to the tool"):
        found.to_send({"amount": 300})


def test_default_factory_is_called_once() -> None:
    class Keyed(BaseModel):
        key: str = Field(default_factory=lambda: uuid.uuid4().hex)

    schema = ModelSchema(Keyed)
    found = receive({}, schema)
    assert schema.received(found.to_send(found.values)) == found.values


def test_default_factory_is_called_once_for_a_call_that_is_asked_about_again() -> None:
    class Keyed(BaseModel):
        key: str = Field(default_factory=lambda: uuid.uuid4().hex)

    calls = ReceivedCalls()
    first = calls.of("pay", {}, ModelSchema(Keyed), "run", "call")
    assert calls.of("pay", {}, ModelSchema(Keyed), "run", "call") is first
    assert calls.of("pay", {"key": "x"}, ModelSchema(Keyed), "run", "call").values == {"key": "x"}
    assert calls.of("pay", {}, ModelSchema(Keyed), "other run", "call").values != first.values


def test_arguments_that_every_validation_changes_are_refused() -> None:
    counter = itertools.count()
    schema = CustomSchema(lambda sent: {**sent, "number": next(counter)})
    with pytest.raises(ConfigurationError, match="different values each time they are validated"):
        receive({"to": "eve"}, schema)


def test_validation_that_changes_after_the_decision_is_refused() -> None:
    prices = [1]
    found = receive({}, CustomSchema(lambda _: {"price": prices[0]}))
    prices[0] = 1000
    with pytest.raises(ConfigurationError, match="own validation would change the values"):
        found.to_send(found.values)


def test_arguments_that_are_changed_after_the_validation_are_not_sent() -> None:
    raw: dict[str, Any] = {"labels": ["harmless"]}
    found = receive(raw, SignatureSchema(lambda labels: None))
    raw["labels"][0] = "harmful"
    assert found.to_send(found.values) == {"labels": ["harmless"]}


def test_invalid_arguments_keep_the_error_of_the_tool() -> None:
    with pytest.raises(InvalidArgumentsError) as raised:
        receive({"to": "eve", "amt": "much"}, ModelSchema(Pay))
    assert isinstance(raised.value.__cause__, ValidationError)
    kept = receive_or_keep({"to": "eve", "amt": "much"}, ModelSchema(Pay))
    assert kept.to_send(kept.values) == {"to": "eve", "amt": "much"}


def test_probe_returns_the_arguments_and_runs_nothing() -> None:
    def tool(to: str, amount: int = 5, *more: int, **extra: int) -> None:
        raise AssertionError("it ran")

    assert probe_of(tool)("eve", 6, 7, note=8) == {"to": "eve", "amount": 6, "more": (7,), "note": 8}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "default": 5000},
        "order": {"$ref": "#/$defs/Order"},
        "maybe": {"anyOf": [{"$ref": "#/$defs/Order"}, {"type": "null"}]},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Order"}},
        "tree": {"$ref": "#/$defs/Tree"},
        "known": {"allOf": [{"$ref": "#/$defs/Order"}], "default": {}},
        "nothing": {"default": None},
    },
    "$defs": {
        "Order": {"type": "object", "properties": {"price": {"default": 7}, "name": {"type": "string"}}},
        "Tree": {"properties": {"child": {"$ref": "#/$defs/Tree"}, "size": {"default": 1}}},
        "Loop": {"$ref": "#/$defs/Loop"},
    },
}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, {"amount": 5000, "known": {"price": 7}, "nothing": None}),
        (
            {"amount": 5, "known": {"price": 1}, "nothing": 2},
            {"amount": 5, "known": {"price": 1}, "nothing": 2},
        ),
        ({"order": {"name": "x"}}, {"order": {"name": "x", "price": 7}}),
        ({"maybe": {}}, {"maybe": {"price": 7}}),
        ({"maybe": None}, {"maybe": None}),
        ({"lines": [{}, {"price": 2}]}, {"lines": [{"price": 7}, {"price": 2}]}),
        (
            {"tree": {"child": {"child": {}}}},
            {"tree": {"size": 1, "child": {"size": 1, "child": {"size": 1}}}},
        ),
        ({"order": "no object", "unknown": 1}, {"order": "no object", "unknown": 1}),
    ],
)
def test_defaults_of_a_json_schema_are_filled_in(sent: dict[str, Any], expected: dict[str, Any]) -> None:
    found = receive(sent, JsonSchema(SCHEMA))
    assert expected.items() <= found.values.items()
    assert found.to_send(found.values) == found.values


@pytest.mark.parametrize(
    "schema",
    [None, {}, {"properties": 3}, {"$ref": "#/$defs/Loop", "$defs": SCHEMA["$defs"]}, {"$ref": "other.json"}],
)
def test_schema_without_defaults_leaves_the_arguments_as_they_are(schema: dict[str, Any] | None) -> None:
    assert receive({"a": {"b": 1}}, JsonSchema(schema)).values == {"a": {"b": 1}}


def test_defaults_are_copies() -> None:
    first = receive({}, JsonSchema(SCHEMA)).values
    first["known"]["price"] = 1
    assert receive({}, JsonSchema(SCHEMA)).values["known"] == {"price": 7}
