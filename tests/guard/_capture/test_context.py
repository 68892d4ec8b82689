"""What an approver is shown, and what stands for the rest."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import ipaddress
import json
import math
import re
import subprocess
import sys
import time
import uuid
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate import ConfigurationError
from toolgate._capture import redaction
from toolgate._capture.binding import Binder
from toolgate._capture.context import Captured, Rules, capture, describe_error, fit
from toolgate._capture.jsontext import dumps, loads, size
from toolgate._capture.serializer import Fingerprinter

KEY = "ak_" + "q" * 37
HIDER = Fingerprinter(KEY)
LIMIT = 64 * 1024


def context(rules: Rules | None = None, **arguments: Any) -> dict[str, Any]:
    return capture(arguments, rules or Rules(), HIDER).context


def depth(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if items is None else 1 + max(map(depth, items), default=0)


# Surrogates too: they are legal in a Python string and refused by the gateway.
characters = st.characters(exclude_categories=())
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.text(characters)
    | st.binary()
    | st.datetimes()
    | st.dates()
    | st.timedeltas()
    | st.uuids(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.text(characters) | st.integers(0, 9),
            inner,
        )
        | st.tuples(inner, inner)
        | st.frozensets(st.integers() | st.text())
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(characters, min_size=1), anything))
def test_is_json_or_refused(arguments: dict[str, Any]) -> None:
    """The context is JSON the gateway accepts, with no NaN, NUL, surrogate or excess; other calls are refused."""
    try:
        found = capture(arguments, Rules(), HIDER).context
    except ConfigurationError as error:
        assert re.search("equal in JSON", str(error))  # noqa: PT017 - one of two outcomes
        return
    text = dumps(found)
    loads(text.encode("utf-8"))
    assert "\\u0000" not in text
    assert depth(found) <= 30
    assert size(found) <= LIMIT


@given(anything)
def test_equal_calls_are_equal(value: Any) -> None:
    """The same arguments give the same context, character for character, each time."""
    assert _outcome(value) == _outcome(value)


def _outcome(value: Any) -> str:
    try:
        return dumps(context(value=value))
    except ConfigurationError as error:
        return str(error)


@given(
    st.text(min_size=4),
    st.sampled_from(["password", "apiKey", "auth_token", "X-Authorization", "card_number"]),
)
def test_hides_by_name(secret: str, name: str) -> None:
    """A value under a secret's name is never in the context, at the top or inside, and is remembered."""
    rules = Rules()
    for arguments in ({name: secret}, {"outer": {name: secret}}, {"outer": [{"inner": {name: secret}}]}):
        captured = capture(arguments, rules, HIDER)
        assert HIDER.text(secret) in list(_objects(captured.context))
        assert secret in captured.hidden


def _objects(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(found for item in items for found in _objects(item))]


@given(st.integers(-(10**20), 10**20) | st.decimals(allow_nan=False, allow_infinity=False, places=2))
def test_amount_is_never_hidden(amount: int | Decimal) -> None:
    """An amount arrives as the number it is, whatever it looks like and however it is named."""
    rules = Rules(amount="token_price")
    assert context(amount=amount)["amount"] == amount
    found = context(rules, token_price=amount)
    assert found["amount"] == found["token_price"] == amount


def test_amount_that_looks_like_a_card() -> None:
    """An amount that passes for a card number is still compared, a card number elsewhere is hidden."""
    found = context(amount=4111111111111111, card=4111111111111111, note="4111 1111 1111 1111")
    assert found["amount"] == 4111111111111111
    assert "$digest" in found["card"]
    assert "$digest" in found["note"]


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_keep_their_digits(value: Decimal) -> None:
    """A decimal is sent as a JSON number with exactly its value, never through a binary float."""
    assert json.loads(dumps(context(n=value)), parse_float=Decimal, parse_int=Decimal)["n"] == value


def test_text_cannot_pass_for_a_number() -> None:
    """A string that looks like a decimal or a placeholder beside a decimal stays a string."""
    assert dumps(context(a=Decimal("1.50"), b="1.50", c="Decimal('1.50')")) == (
        '{"a":1.50,"b":"1.50","c":"Decimal(\'1.50\')"}'
    )


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Order:
    charge: str
    api_key: str = "sesame-open"


