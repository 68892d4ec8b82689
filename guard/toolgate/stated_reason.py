"""The reason for tool calls, as the model or the user gave it: approvers read it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final

from toolgate.errors import ConfigurationError

__all__ = ["LONGEST_REASON", "current_reason", "is_shown", "reason", "sendable_reason"]

LONGEST_REASON: Final = 1000
_JOINERS: Final = "\u200c\u200d"


@contextmanager
def reason(text: str) -> Iterator[None]:
    """State why the agent makes the tool calls inside the block: approvers read it beside each request.

    The text is the model's or the user's request. The gateway does not verify it, decides nothing by it, and an approval
    is not bound to it. Secrets are masked as in arguments, and only the first 1,000 characters are sent.

        with toolgate.reason(user_message):
            agent.invoke({"messages": [user_message]})

    Args:
        text: The reason; white space around it is removed, and an empty text is no reason.

    Raises:
        ConfigurationError: If the text is not a string.
    """
    _valid(text)
    token = _reason.set(text)
    try:
        yield
    finally:
        # A generator may be closed in another context than it began in.
        with suppress(ValueError):
            _reason.reset(token)


def current_reason(patterns: Iterable[re.Pattern[str]] = ()) -> str | None:
    """Return the reason of the block around this call, ready to be sent, or None."""
    text = _reason.get()
    return None if text is None else sendable_reason(text, patterns)


def sendable_reason(text: str, patterns: Iterable[re.Pattern[str]] = ()) -> str | None:
    """Return a reason of at most 1,000 characters, without secrets and control characters; None if it is empty.

    Raises:
        ConfigurationError: If it is not a string.
    """
    from toolgate._capture.redaction import REDACTED, SecretRule

    text = _valid(text).strip()
    # The whole text, before it is cut: half a secret does not look like one.
    masked = SecretRule(patterns=patterns).mask(text)
    if masked is not None:
        text = REDACTED if masked.visible is None else masked.visible
    text = "".join(char if is_shown(char) else "�" for char in text[: LONGEST_REASON + 1])
    return (text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…") or None


def _valid(text: object) -> str:
    if not isinstance(text, str):
        raise ConfigurationError(
            f"reason is of type {type(text).__name__}; use a text, such as the user's request"
        )
    return text


def is_shown(char: str) -> bool:
    """Return whether the gateway accepts a character in free text."""
    # Every kind of blank, and joiners of emoji, are not printable for Python.
    return char.isprintable() or char in "\n\r\t" or char in _JOINERS or unicodedata.category(char) == "Zs"


_reason: ContextVar[str | None] = ContextVar("toolgate_reason", default=None)
