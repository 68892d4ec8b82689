import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_cli.output import sanitize

#: what a reader cannot see, or what moves, hides or reorders something on a terminal
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

ANY_TEXT = st.text(st.characters(categories=None), max_size=200)
NASTY_TEXT = st.text(
    st.sampled_from(
        list(
            '\x00\x07\x08\n\r\t\x1b\x7f\x85\x9b\u061c\u200b\u202e\u2066\ufeff\u2028\ud800\ue000a[]\\"\u0301 '
        )
    ),
    max_size=60,
)


@given(ANY_TEXT | NASTY_TEXT)
def test_nothing_hidden_is_printed(text: str) -> None:
    """No control, format, surrogate, private or unassigned character and no separator is left, and no line end."""
    shown = sanitize(text)
    assert not {unicodedata.category(char) for char in shown} & HIDDEN
    assert not [char for char in shown if char != " " and unicodedata.category(char) == "Zs"]
    shown.encode()


@given(ANY_TEXT | NASTY_TEXT, ANY_TEXT | NASTY_TEXT)
def test_two_texts_never_look_alike(one: str, other: str) -> None:
    """An escape is told from text that looks like one: different texts stay different."""
    assert (sanitize(one) == sanitize(other)) == (one == other)
    assert (sanitize(one, quote='"') == sanitize(other, quote='"')) == (one == other)


@given(ANY_TEXT | NASTY_TEXT)
def test_a_quoted_text_ends_at_its_quote(text: str) -> None:
    """No text can close the quotes that stand around it."""
    inside = sanitize(text, quote='"')
    while "\\" in inside:
        at = inside.index("\\")
        inside = inside[:at] + inside[at + 2 :]
    assert '"' not in inside


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("abc Zürich 東京 €", "abc Zürich 東京 €"),
        ("a\u202eb", "a\\u202eb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\\u202e", "\\\\u202e"),
        ("\u200bx\ufeff", "\\u200bx\\ufeff"),
        ("\U000e0041", "\\U000e0041"),
        ("a\u00a0b", "a\\xa0b"),
        ("\u3164", "\\u3164"),
        ("e\u0301", "e\u0301"),
        ("\u0301", "\\u0301"),
        ("\ud800", "\\ud800"),
        ("[bold]x[/]", "[bold]x[/]"),
    ],
)
def test_examples(text: str, shown: str) -> None:
    """What is readable stays as it is; what is not has the escape that programmers know."""
    assert sanitize(text) == shown


def test_marks_do_not_pile_up() -> None:
    """A letter carries a few marks, as scripts need; beyond them each is shown as an escape."""
    assert sanitize("o" + "\u0301" * 6) == "o" + "\u0301" * 4 + "\\u0301" * 2