class Model(pydantic.BaseModel):
    charge: str
    password: str = "sesame-open"
    inner: dict[str, int] = pydantic.Field(default_factory=dict, exclude=True)


class Point(NamedTuple):
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (True, True),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (Decimal("-Infinity"), "-Infinity"),
        (Decimal("sNaN"), "NaN"),
        (dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC), "2026-01-02T03:04:05+00:00"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (PurePosixPath("/a/b"), "/a/b"),
        ({3, 1, 2}, [1, 2, 3]),
        ((1, "a"), [1, "a"]),
        (
            {2: "a", None: "c", True: "d", dt.date(2026, 1, 2): "e"},
            {"2": "a", "true": "d", "null": "c", "2026-01-02": "e"},
        ),
        (ipaddress.ip_address("::1"), "::1"),
        (pydantic.HttpUrl("https://a.example/b"), "https://a.example/b"),
        (Point(1, 2), [1, 2]),
        (dt.timedelta(days=1), "1 day, 0:00:00"),
        (bytearray(b"raw"), HIDER.binary(b"raw")),
        ({"$digest": "spoofed"}, {"$$digest": "spoofed"}),
        (b"raw", HIDER.binary(b"raw")),
        ("nul\x00", HIDER.text("nul\x00")),
        ("\ud800", HIDER.text("\ud800")),
        (pydantic.SecretStr("sesame-open"), HIDER.text("sesame-open")),
        (Order("ch_1"), {"charge": "ch_1", "api_key": HIDER.text("sesame-open")}),
        (
            Model(charge="c", inner={"n": 1}),
            {"charge": "c", "password": HIDER.text("sesame-open"), "inner": {"n": 1}},
        ),
    ],
)
def test_values(value: Any, expected: Any) -> None:
    """Each kind of value has its form, with secrets hidden also inside dataclasses and models."""
    assert context(value=value)["value"] == expected


class Line(pydantic.BaseModel):
    product: str
    price: Decimal
    colours: tuple[Colour, ...] = ()


class Basket(pydantic.BaseModel):
    lines: list[Line]
    by_name: dict[str, Line] = {}
    placed: dt.date = dt.date(2026, 1, 2)
    number: uuid.UUID = uuid.UUID(int=7)
    folder: PurePosixPath = PurePosixPath("/a")
    order: Order | None = None
    note: str | None = None


class Lines(pydantic.RootModel[list[Line]]): ...


@pytest.mark.parametrize(
    "made",
    [
        Basket(lines=[Line(product="lamp", price=Decimal("1.50"), colours=(Colour.RED,))]),
        Basket(lines=[], by_name={"a": Line(product="b", price=Decimal(2))}, note="n"),
        Lines([Line(product="lamp", price=Decimal("0.10"))]),
    ],
)
def test_models_are_shown_as_pydantic_would(made: pydantic.BaseModel) -> None:
    """A model is what pydantic makes of it as JSON, but for its decimals, which are numbers with their digits."""

    def texts(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: texts(item) for name, item in value.items()}
        return [texts(item) for item in value] if isinstance(value, list) else value and str(value)

    assert texts(context(value=made)["value"]) == texts(made.model_dump(mode="json"))


def test_deep_values_end_in_a_digest() -> None:
    deep: Any = "end"
    for _ in range(80):
        deep = [deep]
    found = context(deep=deep)
    assert depth(found) <= 30
    assert '"$digest"' in dumps(found)


@pytest.mark.parametrize("depth", [20, 40])
def test_secrets_of_a_value_that_is_cut_stay_out_of_messages(depth: int) -> None:
    value: Any = {"password": "hunter22", "token": pydantic.SecretStr("hunter23")}
    for _ in range(depth):
        value = [value]
    for argument in (value, [value, [0] * 5_000]):
        message = describe_error(ValueError("not hunter22 or hunter23"), captured(argument).hidden)["message"]
        assert message == "not [redacted] or [redacted]"


def test_very_many_secrets_leave_no_message() -> None:
    began = time.process_time()
    found = captured([{"password": f"hunter{number}"} for number in range(200_000)])
    assert time.process_time() - began < 5
    assert describe_error(ValueError("not hunter199999"), found.hidden)["message"] == "[redacted]"


