"""Safe display of untrusted texts, tool arguments and URLs.

The functions escape characters, sort the fields of a context, and hide redacted values and the passwords in URLs. The
command `toolgate approvals show` has its own implementation of these rules. A test checks that the gateway and the
command escape the same characters and show the fields in the same order.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

#: Unicode categories of characters that are escaped: controls, formats (bidirectional, zero width), surrogates, private
#: use, unassigned, line and paragraph separators, and spaces (except U+0020)
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})

#: ranges (first, last) of invisible code points that Unicode classifies as letters, marks or symbols
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

#: maximum number of combining marks on one letter; more of them would be drawn over other lines of the display
_MOST_MARKS = 4

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def visible(text: object, *, quote: str = "") -> str:
    """Return a value as one line of text in which invisible characters are escaped.

    `quote` is the quotation mark that the caller puts around the result; it is escaped in the text.
    """
    shown: list[str] = []
    marks = _MOST_MARKS
    for char in str(text):
        if char.isascii() and char.isprintable() and char not in ("\\", quote):
            marks = 0
            shown.append(char)
            continue
        if unicodedata.category(char) in {"Mn", "Me", "Mc"}:
            # `marks` counts consecutive combining marks. It starts at the maximum, so that a mark at the beginning of
            # the text is escaped: it would otherwise combine with the character before the text.
            marks += 1
            safe = marks <= _MOST_MARKS and not _is_blank(char)
        else:
            marks = 0
            safe = not is_invisible(char) and char not in _SHORT and char != quote
        if safe:
            shown.append(char)
        else:
            marks = _MOST_MARKS
            shown.append(f"\\{char}" if char == quote else _escape(char))
    return "".join(shown)


def is_invisible(char: str) -> bool:
    """Return whether a character is invisible, reorders neighboring characters, or looks like a plain space."""
    return char != " " and (unicodedata.category(char) in _ESCAPED_CATEGORIES or _is_blank(char))


def _escape(char: str) -> str:
    return _SHORT.get(char) or char.encode("unicode_escape").decode("ascii")


def _is_blank(char: str) -> bool:
    code = ord(char)
    return any(first <= code <= last for first, last in _BLANK)


#: words in the name of a field that holds an amount; a new word starts after ``_``, ``-``, ``.`` or a space, and at a
#: capital letter
AMOUNT_WORDS = frozenset({
    "amount", "amounts", "total", "sum", "price", "cost", "fee", "currency", "cents", "quantity", "qty",
})  # fmt: skip

#: words in the name of a field that holds a recipient; a field with a word of `AMOUNT_WORDS` is an amount instead
RECIPIENT_WORDS = frozenset({
    "to", "cc", "bcc", "recipient", "recipients", "email", "emails", "customer", "account", "destination", "payee",
    "beneficiary", "iban", "phone", "address", "user", "channel", "host", "url",
})  # fmt: skip

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


_KINDS = ("amount", "recipient", "other")


def kind_of(name: str) -> str:
    """Return the kind of a field, judged by the words in its name: ``amount``, ``recipient`` or ``other``."""
    words = {word.lower() for word in _WORDS.findall(name)}
    if words & AMOUNT_WORDS:
        return "amount"
    return "recipient" if words & RECIPIENT_WORDS else "other"


def in_reading_order(context: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the fields of a context in the order of display: amounts, then recipients, then others.

    The field ``amount`` comes first. Fields of the same kind keep their stored order.
    """
    return sorted(context.items(), key=lambda field: _rank(field[0]))


def is_hidden(value: Any) -> bool:
    """Return whether a whole value is redacted, so that only its digest is stored."""
    return _has_digest(value) and value.keys() <= {"$digest", "bytes", "$object"}


def redacted_text(value: Any) -> str | None:
    """Return the visible part of a text that is partly redacted; None for any other value."""
    if _has_digest(value) and value.keys() <= {"$redacted", "$digest", "bytes"}:
        text = value.get("$redacted")
        return text if isinstance(text, str) else None
    return None


def hidden_names(value: Any, name: str = "") -> Iterator[str]:
    """Yield the dotted name of each completely or partly redacted field within a value.

    `name` is the name of the value itself. If the value has no name and is redacted, the result is ``everything``.
    """
    if _has_digest(value):
        yield name or "everything"
    if isinstance(value, dict):
        for key, member in value.items():
            yield from hidden_names(member, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from hidden_names(member, f"{name}[{index}]")


def _has_digest(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("$digest"), str)


def _rank(name: str) -> int:
    return 0 if name == "amount" else _KINDS.index(kind_of(name)) + 1


HIDDEN = "…"

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
#: schemes of the URLs in settings; a URL with another scheme is hidden completely
_SCHEMES = frozenset({"sqlite", "postgresql", "postgres", "postgresql+asyncpg", "redis", "rediss", "smtp", "smtps", "http", "https"})  # fmt: skip
_USER = re.compile(r"[^:/?#@\[\]]*")
_PARAMETER = re.compile(r"[^&;]+")
#: start of a query string, such as `?name=`. If it precedes the last `@` of a URL, this `@` may be part of a parameter
#: value.
_PARAMETERS_BEGIN = re.compile(r"\?[^?=]+=")
#: query parameters whose values are not secret and therefore shown
_HARMLESS = frozenset({"sslmode", "ssl", "tls", "mode"})


def masked_url(text: str) -> str:
    """Return a URL in which the password, the parameter values and the fragment are hidden.

    Values of harmless parameters, such as ``sslmode``, are shown. The URL of an SQLite file is returned unchanged. A
    text that is not a URL, or a URL with an unknown scheme, is hidden completely.
    """
    found = _URL.fullmatch(text.strip())
    if found is None or found["scheme"].lower() not in _SCHEMES:
        return HIDDEN
    if _is_file(found):
        return text
    user, password, place = _parts(found["rest"])
    if password is not None and _PARAMETERS_BEGIN.search(password):
        # Hide the whole URL, because the `@` may be part of a parameter value. The text after it would then belong to
        # this value and not be a host.
        return f"{found['scheme']}://{HIDDEN}"
    place, number_sign, _ = place.partition("#")
    address, question, query = place.partition("?")
    query = _PARAMETER.sub(_without_value, query)
    hidden = "" if password is None else f":{HIDDEN}"
    at = "" if user is None else "@"
    end = number_sign and f"#{HIDDEN}"
    return f"{found['scheme']}://{user or ''}{hidden}{at}{address}{question}{query}{end}"


def password_in(text: str) -> str | None:
    """Return the password in a URL, in its percent-encoded form; None if the URL contains no password."""
    found = _URL.fullmatch(text.strip())
    return None if found is None or _is_file(found) else _parts(found["rest"])[1]


def _is_file(found: re.Match[str]) -> bool:
    return found["scheme"] == "sqlite" and (not found["rest"] or found["rest"].startswith("/"))


def _parts(rest: str) -> tuple[str | None, str | None, str]:
    """Split the part of a URL after ``://`` into the user, the password, and the text after the last `@`."""
    # Split at the last `@`, because a password may contain an `@` that the operator did not percent-encode.
    before, at, place = rest.rpartition("@")
    if not at:
        return None, None, place
    user = _USER.match(before)
    known = user[0] if user else ""
    return known, before[len(known) :].removeprefix(":") or None, place


def _without_value(found: re.Match[str]) -> str:
    name, equals, _ = found[0].partition("=")
    if equals and name.lower() in _HARMLESS:
        return found[0]
    # Hide a parameter without `=`, because it may be the rest of a value whose `&` was not percent-encoded.
    return f"{name}={HIDDEN}" if equals else HIDDEN
