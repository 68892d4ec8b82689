"""Redaction of secrets in arguments and messages. A secret is found by its name or by its form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final

from toolgate._capture.patterns import LEAST_CARD, secret_spans
from toolgate._capture.serializer import Extended, Frozen, Secret

__all__ = ["REDACTED", "Masked", "SecretRule", "forms", "forms_within", "looks_secret", "scrub"]

REDACTED: Final = "[redacted]"

# Maximum length of a message in characters.
_LONGEST: Final = 1000
# Minimum length of a secret that is replaced within a message. If a message contains a shorter secret as a word,
# `scrub` redacts the whole message.
_SHORTEST: Final = 4
# Maximum length of a name whose result (secret or not) is cached. The limit keeps the cache small.
_LONGEST_KEPT: Final = 255

_WORDS: Final = frozenset((
    "auth", "authorization", "bearer", "cookie", "cookies", "credential", "credentials", "jwt",
    "cvc", "cvv", "cvv2", "dsn", "iban", "pan", "ssn", "otp", "passcode", "passphrase", "token",
    "passwd", "password", "passwords", "pw", "pwd", "secret", "secrets",
))  # fmt: skip
# Names that mean a secret only on an exact match. In a longer name they mean something else: `tokens` is a secret, but
# `max_tokens` is not.
_WHOLE: Final = frozenset((
    "pass", "pin", "pincode", "session", "sessionid", "sessionkey", "tokens",
))  # fmt: skip
# Matches compounds that mean a secret even inside a longer name. Separators are removed from the name before the
# search.
_COMPOUNDS: Final = re.compile(
    r"password|passwd|passphrase|apikey|privatekey|secretkey|accesskey|signingkey|encryptionkey|clientsecret"
    r"|credential|authorization|setcookie|cardnumber|cardno|creditcard|securitycode|connectionstring|connstr"
    r"|(?:access|auth|refresh|session|bearer|id|api)tokens?$"
    r"|(?:admin|card|db|database|ftp|mail|mysql|pg|redis|root|smtp|sql|user)(?:pass|pin)$"
)
# Words before `key` in names that are not secret, such as `primary_key`. After any other word, `key` means a secret.
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


# Maximum number of secrets that are masked in a text. A text with more secrets is hidden completely.
_MOST: Final = 1000
_LONGEST_JSON: Final = 32 * 1024
# Maximum number of items and names of a hidden value for which error messages are searched. If the value contains more,
# error messages are redacted completely.
_MOST_PARTS: Final = 10_000
# Matches texts that `repr`, `ascii` and JSON do not change.
_UNCHANGED: Final = re.compile(r"[ !#-&(-\[\]-~]*")
_JSON_STRING: Final = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:\s*)?')


@dataclass(frozen=True, slots=True)
class Masked:
    """A text whose secrets are masked.

    Attributes:
        visible: The text with a marker in place of each secret, or None if the complete text is hidden.
        secrets: The secrets that were masked.
    """

    visible: str | None
    secrets: tuple[str, ...]


class SecretRule:
    """Finds secrets by the name of a value, such as `password`, or by the form of the value, such as a card number.

    Args:
        names: Additional names whose values are secrets; case and separators are ignored.
        patterns: Additional patterns that match secrets. They are applied to strings, to names, and to numbers after
            conversion with `str`.
    """

    def __init__(self, names: Iterable[str] = (), patterns: Iterable[re.Pattern[str]] = ()) -> None:
        self._more = frozenset(_compact(name) for name in names)
        self.patterns = tuple(patterns)

    def hides(self, name: str) -> bool:
        """Return whether `name` is the name of a secret, whose value is hidden."""
        known = _is_secret_name if len(name) <= _LONGEST_KEPT else _is_secret_name.__wrapped__
        return known(name) or (bool(self._more) and _compact(name) in self._more)

    def mask(self, text: str) -> Masked | None:
        """Return `text` with its secrets masked, or None if it contains none."""
        spans: list[tuple[int, int]] = []
        for span in self._spans(text):
            spans.append(span)
            if len(spans) > _MOST or span[0] == span[1]:
                # The complete text is hidden if it contains too many secrets, or if a pattern has an empty match: an
                # empty match does not contain the secret that the pattern is meant to find.
                return Masked(None, (text,))
        if not spans:
            return None
        merged = _merged(spans)
        visible = None if merged == [(0, len(text))] else _without(text, merged, _marker(text))
        return Masked(visible, tuple(text[start:end] for start, end in merged))

    def found_in_name(self, name: str) -> bool:
        """Return whether `name` itself contains a secret, such as an API key."""
        # Results for names are cached, since most calls contain the same few names.
        looks = _name_looks_secret if len(name) <= _LONGEST_KEPT else looks_secret
        return looks(name) or (bool(self.patterns) and any(each.search(name) for each in self.patterns))

    def found_in_number(self, number: float | Decimal) -> bool:
        """Return whether `number` is a secret: a card number, or a match of one of the patterns."""
        if self.patterns and any(pattern.search(str(number)) for pattern in self.patterns):
            return True
        whole = abs(int(number))
        return whole >= LEAST_CARD and whole == abs(number) and looks_secret(str(whole))

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        yield from secret_spans(text)
        for pattern in self.patterns:
            for match in pattern.finditer(text):
                yield match.span()
        if len(text) <= _LONGEST_JSON and text[:64].lstrip().startswith(("{", "[")):
            yield from self._members(text)

    def _members(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each value that has the name of a secret, if the complete text is JSON."""
        decoder = json.JSONDecoder()
        try:
            decoder.decode(text)
        except (ValueError, RecursionError):
            return
        position = 0
        while (found := _JSON_STRING.search(text, position)) is not None:
            position = found.end()
            if found[2] is None or not self.hides(decoder.decode(found[1])):
                continue
            value, position = decoder.raw_decode(text, position)
            # Only the content of a string is masked, not its quotes.
            quote = isinstance(value, str)
            if value is not None and value != "":
                yield found.end() + quote, position - quote


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
    """Return whether `text` contains a secret of a known form, such as a password, private key or card number."""
    return any(True for _ in secret_spans(text))


