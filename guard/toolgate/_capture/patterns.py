"""Patterns that find secrets in texts; the result of a search is the position of each secret.

A match never contains a character that ends a value or separates commands, such as ``;``, ``|``, ``&``, a quote, a
line break or ``$(``. Otherwise a text such as ``token=x;rm -rf /`` could hide a command from the approver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["LEAST_CARD", "secret_spans"]

# Matches one character of a value without quotes. A backslash is part of the value only before a line break, because a
# shell then joins the two lines. `$(` and `${` end the value, because they begin a shell command or a shell variable.
_CHAR: Final = r"(?:[^\s&,;|<>()`\"'\\$]|\$(?![({])|\\\r?\n)"
# Excludes `[redacted]` and `[redacted 1]`: these markers replaced a secret in an earlier redaction.
_NEW: Final = r"(?!\[redacted(?: \d{1,9})?\](?:[\s&,;|<>()`\"'\\@]|\Z))"
# Matches the end of a value: white space, a delimiter or the end of the text.
_END: Final = r"(?:[\s&,;|<>()`\"'\\]|\Z)"
# Excludes URLs, paths and host names, even after the name of a secret, such as `token=`: the approver must see them.
_PLACE: Final = (
    r"(?![a-zA-Z][a-zA-Z0-9+.-]{1,20}://|\.{1,2}/|~/|\$HOME\b|(?-i:(?:/[a-z_.-]{1,64}){1,20}/?"
    rf"|(?:[a-z0-9-]{{1,63}}\.){{1,5}}[a-z]{{2,10}}(?::[0-9]{{1,5}})?){_END})"
)
# Matches a value. One to three characters count only before a delimiter such as `|`, where they may be the beginning of
# a longer secret; otherwise, such short values are rarely secrets.
_VALUE: Final = rf"{_NEW}{_PLACE}(?:{_CHAR}{{4,4096}}|{_CHAR}{{1,3}}(?=[|<>()`\\$]))"
# Matches one character of a value in quotes, including escape sequences. The value may also contain spaces, unless the
# word after a space looks like a command-line option or a path.
_QUOTED_CHAR: Final = r"(?:[^\s&;|<>`\"'\\$]|\$(?![({])|\\[\"'/bfnrtu\\])"
_QUOTED: Final = (
    rf"{_NEW}{_PLACE}(?:{_QUOTED_CHAR}(?:{_QUOTED_CHAR}|[ ](?=[-+=:] [^\s&;|<>()`\"'\\$]{{1,64}}[\"']|[A-Za-z0-9_.!?]{{1,64}}(?:[ \"'\\]|\Z))){{3,4095}}"
    rf"|{_QUOTED_CHAR}{{1,3}}(?=[&;|<>`$]))"
)
_KEY: Final = (
    r"(?:passw(?:or)?d|pwd|passphrase|secret|token"
    r"|(?:api|access|secret|account|private|master|signing|encryption)[_-]?key)"
)
# In a text that may be a sentence, a value counts as a secret only if it contains a digit: words seldom contain one.
_DIGIT: Final = r"(?=[^\s&,;|<>()`\"'\\$]{0,200}[0-9])"
_RANDOM: Final = rf"{_DIGIT}({_NEW}{_PLACE}{_CHAR}{{6,4096}})"
# Matches the text between a name and its value: `=`, `:`, `:=` or `=>`, and spaces, quotes, a bracket or the prefix of
# a string literal such as `b`.
_SIGN: Final = r"(?:\\?[\"'])?[ \t]{0,8}(?::=|=>|[:=])[ \t]{0,8}(?:[\[({][ \t]?)?(?:[bfru]{1,2}(?=[\"']))?\$?(?:\\?[\"']){0,3}"
# Excludes words in lower case that are joined by hyphens or underscores, as in "sk-delete-all-the-data".
_WORDS: Final = r"(?!(?:[a-z]{1,14}[-_]){2,20}[a-z]{1,14}(?![A-Za-z0-9_-]))"
_PREFIXES: Final = (
    r"(?:do[por]_v1_|shp(?:at|ca|pa|ss)_|sq0[a-z]{3}-|pypi-|hv[sbr]\.|lin_api_|dckr_pat_|nvapi-|xai-|gsk_|glsa_|sbp_"
    r"|PMAK-|AGE-SECRET-KEY-|key-(?=[0-9a-f]{32}\b))"
)

_HEADER: Final = (
    r"(?i:\b(?:(?:proxy-)?authorization|x-(?:[a-z]{1,20}-){0,3}(?:key|token|secret)|api-key)"
    r"\\?[\"']?[ \t]{0,3}:[ \t]{0,3}\\?[\"']?(?:[a-z]{2,20}[ \t]{1,3})?)"
)

# Each entry is a pair of a literal text and a pattern. Every match contains the literal text (or one text of a tuple),
# and searching for that text first is much faster. All patterns are anchored or bounded, so that the search takes
# linear time. The secret is group 1, or the complete match of a pattern without groups.
_PATTERNS: Final = tuple((needle, re.compile(pattern)) for needle, pattern in (
    ("", r"(?i:\bbearer[ \t]{1,20}([A-Za-z0-9._~+/=-]{8,}))"),
    # The value must contain an upper-case letter, a digit or `=`. Otherwise, texts such as "basic understanding" would
    # be masked.
    ("", r"\b(?i:basic)[ \t]{1,20}(?=[a-z._~+/-]{0,200}[A-Z0-9=])([A-Za-z0-9._~+/=-]{8,})"),
    # A value on the line after "bearer" or "basic" must be long and contain a digit; otherwise it may be a command.
    ("\n", r"(?i:\b(?:bearer|basic)\s{1,20}(?=[a-z._~+/=-]{0,200}[0-9])([a-z0-9._~+/=-]{16,}))"),
    ("ak_", r"\bak_[a-z0-9]{37}\b"),
    ("test_", r"\btest_[a-z0-9]{35}\b"),
    ("k", rf"\b(?:sk|rk|pk)[-_]{_WORDS}[A-Za-z0-9_-]{{16,}}"),
    (("_", "-", "."), rf"\b{_PREFIXES}(?=[A-Za-z._-]{{0,200}}[0-9])[A-Za-z0-9_.-]{{16,}}"),
    ("gh", r"\b(?:gh[opsur]_|github_pat_)[A-Za-z0-9_-]{10,}"),
    ("glpat-", r"\bglpat-[A-Za-z0-9_-]{10,}"),
    ("xox", r"\bxox[abeprs]-[A-Za-z0-9_-]{10,}"),
    ("A", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("eyJ", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{0,8000}"),
    ("AIza", r"\bAIza[A-Za-z0-9_-]{30,}"),
    ("hf_", r"\bhf_[A-Za-z0-9]{20,}"),
    ("npm_", r"\bnpm_[A-Za-z0-9]{30,}"),
    ("whsec_", r"\bwhsec_[A-Za-z0-9+/=]{16,}"),
    ("SG.", r"\bSG\.[A-Za-z0-9_-]{10,100}\.[A-Za-z0-9_-]{10,}"),
    ("ya29.", r"\bya29\.[A-Za-z0-9_-]{16,}"),
    ("=", rf"(?i:{_KEY}=)({_VALUE})"),
    ((":", "="), rf"(?i:(?:{_KEY}|\bpass|\bapi key|\bauthorization(?==)){_SIGN}){_RANDOM}"),
    ("<", rf"(?i:<{_KEY}>)({_VALUE})"),
    ("value=", rf"(?i:{_KEY}[\"'][ \t]{{1,8}}value=[\"']){_RANDOM}"),
    # Secrets in URLs: a token in place of the user name, and keys and signatures in the query.
    ("://", r"(?<=://)(?=[A-Za-z._~-]{0,200}[0-9])([A-Za-z0-9._~-]{16,200})@"),
    ("=", r"(?i:(?:[?&](?:sig|key|auth|code)|\b(?:[a-z]{1,10}-){0,3}signature)=)(?=[a-zA-Z%._~+/=-]{0,200}[0-9])([A-Za-z0-9%._~+/=-]{12,4096})"),
    ("igest", r"\bresponse=[\"']?([A-Za-z0-9+/=]{16,128})"),
    # JSON inside a JSON string: the quotes around the name and the value are escaped.
    ('\\":', rf"(?i:{_KEY})\\{{1,7}}\":[ \t]{{0,8}}\\{{1,7}}\"((?:[^\s&;|<>`\"\\$]|\$(?![({{])){{1,4096}})"),
    ("--", rf"(?i:--(?:password|passwd|passphrase|secret|token|api-?key)[= ])(?!-)({_VALUE})"),
    ("--", rf"(?i:--(?!no-)(?:[a-z0-9]{{1,20}}-){{1,3}}(?:password|passwd|passphrase|secret|token|key)[= ][\"']?)(?!-){_RANDOM}"),
    ("sshpass", rf"\bsshpass[ \t]{{1,3}}-p[ =]?[\"']?({_NEW}{_CHAR}{{1,1000}})"),
    ("mysql", rf"\bmysql(?:dump|admin)?[ \t][^\n;|&]{{0,100}}?(?<=[ \t])-p[\"']?({_NEW}{_CHAR}{{3,1000}})"),
    ("redis-cli", rf"\bredis-cli[ \t][^\n;|&]{{0,100}}?(?<=[ \t])-a[ \t]{{1,3}}[\"']?({_NEW}{_CHAR}{{3,1000}})"),
    ("login", rf"\blogin[ \t][^\n;|&]{{0,100}}?(?<=[ \t])-p[ \t]{{1,3}}[\"']?{_RANDOM}"),
    # An HTTP header in a command line. The value must contain a digit, because words of a sentence seldom contain one.
    (":", rf"{_HEADER}(?=[^\s\"',;]{{0,200}}[0-9])({_NEW}{_CHAR}{{8,4096}})"),
    ("curl", rf"(?<!\S)(?:-u|--user)[ =]{{0,3}}[\"']?[^\s\"':-][^\s\"':]{{0,200}}:({_NEW}{_CHAR}{{1,1000}})"),
    ("e", r"(?i:aws_?secret_?(?:access_?)?key['\" :=]{1,8}([a-z0-9/+]{40})(?![a-z0-9/+]))"),
))  # fmt: skip

# Patterns of values in quotes. Group 1 is the secret, and the character before group 1 is the quote.
_QUOTED_PATTERNS: Final = tuple(re.compile(pattern) for pattern in (
    rf"(?i:{_KEY})[ \t]{{0,8}}=[ \t]{{0,8}}[\"']({_QUOTED})",
    rf"(?i:{_KEY})(?:\\?[\"'])?[ \t]{{0,8}}:[ \t]{{0,8}}[\"']({_QUOTED})",
    rf"(?i:--(?:password|passwd|passphrase|secret|token|api-?key)[= ])[\"'](?!-)({_QUOTED})",
))  # fmt: skip
# An apostrophe between letters is not a quote.
_QUOTES: Final = {'"': re.compile('"'), "'": re.compile(r"(?<![A-Za-z])'|'(?![A-Za-z])")}

# Matches the password in a URL. If the password contains delimiters, `_passwords_in_addresses` masks only the text
# before the first delimiter and the text after the last one.
_ADDRESS: Final = re.compile(r"(?<=://)[^\s/?#@:]{0,200}:([^\s/?#]{1,200})@")
_DELIMITER: Final = re.compile(r"[;|&<>()`\"'\\]|\$[({]")
_REDACTED: Final = re.compile(r"\[redacted(?: \d{1,9})?\]")

_PEM: Final = re.compile(r"-----(?:BEGIN [A-Z ]{0,40}PRIVATE KEY|BEGIN|END)")
# Matches a possible line of base64. `_lines_of_key` accepts every long match, and a short match only if it is alone on
# its line and does not look like a command.
_PEM_LINE: Final = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{4,}={0,2}(?![A-Za-z0-9+/=])")
_PEM_LONG: Final = 32
_PEM_WORD: Final = 12

# Matches at least 13 digits in groups. Some of the groups may form a card number; the others may be further numbers,
# such as an expiry month.
_DIGITS: Final = re.compile(
    r"(?<![0-9A-Za-z])(?<![0-9]\.)[0-9](?:[ \-\u00a0\u2010-\u2013\u202f]?[0-9]){12,}(?![0-9A-Za-z])"
)
# Matches card numbers whose groups are separated by points, slashes, underscores or two spaces. The digits must be
# grouped as on a printed card, because digits with a point in another place are usually a decimal number.
_PRINTED_CARD: Final = re.compile(
    r"(?<![0-9A-Za-z.])[0-9]{4}([._/]|  )(?:[0-9]{4}\1[0-9]{4}\1[0-9]{1,7}|[0-9]{6}\1[0-9]{5})(?![0-9A-Za-z])"
)
_COOKIES: Final = re.compile(r"(?i:\b(set-)?cookie:)([^\r\n\"'`|&<>()$\\]{1,4096})")
_COOKIE: Final = re.compile(
    r"(?<![^\s;])[^\s;=]{1,100}=(?=[A-Za-z%._~+/=-]{0,200}[0-9])([A-Za-z0-9%._~+/=-]{8,4096})"
)
_SENTENCE: Final = re.compile(r"[A-Za-z]{1,20}(?: [A-Za-z]{1,20}){4,}[.!?]?")
_GROUP: Final = re.compile("[0-9]+")
_LONGEST_CARD: Final = 19
_FIRST_GROUP: Final = 4
# Matches the prefixes and lengths that card issuers use. The Luhn checksum alone would accept one in ten numbers, such
# as order numbers.
_ISSUED: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|220[0-4]\d{12,15}"
    r"|3[47]\d{13}|3(?:0[0-59]|[689]\d)\d{11}|35(?:2[89]|[3-8]\d)\d{12}(?:\d{3})?"
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12}(?:\d{3})?|62\d{14,17}|(?:5018|5020|5038|5893|6304|6759|676[1-3])\d{9,15}"
)
LEAST_CARD: Final = 10**12


def _cards(text: str) -> Iterator[tuple[int, int]]:
    for run in _DIGITS.finditer(text):
        groups = [each.span() for each in _GROUP.finditer(text, *run.span())]
        even = len({stop - start for start, stop in groups[:-1]}) == 1
        for first, (start, stop) in enumerate(groups):
            # A number that begins with fewer than four digits in a group is usually a telephone number. It can be a
            # card number only if this is the first group, and all groups except the last have the same length.
            if stop - start < _FIRST_GROUP and (first or not even):
                continue
            digits = ""
            for begin, end in groups[first : first + _LONGEST_CARD]:
                digits += text[begin:end]
                if len(digits) > _LONGEST_CARD:
                    break
                if _is_card(digits):
                    yield start, end


def _printed_cards(text: str) -> Iterator[tuple[int, int]]:
    for match in _PRINTED_CARD.finditer(text):
        if _is_card("".join(_GROUP.findall(match[0]))):
            yield match.span()


def _cookies(text: str) -> Iterator[tuple[int, int]]:
    for header in _COOKIES.finditer(text):
        for number, match in enumerate(_COOKIE.finditer(text, *header.span(2))):
            # In `Set-Cookie` only the first pair is a cookie; the others are attributes.
            if not (header[1] and number):
                yield match.span(1)


def _is_card(digits: str) -> bool:
    if not _ISSUED.fullmatch(digits):
        return False
    total = 0
    for index, digit in enumerate(reversed(digits)):
        # Luhn checksum: every second digit is doubled, and the digits of the result are added.
        total += sum(divmod(int(digit) * (1 + index % 2), 10))
    return total % 10 == 0


def secret_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of every secret that has a known form. The positions are unsorted, and may overlap."""
    for needle, pattern in _PATTERNS:
        if needle in text if isinstance(needle, str) else any(each in text for each in needle):
            for match in pattern.finditer(text):
                yield match.span(pattern.groups)
    if '"' in text or "'" in text:
        for pattern in _QUOTED_PATTERNS:
            yield from _values_in_quotes(text, pattern)
    if "://" in text:
        yield from _passwords_in_addresses(text)
    if "-----BEGIN " in text:
        yield from _private_keys(text)
    if "ookie" in text or "OOKIE" in text:
        yield from _cookies(text)
    yield from _cards(text)
    yield from _printed_cards(text)


