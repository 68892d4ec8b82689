"""What holds of every context: no secret is in it, and no two different calls look the same."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import pydantic
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolgate import ConfigurationError
from toolgate._capture.binding import Binder
from toolgate._capture.context import Rules, capture, describe_error
from toolgate._capture.jsontext import dumps, exact, loads
from toolgate._capture.serializer import Fingerprinter

HIDER = Fingerprinter("ak_" + "q" * 37)
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"


def text_of(alphabet: str, size: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=size, max_size=size)


@st.composite
def cards(draw: st.DrawFn) -> str:
    """A card number of one of the issuers, with the digit that makes it valid, grouped or not."""
    prefix, length = draw(
        st.sampled_from([
            ("4", 13), ("4", 16), ("4", 19), ("51", 16), ("2221", 16), ("34", 15), ("37", 15), ("36", 14),
            ("3528", 16), ("6011", 16), ("65", 16), ("62", 17), ("6759", 18), ("5018", 13),
        ])
    )  # fmt: skip
    digits = prefix + draw(text_of("0123456789", length - len(prefix) - 1))
    total = sum(sum(divmod(int(digit) * (2 - index % 2), 10)) for index, digit in enumerate(reversed(digits)))
    number = digits + str(-total % 10)
    space = draw(st.sampled_from(["", " ", "-", "\u00a0"]))
    return space.join(number[at : at + 4] for at in range(0, len(number), 4))


SECRETS = st.one_of(
    cards(),
    text_of("abcdefghijklmnopqrstuvwxyz0123456789", 37).map("ak_".__add__),
    text_of("abcdefghijklmnopqrstuvwxyz0123456789", 35).map("test_".__add__),
    text_of(LETTERS, 24).map("sk-".__add__),
    text_of(LETTERS, 30).map("ghp_".__add__),
    text_of("ABCDEFGHIJKLMNOP234567", 16).map("AKIA".__add__),
    text_of(LETTERS, 20).map("Bearer ".__add__),
    text_of(LETTERS, 20).map("--password ".__add__),
    text_of(LETTERS, 16).map("X-Api-Key: 7".__add__),
    text_of(LETTERS, 16).map("password=".__add__),
    st.tuples(text_of(LETTERS, 12), text_of(LETTERS, 12)).map(lambda two: f"eyJ{two[0]}.eyJ{two[1]}.sig"),
    text_of(LETTERS, 30).map(
        lambda key: f"-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----"
    ),
)  # fmt: skip
NAMES = st.sampled_from(
    [
        "password",
        "apiKey",
        "auth_token",
        "X-Authorization",
        "card_number",
        "db_passwd",
        "clientSecret",
        "cookie",
    ]
)


@dataclasses.dataclass
class Data:
    value: Any


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    value: Any


def wrapped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda value: [1, value]),
        inner.map(lambda value: (value,)),
        inner.map(lambda value: {"n": 1, "deep": value}),
        inner.map(Data),
        inner.map(lambda value: Model(value=value)),
    )


IN_TEXT = st.tuples(
    st.sampled_from(["", "pay ", "with: ", "2 ", "(", "\n", "Ü "]),
    SECRETS,
    st.sampled_from(["", " please", " 12/27", ").", "\n", " 007"]),
).map("".join)
BY_FORM = st.recursive(
    IN_TEXT | SECRETS.map(lambda text: {text: 1}) | SECRETS.map(lambda text: {text}), wrapped, max_leaves=4
)
NAMED = st.tuples(NAMES, text_of(LETTERS, 14) | st.integers(10**14, 10**15).map(lambda n: n * 11 + 7))
BY_NAME = st.recursive(
    st.one_of(
        NAMED.map(lambda pair: {pair[0]: pair[1]}),
        NAMED.map(lambda pair: {pair[0]: [{"x": pair[1]}]}),
        NAMED.map(lambda pair: [pair]),
        NAMED.map(lambda pair: Model(value=1, **{pair[0]: pair[1]})),
    ),
    wrapped,
    max_leaves=4,
)


def leaves(value: Any) -> list[str]:
    """Every long text and number in a value, whatever it is made of."""
    if dataclasses.is_dataclass(value):
        return leaves(vars(value))
    if isinstance(value, pydantic.BaseModel):
        return leaves(dict(value))
    if isinstance(value, dict):
        return [leaf for pair in value.items() for leaf in (*leaves(pair[0]), *leaves(pair[1]))]
    if isinstance(value, (list, tuple, set)):
        return [leaf for item in value for leaf in leaves(item)]
    return [str(value)] if len(str(value)) >= 13 else []


def kept(secret: str, told: str) -> bool:
    """Whether the telling part of a secret is in a text."""
    words = [word for word in secret.replace("-----BEGIN PRIVATE KEY-----", "").split() if len(word) >= 12]
    return any(word in told or dumps(word)[1:-1] in told for word in words or [secret.strip()])


@given(value=BY_FORM)
def test_no_secret_of_a_known_form_is_shown(value: Any) -> None:
    """Wherever it is nested and whatever stands around it, a secret's form is in no context."""
    found = dumps(capture({"value": value}, Rules(), HIDER).context)
    assert not [secret for secret in leaves(value) if kept(secret, found)]


