"""What a decoration says about its arguments: only included ones, patterns, and what is computed of them."""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict, UserDict
from decimal import Decimal
from typing import Any

import pydantic
import pytest

from toolgate import ConfigurationError
from toolgate._capture.arguments import CallArguments, Snapshot
from toolgate._capture.binding import Binder
from toolgate._capture.context import Captured, Rules, capture, describe_error
from toolgate._capture.jsontext import dumps
from toolgate._capture.serializer import Fingerprinter

HIDER = Fingerprinter("ak_" + "q" * 37)
IBAN = re.compile("DE[0-9]{20}")


def context(rules: Rules, **arguments: Any) -> dict[str, Any]:
    return captured(rules, **arguments).context


def captured(rules: Rules, **arguments: Any) -> Captured:
    return capture(arguments, rules, HIDER, rules.derive(arguments))


def order(quantity: int, price: Decimal, note: str = "", **more: Any) -> None: ...


def plain(a: int, b: int = 0) -> None: ...


def test_include() -> None:
    """Only what is included is shown; the rest, the amount apart, is bound by its digest and shown to nobody."""
    rules = Rules(include={"to"})
    shown = context(rules, to="a@b.c", body="hello", amount=5, none=None)
    assert shown == {"to": "a@b.c", "body": HIDER.text("hello"), "amount": 5, "none": None}
    assert context(rules, to="a@b.c", body="hellO", amount=5, none=None) != shown
    assert context(Rules(include=()), to="a")["to"] == HIDER.text("a")


def test_include_never_reveals() -> None:
    """A secret's name or form stays hidden, included or not."""
    found = context(Rules(include={"token", "text"}), token="sesame-open", text="Bearer abcdefgh12345")
    assert "$digest" in found["token"]
    assert "$digest" in found["text"]


def test_include_shows_the_amount_and_what_is_computed() -> None:
    """What is compared, and what a function returns for the approver, is shown without being included."""
    rules = Rules(include=(), amount="cents", context=lambda cents: {"euros": cents / 100})
    found = context(rules, cents=250)
    assert found == {"cents": 250, "amount": 250, "euros": 2.5}


@pytest.mark.parametrize("option", ["include", "exclude", "ignore"])
def test_the_name_of_all_other_keywords_stands_for_each(option: str) -> None:
    """Naming the `**more` parameter names every keyword it takes, and none it does not."""
    options: dict[str, Any] = {option: {"more"}}
    rules = Rules(**options).fits(Binder(order), order)
    found = context(rules, quantity=1, price=2, x="hello")
    hidden = {"exclude": {"x"}, "include": {"quantity", "price"}, "ignore": set[str]()}[option]
    assert {name for name, value in found.items() if isinstance(value, dict)} == hidden
    assert ("x" in found) == (option != "ignore")


def test_rules_of_one_decoration_do_not_mix_functions() -> None:
    """One decorator on two functions knows each one's own parameters."""
    rules = Rules(exclude={"more"})

    def named(more: int, x: int) -> None: ...

    fitted = rules.fits(Binder(order), order)
    rules.fits(Binder(named), named)
    assert "$digest" in context(fitted, x=7)["x"]


@pytest.mark.parametrize(
    "value",
    [
        "DE" + "1" * 20,
        f"pay DE{'1' * 20} today",
        [f"DE{'1' * 20}"],
        {"deep": {f"DE{'1' * 20}": 1}},
        ("a", {f"DE{'1' * 20}"}),
    ],
)
def test_patterns(value: Any) -> None:
    """A text or name in which a pattern is found is hidden whole, wherever it is, and still bound."""
    rules = Rules(redact={"other", IBAN})
    found = captured(rules, value=value)
    assert "DE1" not in dumps(found.context)
    other = eval(repr(value).replace("DE1", "DE2"))
    assert captured(rules, value=other).context != found.context
    assert describe_error(ValueError(f"no DE{'3' * 20}"), found.hidden, found.patterns)["message"] == (
        "no [redacted]"
    )


@pytest.mark.parametrize("value", [123456789, Decimal("123456789.0"), 123456789.5, {"n": -123456789}])
def test_patterns_of_numbers(value: Any) -> None:
    """A number is looked at as JSON writes it; an amount never is."""
    rules = Rules(redact=[re.compile("123456789")])
    assert "123456789" not in dumps(context(rules, value=value))
    assert context(rules, amount=123456789) == {"amount": 123456789}


def test_amount_is_computed() -> None:
    """A function is given the arguments it has parameters for, by name; what it returns is compared and bound."""
    rules = Rules(amount=lambda quantity, price, missing=7: quantity * price).fits(Binder(order), order)
    found = context(rules, quantity=3, price=Decimal("1.10"), note="n")
    assert dumps(found) == '{"quantity":3,"price":1.10,"note":"n","amount":3.30}'


@dataclasses.dataclass
class Payload:
    to: str
    amount: Decimal
    password: str = "sesame-open"


class Model(pydantic.BaseModel):
    to: str
    amount: Decimal
    password: str = "sesame-open"


@pytest.mark.parametrize(
    "payload",
    [
        {"to": "a", "amount": Decimal("1.50"), "password": "sesame-open"},
        Payload("a", Decimal("1.50")),
        Model(to="a", amount=Decimal("1.50")),
        OrderedDict(to="a", amount=Decimal("1.50"), password="sesame-open"),
    ],
    ids=["dict", "dataclass", "model", "mapping"],
)
def test_context_by_name(payload: Any) -> None:
    """The members of the named argument stand beside it: an amount among them is compared, a secret hidden."""
    rules = Rules(context="payload")
    found = context(rules, payload=payload)
    assert found["amount"] == Decimal("1.50")
    assert found["to"] == "a"
    assert found["password"] == HIDER.text("sesame-open")
    assert found.keys() == {"payload", "to", "amount", "password"}
    assert context(rules, payload=None) == {"payload": None}