def _values_in_quotes(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    counted = 0
    quotes = {'"': 0, "'": 0}
    for match in pattern.finditer(text):
        start, end = match.span(1)
        for quote, form in _QUOTES.items():
            quotes[quote] += sum(1 for _ in form.finditer(text, counted, start - 1))
        counted = start - 1
        if quotes[text[start - 1]] % 2:
            # If the number of earlier quotes is odd, this quote ends an earlier text and does not begin the value. The
            # value is then not in quotes, so it ends at the first space.
            blank = text.find(" ", start, end)
            end = end if blank < 0 else blank
        elif _SENTENCE.fullmatch(text, start, end) and "pass" not in text[match.start() : start].lower():
            # A value of several words is masked only after the name of a password, such as `password:`. After other
            # names, such as `token:`, it may be an instruction to the tool, which the approver must see.
            continue
        yield start, end


def _passwords_in_addresses(text: str) -> Iterator[tuple[int, int]]:
    for match in _ADDRESS.finditer(text):
        start, end = match.span(1)
        if _REDACTED.fullmatch(match[1]):
            continue
        delimiters = list(_DELIMITER.finditer(text, start, end))
        if not delimiters:
            yield start, end
            continue
        # The text between the delimiters stays visible, since it may contain a command.
        first, last = delimiters[0].start(), delimiters[-1].end()
        if start < first:
            yield start, first
        if last < end:
            yield last, end


def _private_keys(text: str) -> Iterator[tuple[int, int]]:
    begins: int | None = None
    for mark in _PEM.finditer(text):
        if begins is not None:
            yield from _lines_of_key(text, begins, mark.start())
        begins = mark.end() if mark[0].endswith("PRIVATE KEY") else None
    if begins is not None:
        yield from _lines_of_key(text, begins, len(text))


def _lines_of_key(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for match in _PEM_LINE.finditer(text, start, end):
        line = match[0]
        begins, ends = match.span()
        if line[0] in "nr" and text[begins - 1] == "\\":
            # The line break before this line of the private key is the escape sequence `\n` or `\r`. Its letter is
            # skipped, because it is not part of the key.
            begins, line = begins + 1, line[1:]
        if len(line) < _PEM_LONG:
            before = text[max(start, begins - 2) : begins].strip(" \t")
            after = text[ends : ends + 2].strip(" \t")
            alone = before.endswith(("\n", "\r", "\\n", "\\r")) and (
                ends == len(text) or after.startswith(("\n", "\r", "\\n", "\\r", "--", '"'))
            )
            plain = line.isalpha() and line.islower() and len(line) < _PEM_WORD
            path = line.startswith("/") and line.lower() == line
            if not alone or plain or path:
                continue
        yield begins, ends