@given(value=BY_NAME)
def test_no_secret_of_a_known_name_is_shown(value: Any) -> None:
    """Wherever it is nested, what stands under a secret's name is in no context, and in no error message."""
    captured = capture({"value": value}, Rules(), HIDER)
    names = {"password", "apiKey", "auth_token", "X-Authorization", "card_number", "clientSecret"}
    secrets = [leaf for leaf in leaves(value) if leaf not in names]
    assert secrets
    assert not [secret for secret in secrets if secret in dumps(captured.context)]
    message = str(describe_error(ValueError(f"got {secrets[0]}"), captured.hidden)["message"])
    assert secrets[0] not in message


@given(SECRETS)
def test_no_secret_of_a_known_form_is_told_in_a_message(secret: str) -> None:
    """An error that tells a secret nobody passed is recorded without it."""
    message = str(describe_error(ValueError(f"bad {secret} there"), ())["message"])
    assert not kept(secret, message)


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1111 12/27",
        "2 4111111111111111",
        "1 x 4111-1111-1111-1111, 3 x other",
        "card 3782 822463 10005 1234",
        "62" + "0" * 13 + "3 and 4222222222222",
    ],
)
def test_cards_among_other_numbers(text: str) -> None:
    """A card number is found between other numbers."""
    assert "$digest" in dumps(capture({"text": text}, Rules(), HIDER).context)


@pytest.mark.parametrize(
    "value",
    [
        "order 1763670000000 of 2026-11-21",
        "ORD-1234567890123456",
        "4111111111111112",
        "x4111111111111111y",
        4111111111111112,
        "4 1 1 1 1 items of 20000000",
        3.4111111111111111,
        "tel +49 30 1234 5678 9012",
        1763670000000000000,
    ],
)
def test_innocent_numbers(value: Any) -> None:
    """Order ids, times and telephone numbers are shown."""
    assert capture({"value": value}, Rules(), HIDER).context == {"value": value}


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False, min_value=-9, max_value=9)
    | st.sampled_from(
        ["", "1", "a", "$digest", "true", "null", "x" * 9000, "y" * 9000, "Bearer abcdefgh12345"]
    )
    | st.text(max_size=3)
    | st.sampled_from([b"", b"a", b"1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "a_", "$a", "password", "$digest", "bytes", ""]), inner, max_size=3
        )
    ),
    max_leaves=5,
)
CALLS = st.dictionaries(
    st.sampled_from(["a", "a_", "b", "password", "amount", "$a", "hidden"]), PLAIN, max_size=4
)
RULES = st.sampled_from(
    [
        Rules(),
        Rules(exclude={"a", "hidden"}),
        Rules(include={"a"}),
        Rules(include=()),
        Rules(redact={"b"}),
    ]
)


