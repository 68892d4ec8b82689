"""The canonical form of a context (decisions §4)."""

import hashlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.core.sdk_fields import MAX_CONTEXT_BYTES, SURELY_SMALL
from toolgate_service.core.strict_json import canonical, digest, loads

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


#: the test data of RFC 8785's author (github.com/cyberphone/json-canonicalization, testdata), numbers apart its own output
VECTORS = {
    "section 3.2.2": (
        r"""{
          "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
          "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
          "literals": [null, true, false]
        }""",
        (
            '{"literals":[null,true,false],"numbers":[333333333.33333329,1000000000000000000000000000000,4.5,0.002,'
            r"""0.000000000000000000000000001],"string":"€$\u000f\nA'B\"\\\\\"/"}"""
        ),
    ),
    "arrays": (
        '{"": [56, {"d": true, "10": null, "1": [ ]}]}',
        '{"":[56,{"1":[],"10":null,"d":true}]}',
    ),
    "french": (
        (
            '{"peach": "This sorting order", "péché": "is wrong according to French", '
            '"pêche": "but canonicalization MUST", "sin": "ignore locale"}'
        ),
        (
            '{"peach":"This sorting order","péché":"is wrong according to French",'
            '"pêche":"but canonicalization MUST","sin":"ignore locale"}'
        ),
    ),
    "structures": (
        r"""{"1": {"f": {"f": "hi", "F": 5}, "\n": 56.0}, "10": { }, "": "empty", "a": { },
             "111": [ {"e": "yes", "E": "no"} ], "A": { }}""",
        r"""{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"111":[{"E":"no","e":"yes"}],"A":{},"a":{}}""",
    ),
    "unicode": (
        r"""{"Unnormalized Unicode": "A\u030a"}""",
        '{"Unnormalized Unicode":"A\u030a"}',
    ),
    "weird": (
        r"""{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\u000a": "Newline", "1": "One",
             "\u0080": "Control\u007f", "\ud83d\ude02": "Smiley", "\u00f6": "O With Diaeresis",
             "\ufb33": "Dalet With Dagesh", "</script>": "Browser Challenge"}""",
        (
            r"""{"\n":"Newline","\r":"Carriage Return","1":"One","</script>":"Browser Challenge","""
            '"\u0080":"Control\u007f","ö":"O With Diaeresis","€":"Euro Sign","😂":"Smiley","\ufb33":"Dalet With Dagesh"}'
        ),
    ),
    "escapes": (
        '{"a": "' + "".join(f"\\u{code:04X}" for code in range(1, 0x20)) + '\\u2028\\u007F"}',
        (
            r"""{"a":"\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f"""
            r"""\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f"""
            '\u2028\u007f"}'
        ),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_of_rfc_8785(name: str) -> None:
    """Members by UTF-16 code units, the shortest escapes, no normalisation: as the RFC, but for the numbers."""
    text, expected = VECTORS[name]
    assert form(text) == expected


@pytest.mark.parametrize(
    ("spellings", "expected"),
    [
        ("1 1.0 1e0 1E+0 10e-1 100E-2 0.1e1", "1"),
        ("0 -0 0.0 -0.0 0e5 -0e-5 0E400", "0"),
        ("-1.5 -1.50 -15e-1", "-1.5"),
        ("120 120.0 12e1 1.2E2", "120"),
        ("100.10 100.1 1001e-1", "100.1"),
        ("0.000001 1e-6 0.1e-5", "0.000001"),
        ("1e21 1000000000000000000000.0", "1000000000000000000000"),
        ("9007199254740993 9007199254740993.0", "9007199254740993"),
        ("-9007199254740993", "-9007199254740993"),
        ("1424953923781206.25", "1424953923781206.25"),
        ("123456789012345678901234567890.123", "123456789012345678901234567890.123"),
        ("5e-324", "0." + "0" * 323 + "5"),
        ("1.7976931348623157e308", "17976931348623157" + "0" * 292),
        ("1e400", "1" + "0" * 400),
        ("1e-400", "0." + "0" * 399 + "1"),
        ("9" * 400, "9" * 400),
        ("9" * 400 + "e400", "9" * 400 + "0" * 400),
    ],
    ids=lambda text: text if len(text) < 40 else f"{len(text)} characters",
)
def test_a_number_is_written_by_its_exact_value(spellings: str, expected: str) -> None:
    """No exponent, no superfluous zeros, no binary float in between: every spelling of a value is one text."""
    for spelling in spellings.split():
        assert form(f'{{"n":{spelling}}}') == f'{{"n":{expected}}}'


@given(st.decimals(allow_nan=False, allow_infinity=False), st.decimals(allow_nan=False, allow_infinity=False))
def test_numbers_have_one_form_exactly_when_they_are_equal(one: Decimal, other: Decimal) -> None:
    """Neither rounding makes two values one, nor spelling one value two."""
    assert (canonical({"n": one}) == canonical({"n": other})) is (one == other)


@given(st.decimals(-(10**30), 10**30, allow_nan=False, places=9), st.integers(0, 40))
def test_zeros_behind_the_point_do_not_matter(number: Decimal, zeros: int) -> None:
    """The same value with more digits has the same form."""
    text = format(number, "f")
    assert form(f'{{"n":{text}}}') == form(f'{{"n":{text}{"0" * zeros}}}') == canonical({"n": number})


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


@pytest.mark.parametrize("number", ["1e400", "-1e-400", "9" * 400, "1.5e400", "1E+399", "0.0", "-0"])
@pytest.mark.parametrize("text", ["", "\\u0001\\n", "\U0001f600"])
def test_a_small_body_has_no_large_canonical_text(number: str, text: str) -> None:
    """Which is why the context of one is not written out to see how large it is."""
    body = f'{{"{text}":[{number}'
    while len(f"{body},{number}]}}".encode()) <= SURELY_SMALL:
        body += f",{number}"
    assert len(form(body + "]}").encode()) <= MAX_CONTEXT_BYTES
