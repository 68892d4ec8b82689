import json
import re
import unicodedata
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_cli.layout import BAR, MAX_MEMBERS, MAX_TEXT, Layout, summarize
from toolgate_cli.output import to_ascii_json

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

#: what a hostile agent would write: ends of lines, our own bar and quotes, other fields, a prompt
HOSTILE = st.lists(
    st.sampled_from([
        "\n", "\r", "\x1b[1A", "\x1b]0;x\x07", "\u202e", "\u200b", "\u2028", "\x85", "\ud800", "│", BAR, '"', "\\",
        "\\n", " ", " " * 70, "amount  5.00", "Password of ada@example.com to approve this request: ", "redacted",
        "[bold red]", "[/]", "東京" * 30, "o\u0301\u0301", "🙂", "e\u20dd", "a" * 45,
    ]),
    max_size=12,
).map("".join)  # fmt: skip
TEXT = HOSTILE | st.text(st.characters(categories=None), max_size=80)
NUMBER = st.integers(-(10**50), 10**50) | st.decimals(allow_nan=False, allow_infinity=False)
DIGEST = st.fixed_dictionaries(
    {"$digest": TEXT | st.just("hmac-sha256:" + "a1" * 32)}, optional={"bytes": NUMBER | TEXT}
)
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT | DIGEST,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=8,
)
CONTEXT = st.dictionaries(TEXT, VALUE, max_size=6)