def shape(value: Any) -> Any:
    """What a value is, for whom numbers are their values and nothing else is equal."""
    if isinstance(value, dict):
        return ("dict", tuple(sorted((name, shape(item)) for name, item in value.items())))
    if isinstance(value, list):
        return ("list", tuple(map(shape, value)))
    if isinstance(value, bool) or value is None:
        return ("plain", str(value))
    if isinstance(value, (int, float, Decimal)):
        return ("number", exact(value))
    return (type(value).__name__, value.hex() if isinstance(value, bytes) else value)


@given(CALLS, CALLS, RULES)
def test_different_calls_are_never_the_same(one: Any, other: Any, rules: Rules) -> None:
    """Two calls have one context exactly if they pass the same, hidden or shown."""
    found = [exact(dict(capture(call, rules, HIDER).context)) for call in (one, other)]
    if shape(one) != shape(other):
        assert found[0] != found[1]
    else:
        # 1 and 1.0 are one number for the gateway; behind a digest their writing is bound as well.
        assert found[0] == found[1] or "$digest" in found[0]


@given(CALLS, PLAIN, PLAIN)
def test_only_ignored_arguments_may_differ(call: Any, one: Any, other: Any) -> None:
    """An ignored argument changes no context, and nothing else is left out of one."""
    rules = Rules(ignore={"session"})
    first, second = (capture({**call, "session": each}, rules, HIDER).context for each in (one, other))
    assert dumps(first) == dumps(second)


def function(a: int, /, b: int = 0, b_: int = 0, **more: int) -> None: ...


KEYWORDS = st.dictionaries(
    st.sampled_from(["a", "a_", "a__", "b", "b_", "b__", "amount", "amount_", "x"]),
    st.integers(0, 2),
    max_size=4,
)


@given(KEYWORDS, KEYWORDS)
def test_which_keyword_was_passed_is_bound(one: dict[str, int], other: dict[str, int]) -> None:
    """Keywords that share a parameter's name never stand for each other, whichever of them are passed."""
    binder = Binder(function)
    assume("b" in one or "b" not in other)
    named = [binder.bind((1,), call, drop_first=False, reserved="amount") for call in (one, other)]
    full = [{"b": 0, "b_": 0, **call} for call in (one, other)]
    assert (named[0] == named[1]) == (full[0] == full[1])


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise SystemError(name)

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise SystemError

    def __repr__(self) -> str:
        raise SystemError


class HostileMapping(dict[Any, Any]):
    def __len__(self) -> int:
        raise SystemError

    items = keys = values = __iter__ = __getitem__ = __len__  # type: ignore[assignment]  # what is tested


def cyclic() -> Any:
    made: Any = {"a": []}
    made["a"].append(made)
    made["self"] = made
    return made


ODD = st.recursive(
    st.builds(Hostile)
    | st.builds(HostileMapping, st.just({"a": 1}))
    | st.builds(cyclic)
    | st.builds(object)
    | st.just(float("nan"))
    | st.binary(max_size=4)
    | st.sampled_from([Hostile, iter(()), open, ..., NotImplemented, "\ud800", Decimal("sNaN")])
    | st.builds(pow, st.just(10), st.just(5000)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3) | wrapped(inner)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=3), ODD, max_size=3), RULES)
def test_capture_is_json_or_refused(call: dict[str, Any], rules: Rules) -> None:
    """Whatever classes do when they are looked at, and however values hold themselves, no other error is raised."""
    try:
        context = capture(call, rules, HIDER).context
    except ConfigurationError as error:
        assert "ignore=" in str(error)  # noqa: PT017 - one of two outcomes
    else:
        loads(dumps(context).encode())
