"""The canonical form of a context (decisions §4)."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.canonical import canonical, digest
from toolgate_service.exact_json import loads

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
contexts = st.dictionaries(texts, st.integers() | texts | st.lists(st.booleans(), max_size=3), max_size=6)


def form(text: str) -> str:
    context = loads(text.encode())
    assert isinstance(context, dict)
    return canonical(context)


@given(contexts, st.randoms())
def test_the_order_of_members_does_not_matter(context: dict[str, object], chance: object) -> None:
    """Any order of the same members has one form."""
    members = list(context.items())
    chance.shuffle(members)  # type: ignore[attr-defined]  # a random.Random
    assert canonical(dict(members)) == canonical(context)


@given(contexts)
def test_the_form_is_a_fixed_point(context: dict[str, object]) -> None:
    """Read and formed again, a form stays as it is."""
    assert form(canonical(context)) == canonical(context)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "{}"),
        ('{ "b" : 1 , "a" : [ 1.0 , 2e1 ] }', '{"a":[1,20],"b":1}'),
        ('{"n": -0.0, "m": 0e9}', '{"m":0,"n":0}'),
        ('{"n": 9007199254740993}', '{"n":9007199254740993}'),
        (
            '{"\\u20ac": 1, "\\r": 2, "\\ufb33": 3, "1": 4, "\\ud83d\\ude00": 5, "\\u0080": 6, "\\u00f6": 7}',
            '{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\ufb33":3}',
        ),
        (
            '{"a": "\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/"}',
            '{"a":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
        ),
        ('{"a": {"z": null, "y": true}}', '{"a":{"y":true,"z":null}}'),
    ],
)
def test_examples(text: str, expected: str) -> None:
    """RFC 8785's own order of members and escapes, with exact numbers."""
    assert form(text) == expected


def test_absent_null_and_empty_are_equal() -> None:
    """No context and an empty one have one form."""
    assert canonical(None) == canonical({}) == "{}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"n": 9007199254740992}', '{"n": 9007199254740993}'),
        ('{"a": "é"}', '{"a": "e\u0301"}'),
        ('{"a": null}', "{}"),
    ],
)
def test_different_values_have_different_forms(one: str, other: str) -> None:
    """No rounding, no Unicode normalisation, no dropping of nulls."""
    assert form(one) != form(other)


def test_the_digest_is_the_forms_sha256() -> None:
    """Anybody can recompute it."""
    assert digest('{"a":"é"}') == hashlib.sha256('{"a":"é"}'.encode()).hexdigest()
