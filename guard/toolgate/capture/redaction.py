"""What is hidden without being asked: secrets by the name they have and by the form they have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

__all__ = ["REDACTED", "NameRule", "looks_secret", "scrub"]

REDACTED: Final = "[redacted]"

_WORDS: Final = frozenset((
    "auth", "authorization", "bearer", "cookie", "cookies", "credential", "credentials", "jwt",
    "cvc", "cvv", "cvv2", "pan", "ssn", "otp", "passcode", "passphrase", "token",
    "passwd", "password", "passwords", "pw", "pwd", "secret", "secrets",
))  # fmt: skip
# Written together these are unmistakable even inside a longer name.
_COMPOUNDS: Final = re.compile(
    r"password|passwd|passphrase|apikey|privatekey|secretkey|accesskey|signingkey|encryptionkey|clientsecret"
    r"|credential|authorization|setcookie|cardnumber|cardno|creditcard|securitycode"
    r"|(?:access|auth|refresh|session|bearer|id|api)token$"
)
_BOUNDARY: Final = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_PATTERNS: Final = (
    re.compile(r"\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\b(?:ak_[a-z0-9]{37}|test_[a-z0-9]{35})\b"),
    re.compile(r"\b(?:sk|rk|pk)[-_][A-Za-z0-9_-]{16,}"),
    re.compile(r"\b(?:gh[opsur]_|github_pat_|glpat-|xox[abprs]-)[A-Za-z0-9_-]{10,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
)
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
    words = _BOUNDARY.split(name)
    return any(word.lower() in _WORDS for word in words) or bool(_COMPOUNDS.search(_compact(name)))


def _compact(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "", name).lower()


def looks_secret(text: str) -> bool:
    """Whether `text` contains a bearer token, a private key, a known kind of key or a card number."""
    return any(pattern.search(text) for pattern in _PATTERNS) or any(
        _is_card(match.group()) for match in _CARD.finditer(text)
    )


def scrub(text: str, hidden: Iterable[str]) -> str:
    """Replace in `text` every hidden value and everything that looks like a secret by `[redacted]`."""
    # The longest first: a hidden value may be part of another.
    for value in sorted(set(hidden), key=len, reverse=True):
        text = text.replace(value, REDACTED)
    for pattern in _PATTERNS:
        text = pattern.sub(REDACTED, text)
    return _CARD.sub(lambda match: REDACTED if _is_card(match.group()) else match.group(), text)


def _is_card(text: str) -> bool:
    digits = text.replace(" ", "").replace("-", "")
    if not _ISSUED.fullmatch(digits):
        return False
    total = 0
    for index, digit in enumerate(reversed(digits)):
        # Luhn: every second digit counts twice, as the sum of its digits.
        total += sum(divmod(int(digit) * (1 + index % 2), 10))
    return total % 10 == 0