def cells(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WFA" else 1 for char in line)


@given(CONTEXT, st.integers(20, 200), st.booleans())
def test_no_context_leaves_its_place(context: dict[str, Any], width: int, full: bool) -> None:
    """Whatever an agent sends: nothing hidden is printed, no line is wider than the terminal, each has the bar."""
    for line in Layout(width, full=full).context(context):
        assert not {unicodedata.category(char) for char in line} & HIDDEN
        assert line.startswith(BAR)
        assert cells(line) <= max(width, 40)


@given(CONTEXT, st.integers(40, 200), st.booleans())
def test_no_value_looks_like_another_field(context: dict[str, Any], width: int, full: bool) -> None:
    """Where names begin, only names do: as many lines begin there as there are fields."""
    lines = Layout(width, full=full).context(context)
    begun = [line for line in lines if line[len(BAR) :][:1] not in {"", " "}]
    assert len(begun) == max(1, len(context))


@given(TEXT, st.integers(40, 200))
def test_a_text_is_shown_whole(text: str, width: int) -> None:
    """With everything shown, the text can be read back from the screen, character by character."""
    lines = Layout(width, full=True).context({"note": text})
    shown = "".join(line[len(BAR) + 6 :] for line in lines)
    assert shown[0] == shown[-1] == '"'
    assert shown[1:-1].encode("ascii", "backslashreplace").decode("unicode_escape") == text


@given(TEXT)
def test_no_text_says_that_something_is_hidden(text: str) -> None:
    """A text stands in quotes: it cannot claim to be a digest, a number or a note of ours."""
    (first, *_) = Layout(120).context({"note": text})
    assert first.startswith(f'{BAR}note  "')


def test_amounts_come_first_then_recipients_then_the_rest() -> None:
    """The order in which a person reads, by the documented names, whatever order they were sent in."""
    context = {
        "zebra": 1, "amounted": 2, "replyTo": "a@b", "customer_id": "c", "refundAmount": Decimal("2.50"),
        "currency": "EUR", "amount": Decimal("10.00"), "body": "x",
    }  # fmt: skip
    names = [line.split()[1] for line in Layout(100).context(context)]
    assert names == [
        "amount", "refundAmount", "currency", "replyTo", "customer_id", "zebra", "amounted", "body",
    ]  # fmt: skip


def test_values_are_laid_out() -> None:
    """Numbers keep their digits, texts their quotes, what is nested is further in, what is hidden says so."""
    digest = "hmac-sha256:" + "0123456789abcdef" * 4
    context = {
        "amount": Decimal("1E+3"),
        "body": "Dear Ada,\n[bold]40.00[/]\x1b[2J",
        "card": {"$digest": digest, "bytes": 16},
        "items": [{"id": 7, "secret": {"$digest": digest}}, True, None, [], {}],
        "not plain": "C:\\temp",
        "rate": Decimal("0.0000001"),
        "script": {"$redacted": "ls # token=[redacted]", "$digest": digest, "bytes": 18},
    }
    assert Layout(100).context(context) == [
        "  │ amount       1000",
        '  │ body         "Dear Ada,\\n',
        '  │              [bold]40.00[/]\\x1b[2J"',
        "  │ card         redacted, 16 bytes (hmac-sha256:01234567…)",
        "  │ items",
        "  │   [0]",
        "  │     id      7",
        "  │     secret  redacted (hmac-sha256:01234567…)",
        "  │   [1]  true",
        "  │   [2]  null",
        "  │   [3]  []",
        "  │   [4]  {}",
        '  │ "not plain"  "C:\\\\temp"',
        "  │ rate         0.0000001",
        '  │ script       "ls # token=[redacted]" (partly redacted, 18 bytes (hmac-sha256:01234567…))',
    ]
    assert Layout(100).context({}) == ["  │ (no arguments)"]


def test_what_is_cut_says_how_much_is_missing() -> None:
    """Long texts and many members are cut with the count of what is missing; with everything shown nothing is."""
    context = {"text": "x" * (MAX_TEXT + 1234), "many": list(range(MAX_MEMBERS + 5))}
    layout = Layout(100)
    shown = "\n".join(layout.context(context))
    assert "… 1,234 more characters, shown by --full" in shown.replace(f"\n{BAR}      ", "")
    assert "… 5 more, shown by --full" in shown
    assert layout.cut == 2
    layout = Layout(100, full=True)
    assert "".join(layout.context(context)).count("x") >= MAX_TEXT + 1234
    assert layout.cut == 0


@pytest.mark.parametrize(
    "value",
    [
        {"$digest": "hmac-sha256:abc", "bytes": 1, "amount": 5},
        {"$digest": 5},
        {"digest": "hmac-sha256:" + "a" * 64},
    ],
)
def test_what_only_looks_hidden_is_shown(value: dict[str, Any]) -> None:
    """A member beside a digest is shown, and a digest that is none does not hide anything."""
    lines = Layout(100).context({"field": value})
    assert len(lines) == 1 + len(value)


@given(VALUE)
def test_json_is_ascii_and_exact(value: Any) -> None:
    """Printed JSON is printable ASCII on one line, and reads as the very same value."""
    text = to_ascii_json(value)
    assert re.fullmatch(r"[ -~]*", text)
    assert json.loads(text, parse_float=Decimal) == value


def test_summary_is_one_short_line_that_marks_hidden_values() -> None:
    hidden = {"$digest": "hmac-sha256:" + "0" * 64, "bytes": 16}
    context = {
        "note": "a\nb",
        "card": hidden,
        "to": "ada",
        "amount": Decimal("2.50"),
        "deep": {"pin": hidden},
    }
    assert summarize(context) == ('amount=2.50 to="ada" note="a\\nb" card=(redacted) deep={… (redacted)}')
    assert summarize({"text": {**hidden, "$redacted": "token=…"}}) == 'text="token=…" (partly redacted)'
    assert summarize(hidden) == "(redacted)"
    assert summarize({"x": None, "y": True, "z": [], "empty": {}}) == "x=null y=true z=[] empty={}"
    long = summarize({f"field{number}": "x" * 500 for number in range(50)})
    assert len(long) == 100
    assert "\n" not in long


def test_summary_escapes_what_a_terminal_would_follow() -> None:
    shown = summarize({"to": "\x1b[31mada\u202e", "a\x07": "[bold]"})
    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf"}
    assert "[bold]" in shown
