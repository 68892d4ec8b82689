import pytest

from toolgate_cli.options import format_duration, parse_duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59.9, "59 s"), (60, "1 min"), (3600, "1 h"), (11_520, "3 h 12 min"), (187_200, "2 d 4 h")],
)
def test_spans_are_told(seconds: float, text: str) -> None:
    """In the two largest units."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("5min", 300), ("1H", 3600), ("2d", 172_800)]
)
def test_spans_are_read(text: str, seconds: int) -> None:
    """As people write them."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "1.5h", "1h30m", "٣h", "9999999999d"])
def test_what_is_no_span_is_refused(text: str) -> None:
    """With the text and how to write one."""
    with pytest.raises(ValueError, match="1h"):
        parse_duration(text)
