"""A text that is looked for in contexts: what a reader sees is what is found."""

import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.core.strict_json import canonical, dumps
from toolgate_service.logs.service import TextMatcher

#: what is written down otherwise than it reads, what folds, what composes, and what means something elsewhere
ODD = 'aAeE1nt0"\\/\n\t\x1b%_*.,:{}[]éÉ\u0301\u0338ßẞ\u017fK\u0130\u0131ςΣ\u202e😀'
texts = st.text(st.sampled_from(ODD), max_size=6)
values = st.recursive(
    texts
    | st.integers()
    | st.booleans()
    | st.none()
    | st.decimals(allow_nan=False, allow_infinity=False, places=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def folded(text: str) -> str:
    return unicodedata.normalize("NFC", text.casefold())


def parts(value: object) -> Iterator[str]:
    """Yield what stands in a context, one by one."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from parts(member)
    elif isinstance(value, list):
        for item in value:
            yield from parts(item)
    else:
        yield value if isinstance(value, str) else dumps(value)


@given(st.dictionaries(texts, values, max_size=4), texts.filter(bool))
def test_what_stands_in_a_part_is_found_and_nothing_else(context: dict[str, object], text: str) -> None:
    """However the context is written down: as if every name and value were looked at alone."""
    expected = any(folded(text) in folded(part) for part in parts(context))
    assert TextMatcher(text).matches(canonical(context)) == expected


@given(st.dictionaries(texts, values, min_size=1, max_size=4), st.data())
def test_every_piece_of_a_part_is_found(context: dict[str, object], data: st.DataObject) -> None:
    """Whatever one copies out of what is shown, up to where one letter is put together from several."""
    part = data.draw(st.sampled_from(list(parts(context))))
    begin = data.draw(st.integers(0, len(part)))
    piece = part[begin : data.draw(st.integers(begin, len(part)))]
    if piece and folded(piece) in folded(part):
        assert TextMatcher(piece).matches(canonical(context))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("é", "café"),
        ("É", "cafe\u0301"),
        ("STRASSE", "Straße"),
        ('"', 'a "word"'),
        ("\\", "C:\\temp"),
        ("\n", "two\nlines"),
        ("e\nI", "one\nis"),
        ("%", "100%"),
        ("a_b", "a_b"),
        ("12.5", 12.5),
        ("TRUE", True),
        ("null", None),
        ("<script>", "<SCRIPT>alert(1)"),
        ("\u202egpj", "a\u202egpj"),
        (" ", "a b"),
    ],
)
def test_it_is_found_as_it_reads(text: str, value: object) -> None:
    """Letters with marks, quotes, backslashes, line breaks, wildcards of SQL, numbers and words."""
    assert TextMatcher(text).matches(canonical({"field": {"inner": [0, value]}}))
    assert TextMatcher(text).matches(canonical({"f": {text: 0}}))


@pytest.mark.parametrize("text", ["_", "%", "b*", "a.b", "\\n", "u001b", '","', ":", "[", "namevalue", "aé"])
def test_what_only_its_writing_has_is_not_found(text: str) -> None:
    """No wildcard, no escape, no bracket, and nothing across two values."""
    assert not TextMatcher(text).matches(
        canonical({"name": "value", "c": ["a-b", "x\n\x1bz", "a", "é"], "d": 1})
    )


def test_an_entry_without_a_context_has_nothing() -> None:
    """Nothing was sent, and nothing is found."""
    assert not TextMatcher("null").matches(None)
