"""Text of others, made safe to show: what cannot be seen becomes an escape.

The escapes are those of the command line (`toolgate approvals show`), so that one request reads alike in both; a test
holds the two to each other.
"""

import unicodedata

#: controls, formats (bidirectional, zero width), surrogates, private use, unassigned, line and paragraph separators,
#: and every space but the one that looks like it
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})

#: shown as nothing although Unicode calls them letters, marks or symbols
_BLANK = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0000, 0xE0FFF),
)

#: marks upon one letter; more of them reach into the lines above and below
_MOST_MARKS = 4

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def visible(text: object, *, quote: str = "") -> str:
    """Return a text on one line in which every character can be seen.

    Args:
        text: what is not a string is shown as Python's `str` has it.
        quote: a character that stands around the text, and so is escaped in it as well.
    """
    shown: list[str] = []
    marks = _MOST_MARKS
    for char in str(text):
        if char.isascii() and char.isprintable() and char not in ("\\", quote):
            marks = 0
            shown.append(char)
            continue
        if unicodedata.category(char) in {"Mn", "Me", "Mc"}:
            # One that has nothing to stand on would change what stands before the text.
            marks += 1
            safe = marks <= _MOST_MARKS and not _is_blank(char)
        else:
            marks = 0
            safe = not is_hidden(char) and char not in _SHORT and char != quote
        if safe:
            shown.append(char)
        else:
            marks = _MOST_MARKS
            shown.append(f"\\{char}" if char == quote else _escape(char))
    return "".join(shown)


def is_hidden(char: str) -> bool:
    """Say whether a character shows nothing, moves what stands beside it, or passes for a plain space."""
    return char != " " and (unicodedata.category(char) in _ESCAPED_CATEGORIES or _is_blank(char))


def _escape(char: str) -> str:
    return _SHORT.get(char) or char.encode("unicode_escape").decode("ascii")


def _is_blank(char: str) -> bool:
    code = ord(char)
    return any(first <= code <= last for first, last in _BLANK)
