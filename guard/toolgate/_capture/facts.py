"""Facts that a log entry contains in addition to the arguments, such as the duration and the error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from toolgate._capture.binding import free_name
from toolgate._capture.jsontext import Json, size
from toolgate._capture.redaction import scrub

__all__ = ["clip", "describe_error", "with_facts"]

_MAX_MESSAGE: Final = 1000
_MAX_BYTES: Final = 3000
_MAX_TYPE: Final = 200
_UNSENDABLE: Final = re.compile("[\x00\ud800-\udfff]")


def with_facts(context: Mapping[str, Json], facts: Mapping[str, Json]) -> dict[str, Json]:
    """Return the context of a log entry: the checked arguments, with facts such as the duration added.

    If an argument has the same name as a fact, the name of the fact gets a trailing underscore.
    """
    entry = dict(context)
    for name, value in facts.items():
        entry[free_name(name, entry)] = value
    return entry


def describe_error(
    error: BaseException, hidden: Iterable[str], patterns: Iterable[re.Pattern[str]] = ()
) -> dict[str, Json]:
    """Return the type of an exception and the first 1,000 characters of its message, with secrets redacted.

    Args:
        error: Exception to describe.
        hidden: Secrets to redact in addition to texts that have the form of a secret.
        patterns: Patterns of secrets to redact in addition to the built-in patterns.
    """
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001 - an exception's own `__str__` may raise anything; the tool's error is raised all the same
        message = "<the message cannot be read>"
    return {"type": clip(type(error).__name__[:_MAX_TYPE]), "message": clip(scrub(message, hidden, patterns))}


def clip(text: str) -> str:
    """Return the beginning of `text` for a log entry: at most 1,000 characters and 3,000 bytes of JSON.

    The gateway accepts requests of up to 64 KiB. The arguments may take up 60 KiB, which leaves 4 KiB for the other
    fields of the log entry.
    """
    text = _UNSENDABLE.sub("�", text[:_MAX_MESSAGE])
    while size(text) > _MAX_BYTES:
        text = text[: len(text) * 3 // 4]
    return text
