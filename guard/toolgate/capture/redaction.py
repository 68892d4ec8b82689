"""What is hidden without being asked: secrets by the name they have and by the form they have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Final

__all__ = ["REDACTED", "SecretRule", "looks_secret", "scrub"]

REDACTED: Final = "[redacted]"

# Of a message; what is shorter than the shortest is too common to be cut out of one.
_LONGEST: Final = 1000
_SHORTEST: Final = 4
# Longer names are looked at anew each time: what is remembered must not fill the memory.
_LONGEST_KEPT: Final = 255

_WORDS: Final = frozenset((
    "auth", "authorization", "bearer", "cookie", "cookies", "credential", "credentials", "jwt",
    "cvc", "cvv", "cvv2", "dsn", "iban", "pan", "ssn", "otp", "passcode", "passphrase", "token",
    "passwd", "password", "passwords", "pw", "pwd", "secret", "secrets",
))  # fmt: skip
# Hidden only where they are the whole name: inside a longer one they mean something else.
_WHOLE: Final = frozenset((
    "pass", "pin", "pincode", "session", "sessionid", "sessionkey", "tokens",
))  # fmt: skip
# Written together these are unmistakable even inside a longer name.
_COMPOUNDS: Final = re.compile(
    r"password|passwd|passphrase|apikey|privatekey|secretkey|accesskey|signingkey|encryptionkey|clientsecret"
    r"|credential|authorization|setcookie|cardnumber|cardno|creditcard|securitycode|connectionstring|connstr"
    r"|(?:access|auth|refresh|session|bearer|id|api)tokens?$"
    r"|(?:admin|card|db|database|ftp|mail|mysql|pg|redis|root|smtp|sql|user)(?:pass|pin)$"
)
# What a `…_key` may be without opening anything; every other one is taken for a secret.
_OPEN_KEYS: Final = frozenset((
    "any", "answer", "attribute", "blob", "bucket", "by", "cache", "candidate", "child", "column", "composite",
    "config", "context", "count", "data", "dedup", "dedupe", "dict", "document", "entity", "entry", "event",
    "feature", "field", "file", "filter", "first", "foreign", "group", "has", "hash", "hot", "id", "idempotency",
    "index", "is", "issue", "item", "job", "join", "json", "key", "label", "language", "last", "left", "lock",
    "lookup", "map", "merge", "message", "metric", "natural", "new", "next", "no", "object", "old", "on", "option",
    "order", "parent", "partition", "prefix", "press", "primary", "project", "property", "public", "queue", "range",
    "record", "reference", "registry", "result", "right", "routing", "row", "s3", "search", "setting", "shard",
    "short", "shortcut", "sort", "space", "state", "storage", "surrogate", "table", "task", "thread", "topic",
    "translation", "unique", "value",
))  # fmt: skip
_BOUNDARY: Final = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

# A header in a command line: what follows has a digit, which a sentence seldom has.
_HEADER: Final = (
    r"(?i:\b(?:(?:proxy-)?authorization|x-(?:[a-z]{1,20}-){0,3}(?:key|token|secret)|api-key)[\"']?\s{0,3}:\s{0,3}"
    r"[\"']?(?:[a-z]{2,20}\s{1,3})?(?=[^\s\"',;]{0,200}[0-9])[^\s\"',;]{8,1000})"
)
# JSON within JSON.
_ESCAPED: Final = (
    r"(?i:(?:passw(?:or)?d|pwd|passphrase|secret|(?:api|access|secret)_?key|token)"
    r"\\\":\s{0,5}\\\"[^\"]{4,1000})"
)
# Each with a text it cannot do without, looked for first because that is much faster. All of them are
# anchored or bounded: none may take longer than the text is long.
_PATTERNS: Final = tuple((needle, re.compile(pattern, re.DOTALL)) for needle, pattern in (
    ("", r"(?i:\b(?:bearer|basic)\s{1,20}[A-Za-z0-9._~+/=-]{8,})"),
    ("-----BEGIN ", r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"),
    ("ak_", r"\bak_[a-z0-9]{37}\b"),
    ("test_", r"\btest_[a-z0-9]{35}\b"),
    ("k", r"\b(?:sk|rk|pk)[-_][A-Za-z0-9_-]{16,}"),
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
    ("://", r"(?<=://)[^\s/?#@:]{0,200}:[^\s/?#@]{1,200}@"),
    ("=", r"(?i:(?:passw(?:or)?d|pwd|passphrase|secret|(?:api|access|secret)_?key|token)=[^\s&,;]{4,1000})"),
    ('":', r"(?i:(?:passw(?:or)?d|pwd|passphrase|secret|(?:api|access|secret)_?key|token)\":\s{0,5}\"[^\"]{4,1000})"),
    ("':", r"(?i:(?:passw(?:or)?d|pwd|passphrase|secret|(?:api|access|secret)_?key|token)':\s{0,5}'[^']{4,1000})"),
    ("--", r"(?i:--(?:password|passwd|passphrase|secret|token|api-?key)[= ][\"']?[^\s\"'-][^\s\"']{3,1000})"),
    (":", _HEADER),
    ("curl", r"(?<!\S)(?:-u|--user)[ =]{0,3}[\"']?[^\s\"':-][^\s\"':]{0,200}:[^\s\"']{1,1000}"),
    ('\\":', _ESCAPED),
    ("e", r"(?i:aws_?secret_?(?:access_?)?key['\" :=]{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+]))"),
))  # fmt: skip
# Digits in groups; a card number may stand among others, like the month after it.
_DIGITS: Final = re.compile(
    r"(?<![0-9A-Za-z])(?<![0-9]\.)[0-9](?:[ \-\u00a0\u2010-\u2013\u202f]?[0-9]){12,}(?![0-9A-Za-z])"
)
_GROUP: Final = re.compile("[0-9]+")
_LONGEST_CARD: Final = 19
_FIRST_GROUP: Final = 4
# Luhn alone also accepts every tenth order number; the issuers' own ranges and lengths do not.
_ISSUED: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|220[0-4]\d{12,15}"
    r"|3[47]\d{13}|3(?:0[0-59]|[689]\d)\d{11}|35(?:2[89]|[3-8]\d)\d{12}(?:\d{3})?"
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12}(?:\d{3})?|62\d{14,17}|(?:5018|5020|5038|5893|6304|6759|676[1-3])\d{9,15}"
)
_LEAST_CARD: Final = 10**12


class SecretRule:
    """Decides what is hidden: by the name a value has, or by the form of the value itself.

    Args:
        names: Names to hide beside the built-in ones; case and separators do not matter.
        patterns: Forms to hide beside the built-in ones: a text, a name or a number as JSON writes it is
            hidden whole where one of them is found anywhere in it.
    """

    def __init__(self, names: Iterable[str] = (), patterns: Iterable[re.Pattern[str]] = ()) -> None:
        self._more = frozenset(_compact(name) for name in names)
        self.patterns = tuple(patterns)

    def hides(self, name: str) -> bool:
        """Whether a value called `name` is hidden."""
        known = _is_secret_name if len(name) <= _LONGEST_KEPT else _is_secret_name.__wrapped__
        return known(name) or (bool(self._more) and _compact(name) in self._more)

    def found_in(self, text: str) -> bool:
        """Whether `text` holds a secret."""
        return looks_secret(text) or any(pattern.search(text) for pattern in self.patterns)

    def found_in_name(self, name: str) -> bool:
        """As `found_in`, for a name: few come again and again."""
        looks = _name_looks_secret if len(name) <= _LONGEST_KEPT else looks_secret
        return looks(name) or any(pattern.search(name) for pattern in self.patterns)

    def found_in_number(self, number: float | Decimal) -> bool:
        """Whether `number` is a secret: a card number, or in one of the patterns."""
        if self.patterns and any(pattern.search(str(number)) for pattern in self.patterns):
            return True
        whole = abs(int(number))
        return whole >= _LEAST_CARD and whole == abs(number) and looks_secret(str(whole))


@lru_cache(maxsize=4096)
def _is_secret_name(name: str) -> bool:
    words = [word.lower() for word in _BOUNDARY.split(name) if word]
    if any(word in _WORDS for word in words):
        return True
    if len(words) > 1 and words[-1] == "key" and words[-2] not in _OPEN_KEYS:
        return True
    compact = _compact(name)
    return compact in _WHOLE or bool(_COMPOUNDS.search(compact))


def _compact(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "", name).lower()


def looks_secret(text: str) -> bool:
    """Whether `text` contains a bearer token, a private key, a known kind of key or a card number."""
    for needle, pattern in _PATTERNS:
        if needle in text and pattern.search(text):
            return True
    return any(True for _ in _cards(text))


_name_looks_secret: Final = lru_cache(maxsize=4096)(looks_secret)


def scrub(text: str, hidden: Iterable[str], patterns: Iterable[re.Pattern[str]] = ()) -> str:
    """The first 1,000 characters of `text` with everything secret replaced by `[redacted]`.

    Args:
        text: A message.
        hidden: What else is secret. One of fewer than four characters that stands in the text as a word,
            and an empty one, which means that not all is known, take the whole message away.
        patterns: What else has the form of a secret.
    """
    # What begins within the first 1,000 characters ends within twice as many, or is cut with them.
    text = text[: 2 * _LONGEST]
    spans: list[tuple[int, int]] = []
    for value in set(hidden):
        if len(value) < _SHORTEST and (
            not value or re.search(rf"(?<![^\W_]){re.escape(value)}(?![^\W_])", text)
        ):
            return REDACTED
        if len(value) >= _SHORTEST:
            spans.extend(_occurrences(value[:_LONGEST], text))
    spans.extend(
        match.span() for needle, each in _PATTERNS if needle in text for match in each.finditer(text)
    )
    spans.extend(_cards(text))
    spans.extend(match.span() for pattern in patterns for match in pattern.finditer(text))
    pieces: list[str] = []
    end = 0
    for start, stop in sorted(spans):
        if start >= _LONGEST:
            break
        if start >= end:
            pieces += [text[end:start], REDACTED]
        end = max(end, stop)
    return "".join(pieces) + text[end:_LONGEST]


def _occurrences(value: str, text: str) -> Iterator[tuple[int, int]]:
    start = text.find(value)
    while start >= 0:
        yield start, start + len(value)
        start = text.find(value, start + 1)


def _cards(text: str) -> Iterator[tuple[int, int]]:
    for run in _DIGITS.finditer(text):
        groups = [each.span() for each in _GROUP.finditer(text, *run.span())]
        even = len({stop - start for start, stop in groups[:-1]}) == 1
        for first, (start, stop) in enumerate(groups):
            # Telephone numbers begin with shorter groups; spaced out evenly it may be a card all the same.
            if stop - start < _FIRST_GROUP and (first or not even):
                continue
            digits = ""
            for begin, end in groups[first : first + _LONGEST_CARD]:
                digits += text[begin:end]
                if len(digits) > _LONGEST_CARD:
                    break
                if _is_card(digits):
                    yield start, end


def _is_card(digits: str) -> bool:
    if not _ISSUED.fullmatch(digits):
        return False
    total = 0
    for index, digit in enumerate(reversed(digits)):
        # Luhn: every second digit counts twice, as the sum of its digits.
        total += sum(divmod(int(digit) * (1 + index % 2), 10))
    return total % 10 == 0