def captured(value: Any, rules: Rules | None = None) -> Captured:
    return capture({"value": value}, rules or Rules(), HIDER)


def test_long_values() -> None:
    """A value over 8 KiB is cut to a digest, and a context over the limit loses its largest first."""
    found = context(long="x" * 9000, amount=5, **{f"n{i}": "y" * 8000 for i in range(20)})
    assert found["long"] == HIDER.text("x" * 9000)
    assert found["amount"] == 5
    assert size(found) <= LIMIT
    assert any(value == "y" * 8000 for value in found.values())


def test_very_many_values() -> None:
    """Thousands of small arguments end as one digest beside the amount."""
    found = context(amount=5, **{f"n{i}": i for i in range(20_000)})
    assert found.keys() == {"amount", "$cut"}
    changed = context(amount=5, **{f"n{i}": i + (i == 7) for i in range(20_000)})
    assert found["$cut"] != changed["$cut"]


@pytest.mark.parametrize(
    ("one", "other"),
    [("b", b"b"), ("1", 1), ({"$digest": "x"}, "x"), ([1], "[1]"), (True, 1)],
)
def test_hidden_values_of_different_kinds_differ(one: Any, other: Any) -> None:
    """An excluded argument is bound with its kind: 1, "1" and b"1" are not the same."""
    rules = Rules(exclude={"body"})
    assert context(rules, body=one) != context(rules, body=other)


def test_a_visible_copy_of_a_digest_does_not_pass_for_it() -> None:
    """A mapping written like a digest differs from the hidden value that digest belongs to."""
    hidden = context(value="x" * 9000)
    assert context(value=hidden["value"]) != hidden


def test_a_name_does_not_pass_for_a_hidden_one() -> None:
    """A mapping whose name is written like a hidden name's digest is another call."""
    hidden = context(value={"4111 1111 1111 1111": 1})
    (label,) = hidden["value"]
    for copied in (label, label.removeprefix("$")):
        assert context(value={copied: 1}) != hidden


def test_stable_across_processes() -> None:
    """Another process with the same key makes the same context, another key another."""
    code = (
        "from toolgate._capture.context import *; from toolgate._capture.serializer import Fingerprinter; from toolgate._capture.jsontext import dumps;"
        f"print(dumps(capture({{'s': {{'a', 'b', 'c'}}, 'password': 'hunter22'}}, Rules(), Fingerprinter({KEY!r})).context))"
    )
    expected = dumps(context(s={"a", "b", "c"}, password="hunter22"))
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        )
        assert done.stdout.strip() == expected
    other = capture({"password": "hunter22"}, Rules(), Fingerprinter(KEY[:-1] + "r")).context
    assert other["password"] != json.loads(expected)["password"]


def test_derivation() -> None:
    """The digest's key is HKDF-SHA256 of the API key, so that others can compute it as well."""
    import hmac

    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(SHA256(), 32, salt=None, info=b"toolgate capture v1").derive(KEY.encode())
    digest = hmac.digest(key, b"text\x00sesame", "sha256").hex()
    assert HIDER.text("sesame") == {"$digest": f"hmac-sha256:{digest}", "bytes": 6}


def test_options() -> None:
    """Excluded arguments are digests, ignored ones absent, redacted names hidden wherever they are."""
    rules = Rules(exclude={"body"}, ignore={"session"}, redact={"Iban"})
    captured = capture(
        {"body": "the text", "session": "s-12345", "to": {"iban": "DE00"}, "password": None}, rules, HIDER
    )
    assert captured.context == {
        "body": HIDER.text("the text"),
        "to": {"iban": HIDER.text("DE00")},
        "password": None,
    }
    assert captured.hidden == ("DE00", "s-12345", "the text")


def tool(a: int, *rest: int, cents: int = 0, **more: Any) -> None: ...


