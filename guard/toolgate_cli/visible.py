"""Text of others, made safe to print: what cannot be seen, or does something to a terminal, becomes an escape.

Whatever a gateway says was said by somebody else before: agents name themselves, and their arguments come from models
that strangers talk to. Everything of it goes through here before it is printed.
"""

import unicodedata

#: controls, formats (bidirectional, zero width), surrogates, private use, unassigned, line and paragraph separators;
#: and every space but the one that looks like it: a no-break space makes two names look alike
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})

#: shown as nothing although Unicode calls them letters, marks or symbols: its Default_Ignorable_Code_Point beyond the
#: categories above, and the empty Braille pattern
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
            safe = not _is_hidden(char) and char not in _SHORT and char != quote
        if safe:
            shown.append(char)
        else:
            marks = _MOST_MARKS
            shown.append(f"\\{char}" if char == quote else escape(char))
    return "".join(shown)


def escape(char: str) -> str:
    r"""Return the escape of a character: ``\n``, ``\x1b``, ``\u202e``, ``\U000e0041``."""
    if char in _SHORT:
        return _SHORT[char]
    # Printable ASCII has no escape of its own; nothing asks for one.
    return char.encode("unicode_escape").decode("ascii")


def _is_hidden(char: str) -> bool:
    return char != " " and (unicodedata.category(char) in _ESCAPED_CATEGORIES or _is_blank(char))


def _is_blank(char: str) -> bool:
    code = ord(char)
    return any(first <= code <= last for first, last in _BLANK)
