"""Which fields of a context a person looks at first, and which are hidden.

A field counts by the words of its name, split at ``_``, ``-``, ``.``, spaces and capitals: ``refund_amount``,
``refundAmount`` and ``amount`` are amounts alike, ``amounted`` is not.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: a field is an amount when one of these is a word of its name
AMOUNT_WORDS = frozenset({
    "amount", "amounts", "total", "sum", "price", "cost", "fee", "currency", "cents", "quantity", "qty",
})  # fmt: skip

#: likewise a recipient, unless it is an amount
RECIPIENT_WORDS = frozenset({
    "to", "cc", "bcc", "recipient", "recipients", "email", "emails", "customer", "account", "destination", "payee",
    "beneficiary", "iban", "phone", "address", "user", "channel", "host", "url",
})  # fmt: skip

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def in_reading_order(context: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the fields: amounts, then recipients, then the rest; each group as the gateway has it."""
    return sorted(context.items(), key=lambda field: _rank(field[0]))


def is_hidden(value: Any) -> bool:
    """Say whether nothing is shown of a value but its digest (decisions §13)."""
    return _has_digest(value) and value.keys() <= {"$digest", "bytes", "$object"}


def redacted_text(value: Any) -> str | None:
    """Return the visible part of a text whose secrets are masked, or None for any other value (decisions §13)."""
    if _has_digest(value) and value.keys() <= {"$redacted", "$digest", "bytes"}:
        text = value.get("$redacted")
        return text if isinstance(text, str) else None
    return None


def hidden_names(value: Any, name: str = "") -> Iterator[str]:
    """Yield the dotted names of everything in a value that is hidden, wholly or in part."""
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
    words = _words(name)
    if words & AMOUNT_WORDS:
        return 0 if name == "amount" else 1
    return 2 if words & RECIPIENT_WORDS else 3


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(name)}