def plain(a: int, amount: int = 0, cents: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (plain, {"exclude": {"b"}}, "exclude names 'b'"),
        (plain, {"ignore": ["b"]}, "ignore names 'b'"),
        (plain, {"amount": "price"}, "amount names 'price'"),
        (plain, {"amount": "cents"}, "also has an argument 'amount'"),
        (tool, {"amount": "rest"}, "amount names 'rest'"),
        (tool, {"amount": "unknown"}, "amount names 'unknown'"),
        (tool, {"exclude": {"amount"}}, "exclude contains 'amount'"),
        (tool, {"amount": "cents", "exclude": {"cents"}}, "exclude contains 'cents'"),
        (tool, {"amount": "cents", "ignore": {"cents"}}, "ignore contains 'cents'"),
        (plain, {"redact": {"amount"}}, "redact contains 'amount'"),
        (plain, {"exclude": "body"}, "collection of names"),
        (plain, {"redact": [1]}, "collection of names"),
    ],
)
def test_wrong_options(function: Any, options: dict[str, Any], message: str) -> None:
    """Options that name nothing, or hide the amount, are refused with the option's and argument's name."""

    def decorate() -> None:
        Rules(**options).fits(Binder(function), function)

    with pytest.raises(ConfigurationError, match=message):
        decorate()


def test_amount_in_extra_keywords_stays_visible() -> None:
    """An amount given through **kwargs is compared even when all of them are ignored or excluded."""
    for rules in (Rules(exclude={"more"}), Rules(ignore={"more"})):
        found = context(rules.fits(Binder(tool), tool), a=1, amount=5, other=7)
        assert found["amount"] == 5
        assert found.get("other") != 7


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (12345678, "cannot use 12345678"),
        (b"hunter2secret", "cannot use b'hunter2secret'"),
        (b"hunter2secret", "cannot use hunter2secret"),
        ("abc", "cannot use abc"),
        (7, "cannot use 7"),
        ("hun'ter2\"x\\hunter2", "cannot use " + repr("hun'ter2\"x\\hunter2")),
        ("line\nhunter2", "cannot use " + json.dumps("line\nhunter2")),
        ("it's hunter2", 'cannot use {"x": "it\'s hunter2"} ' + repr("it's hunter2\"")),
        ({"hunter2secret": 1}, "no key hunter2secret"),
        ({"k": {"inner": b"hunter2secret"}}, "cannot use hunter2secret"),
        (Order("hunter2secret"), "cannot use hunter2secret"),
        (pydantic.SecretStr("hunter2secret"), "cannot use hunter2secret"),
        (list(range(20_000)), "cannot use 12345"),
        (Decimal("1234.50"), "cannot use 1234.50"),
    ],
)
def test_hidden_values_stay_out_of_messages(value: Any, message: str) -> None:
    """No form in which a hidden value may be written remains in an error message."""
    told = describe_error(ValueError(message), captured(value, Rules(exclude={"value"})).hidden)
    assert told["type"] == "ValueError"
    left = str(told["message"])
    assert "hunter2" not in left
    assert "[redacted]" in left
    assert not set("1234567") & set(left)
    assert "abc" not in left


def test_long_names_are_not_kept() -> None:
    """What is remembered of names does not grow with them."""
    before = redaction._is_secret_name.cache_info().currsize
    context(**{"q" * 300 + str(number): number for number in range(10)})
    assert redaction._is_secret_name.cache_info().currsize <= before + 1


def count(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(count(one) for one in inside)


def test_many_small_values_become_a_digest() -> None:
    """The argument of most values is bound by its digest; the others stay as they are."""
    context: Any = {"amount": 5, "vector": [1] * 6_000, "matrix": [[1] * 10] * 100, "to": "ann"}
    fitted: Any = fit(context, HIDER)
    assert set(fitted["vector"]) == {"$digest", "bytes"}
    assert (fitted["amount"], fitted["matrix"], fitted["to"]) == (5, context["matrix"], "ann")
    assert fitted != fit({**context, "vector": [1] * 5_999 + [2]}, HIDER)


def test_many_arguments_become_one_digest() -> None:
    """Where each is small the amount stays, and one digest stands for the rest."""
    fitted: Any = fit({"amount": 5, **{f"a{number}": 1 for number in range(6_000)}}, HIDER)
    assert set(fitted) == {"amount", "$cut"}


def test_what_the_gateway_reads_stays() -> None:
    """Up to a few thousand values nothing is replaced."""
    context: Any = {"vector": [1] * 4_000}
    assert fit(context, HIDER) == context
    assert count(context) < 4_500