def test_context_is_computed() -> None:
    """What a function returns is shown beside the arguments, secrets hidden, also where `**more` takes it all."""
    rules = Rules(context=lambda **all_of_it: {"names": sorted(all_of_it), "api_key": "sesame-open"})
    found = context(rules, a=1, b=2)
    assert found == {"a": 1, "b": 2, "names": ["a", "b"], "api_key": HIDER.text("sesame-open")}


def broken(quantity: int) -> int:
    raise ValueError("sesame-open")


async def later(quantity: int) -> int:
    return quantity


def by_position(quantity: int, /) -> int:
    return quantity


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (plain, {"include": {"c"}}, "include names 'c'"),
        (plain, {"include": "a"}, "collection of names"),
        (plain, {"include": {"a"}, "exclude": {"a"}}, "'a' is in include"),
        (plain, {"include": {"a"}, "ignore": {"a"}}, "'a' is in include"),
        (plain, {"redact": [re.compile(b"x")]}, "patterns of text"),
        (plain, {"redact": re.compile("x")}, "collection of names"),
        (plain, {"amount": 5}, "a function"),
        (plain, {"context": {"a": 1}}, "a function"),
        (plain, {"context": "c"}, "context names 'c'"),
        (plain, {"amount": lambda c: c}, "required parameter 'c'"),
        (plain, {"context": lambda c: c}, "required parameter 'c'"),
        (plain, {"amount": later}, "asynchronous"),
        (plain, {"amount": by_position}, "positional-only"),
        (plain, {"amount": lambda *all_of_it: 1}, "positional-only"),
        (plain, {"amount": type}, "no readable signature"),
        (lambda amount: None, {"amount": lambda amount: amount}, "also has an argument 'amount'"),
        (plain, {"amount": lambda a: a, "exclude": {"amount"}}, "exclude contains 'amount'"),
    ],
)
def test_wrong_options(function: Any, options: dict[str, Any], message: str) -> None:
    """What cannot work is refused at decoration, naming the option."""

    def decorate() -> None:
        Rules(**options).fits(Binder(function), function)

    with pytest.raises(ConfigurationError, match=message):
        decorate()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"amount": broken}, "amount='broken' raised ValueError"),
        ({"context": broken}, "context='broken' raised ValueError"),
        ({"amount": lambda quantity: "5"}, "returned 'str'; return a number"),
        ({"amount": lambda quantity: None}, "returned 'NoneType'; return a number"),
        ({"amount": lambda quantity: True}, "returned 'bool'; return a number"),
        ({"amount": lambda missing: 1}, "needs the argument 'missing'"),
        ({"context": lambda quantity: [1]}, "returned 'list'; return a mapping"),
        ({"context": lambda quantity: {1: 2}}, "returned 'dict'; return a mapping"),
        ({"context": lambda quantity: {"quantity": 2}}, "returned 'quantity', but the call already has"),
        ({"context": lambda quantity: {"amount": 2}, "amount": "quantity"}, "returned 'amount'"),
        ({"context": "quantity"}, "of type 'int'"),
        (
            {"context": lambda quantity: {"it": object()}},
            "context= gives 'it', which is of type 'builtins.object'",
        ),
        ({"amount": "missing"}, "amount is 'missing'"),
    ],
)
def test_what_cannot_be_computed_refuses_the_call(options: dict[str, Any], message: str) -> None:
    """A function that raises, or returns what cannot be meant, is an error that tells no value."""
    with pytest.raises(ConfigurationError, match=re.escape(message)) as refused:
        context(Rules(**options), quantity=3)
    assert "sesame" not in str(refused.value)


def test_a_block_that_has_an_amount_already() -> None:
    """What is compared is never a matter of which came last."""
    with pytest.raises(ConfigurationError, match="already contains 'amount'"):
        context(Rules(amount="cents"), cents=1, amount=2)


def test_an_edit_has_to_say_what_the_function_would() -> None:
    """After an edit the amount is computed again; an edit that would make it refuse is put back."""

    def amount(quantity: int) -> int:
        if quantity > 9:
            raise ValueError("too many")
        return quantity * 2

    binder = Binder(order)
    rules = Rules(amount=amount).fits(binder, order)
    bound = binder.bind((3, 1), {}, drop_first=False, reserved=rules.reserved)
    arguments = CallArguments(
        binder, (3, 1), {}, bound, drop_first=False, rules=rules, snapshot=Snapshot(rules, HIDER)
    )
    asked = arguments.capture().context
    assert arguments.edit(asked, {**asked, "quantity": 5, "amount": 10}) is None
    assert arguments.capture().context == {**asked, "quantity": 5, "amount": 10}
    why = arguments.edit(asked, {**asked, "quantity": 10, "amount": 20})
    assert why is not None
    assert "raised ValueError" in why
    assert arguments.capture().context == asked


class Unreadable(UserDict[str, int]):
    """A mapping that cannot be read."""

    def __iter__(self) -> Any:
        raise RuntimeError("the connection is closed")


def test_a_context_that_cannot_be_read_refuses() -> None:
    """Whatever a mapping does when it is read, the error is one of ours."""
    with pytest.raises(ConfigurationError, match="context names 'order'"):
        Rules(context="order").derive({"order": Unreadable(a=1)})