_name_looks_secret: Final = lru_cache(maxsize=4096)(looks_secret)


def scrub(text: str, hidden: Iterable[str], patterns: Iterable[re.Pattern[str]] = ()) -> str:
    """Return the first 1,000 characters of the message `text`, with each secret replaced by `[redacted]`.

    Args:
        text: A message.
        hidden: Secrets to redact in addition to texts that have the form of a secret. If the message contains a secret
            of fewer than four characters as a word, the whole message is redacted. The same applies if `hidden`
            contains an empty text, which means that the list is incomplete.
        patterns: Patterns of secrets to redact in addition to the built-in patterns.
    """
    # Only secrets that begin in the first 1,000 characters affect the result, and at most 1,000 characters of each
    # value in `hidden` are compared. Such a value therefore ends within the first 2,000 characters, so only these are
    # searched.
    text = text[: 2 * _LONGEST]
    spans: list[tuple[int, int]] = []
    for value in set(hidden):
        if len(value) < _SHORTEST and (
            not value or re.search(rf"(?<![^\W_]){re.escape(value)}(?![^\W_])", text)
        ):
            return REDACTED
        if len(value) >= _SHORTEST:
            spans.extend(_occurrences(value[:_LONGEST], text))
    spans.extend(secret_spans(text))
    spans.extend(match.span() for pattern in patterns for match in pattern.finditer(text))
    # A secret that begins before the limit of 1,000 characters and ends after it is masked completely.
    shown = [span for span in _merged(spans) if span[0] < _LONGEST]
    end = max(_LONGEST, shown[-1][1]) if shown else _LONGEST
    return _without(text[:end], shown, REDACTED)


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans (start and end) in order, without empty ones; spans that overlap or touch are joined."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _without(text: str, spans: Sequence[tuple[int, int]], marker: str) -> str:
    """Return `text` with each span (start and end of a secret) replaced by a marker such as `[redacted]`."""
    pieces: list[str] = []
    position = 0
    for start, end in spans:
        pieces += [text[position:start], marker]
        position = end
    return "".join(pieces) + text[position:]


def _marker(text: str) -> str:
    """Return a marker such as `[redacted]` that `text` does not contain, so that `text` cannot imitate it."""
    if REDACTED not in text:
        return REDACTED
    number = 1
    while (marker := f"[redacted {number}]") in text:
        number += 1
    return marker


def _occurrences(value: str, text: str) -> Iterator[tuple[int, int]]:
    start = text.find(value)
    while start >= 0:
        yield start, start + len(value)
        start = text.find(value, start + 1)


def forms(text: str) -> set[str]:
    """Return the forms in which a message may contain `text`: unchanged, and as written by `repr`, `ascii` and JSON."""
    text = text[:_LONGEST]
    if not text or _UNCHANGED.fullmatch(text):
        return {text} - {""}
    # `repr` escapes a single quote only if the text contains both kinds of quotes. The message may contain the
    # `repr` of a longer text that also contains other quotes, so both forms are returned: with and without the escape.
    quoted = {repr(text)[1:-1], ascii(text)[1:-1], repr("'\"" + text)[4:-1], json.dumps(text)[1:-1]}
    found = {text, *quoted, json.dumps(text, ensure_ascii=False)[1:-1]}
    return {form[:_LONGEST] for form in found | {repr(form)[1:-1] for form in quoted}}


def forms_within(value: Frozen) -> Iterator[str]:
    """Yield the forms in which an error message may contain the items and names inside a hidden value.

    If the value contains more than 10,000 items and names, yield an empty text: `scrub` then redacts the complete
    message.
    """
    left: list[Frozen] = [value]
    for _ in range(_MOST_PARTS):
        if not left:
            return
        item = left.pop()
        if isinstance(item, (dict, list, Secret, Extended)):
            left += _parts(item)
        elif isinstance(item, str):
            yield from forms(item)
        elif isinstance(item, bytes):
            yield from _forms_of_bytes(item[:_LONGEST])
        elif isinstance(item, (int, float, Decimal)) and not isinstance(item, bool):
            yield from {str(item), repr(item)}
    if left:
        yield ""


def _parts(value: list[Frozen] | dict[str, Frozen] | Secret | Extended) -> list[Frozen]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list):
        return value
    return [value.value] if isinstance(value, Secret) else [value.value, value.more]


def _forms_of_bytes(value: bytes) -> set[str]:
    """Return the forms in which a message may contain bytes: as text, as written by `repr`, and in hexadecimal."""
    found = forms(value.decode("utf-8", "replace")) | forms(value.decode("latin-1"))
    return {form[:_LONGEST] for form in found | {repr(value)[2:-1], value.hex()}} - {""}
