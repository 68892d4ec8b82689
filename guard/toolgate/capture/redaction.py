"""What is hidden without being asked: secrets by the name they have and by the form they have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

__all__ = ["REDACTED", "NameRule", "looks_secret", "scrub"]

REDACTED: Final = "[redacted]"

# Of a message; what is shorter than the shortest is too common to be cut out of one.
_LONGEST: Final = 1000
_SHORTEST: Final = 4

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
    ("e", r"(?i:aws_?secret_?(?:access_?)?key['\" :=]{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+]))"),
))  # fmt: skip
_CARD: Final = re.compile(r"(?<![0-9A-Za-z.])[23456](?:[ -]?[0-9]){12,18}(?![0-9A-Za-z])")
# Luhn alone also accepts every tenth order number; the issuers' own ranges and lengths do not.
_ISSUED: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|3[0689]\d{12}|35\d{14}|6(?:011|5\d\d)\d{12}"
)


class NameRule:
    """Decides by an argument's, field's or key's name whether its value is hidden.

    Args:
        more: Names to hide beside the built-in ones; case and separators do not matter.
    """

    def __init__(self, more: Iterable[str] = ()) -> None:
        self._more = frozenset(_compact(name) for name in more)

    def hides(self, name: str) -> bool:
        """Whether a value called `name` is hidden."""
        return _is_secret_name(name) or (bool(self._more) and _compact(name) in self._more)


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
    return any(_is_card(match.group()) for match in _CARD.finditer(text))


def scrub(text: str, hidden: Iterable[str]) -> str:
    """The first 1,000 characters of `text` with everything secret replaced by `[redacted]`.

    Args:
        text: A message.
        hidden: What else is secret. One of fewer than four characters that stands in the text as a word,
            and an empty one, which means that not all is known, take the whole message away.
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
    spans.extend(match.span() for match in _CARD.finditer(text) if _is_card(match.group()))
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


def _is_card(text: str) -> bool:
    digits = text.replace(" ", "").replace("-", "")
    if not _ISSUED.fullmatch(digits):
        return False
    total = 0
    for index, digit in enumerate(reversed(digits)):
        # Luhn: every second digit counts twice, as the sum of its digits.
        total += sum(divmod(int(digit) * (1 + index % 2), 10))
    return total % 10 == 0
