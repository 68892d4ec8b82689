"""Untrusted text: visible, harmless and complete."""

import html
import json
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate_service.console.filters import describe_action, format_json, lay_out, plain, shown
from toolgate_service.core import strict_json
from toolgate_service.core.text_safety import is_invisible

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
CHARACTER = re.compile(r'<span class="chr" title="[^"<>]*">U\+([0-9A-F]{4,6})</span>')


@given(TEXTS, st.booleans())
def test_a_shown_text_is_the_text(text: str, lines: bool) -> None:
    """Without the filter's tags the HTML equals the text, and nothing in it is invisible."""
    markup = str(shown(text, lines=lines))
    assert set(re.findall(r"</?[a-z]+", markup)) <= {"<span", "</span"}
    # Every second piece is a code point.
    pieces = CHARACTER.split(markup)
    read = [chr(int(one, 16)) if n % 2 else html.unescape(one) for n, one in enumerate(pieces)]
    assert "".join(read) == text
    assert not any(is_invisible(char) for char in markup if char != "\n")


@given(VALUES)
def test_pretty_json_is_the_value(value: object) -> None:
    """Approvers edit exactly the requested arguments, with every character visible."""
    written = format_json(value)
    assert strict_json.dumps(strict_json.loads_own(written)) == strict_json.dumps(value)
    assert not any(is_invisible(char) for char in written if char != "\n")


@given(TEXTS)
def test_a_plain_text_hides_nothing(text: str) -> None:
    """Titles and notifications have no invisible characters."""
    assert not any(is_invisible(char) for char in plain(text))


@given(st.dictionaries(TEXTS, VALUES, max_size=6))
def test_arguments_are_whole_or_say_so(context: dict[str, object]) -> None:
    """Arguments are complete with their JSON, or a note says that they are cut off."""
    size = len(strict_json.dumps(context))
    arguments = lay_out(context, size, at_most=200)
    assert arguments.is_complete is (size <= 200)
    if arguments.is_complete:
        assert len(arguments.shown) == len(context)
        assert strict_json.dumps(strict_json.loads_own(arguments.raw)) == strict_json.dumps(context)


def test_thousands_of_fields_stay_whole() -> None:
    """Fields beyond the limit are shown as JSON."""
    context = {f"field{n}": [n, {"deep": [n] * 20}] for n in range(900)}
    arguments = lay_out(context, 64_000, at_most=None)
    rest = arguments.shown[-1]
    assert "750 more fields" in rest.name
    assert json.loads(html.unescape(rest.value)) == dict(list(context.items())[150:])


@pytest.mark.parametrize(
    ("action", "deed", "place"),
    [
        ("stripe.refund", "refund", "stripe"),
        ("crm.contacts.bulk_delete", "bulk delete", "crm / contacts"),
        ("send-email", "send email", ""),
        ("...", "...", ""),
        ("_._", "_", "_"),
        ("a..b", "b", "a"),
    ],
)
def test_actions_in_words(action: str, deed: str, place: str) -> None:
    """The last part is the operation, the parts before it are the service."""
    words = describe_action(action)
    assert (words.operation, words.service) == (deed, place)


def test_numbers_keep_their_digits() -> None:
    """Amounts are shown as exactly as they are compared."""
    [amount] = lay_out({"amount": Decimal("0.1000000000000000055511151231257827")}, 50, at_most=None).shown
    assert (amount.kind, str(amount.value)) == ("amount", "0.1000000000000000055511151231257827")
