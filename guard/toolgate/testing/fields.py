"""Reading the bodies of checks and log entries, all complaints together, in the real gateway's words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Final

from toolgate._capture.jsontext import exact, loads
from toolgate.stated_reason import LONGEST_REASON, is_shown
from toolgate.testing.answers import REQUIRED, fields_refused

__all__ = ["REFERENCE_RULE", "Fields", "is_reference", "read_object"]

_LONGEST: Final = 255
_DEEPEST: Final = 32
_LARGEST: Final = 64 * 1024
_ACTION_RULE: Final = f"must be 1-{_LONGEST} visible ASCII characters"
REFERENCE_RULE: Final = f"must be 1-{_LONGEST} printable characters"
_MOMENT_RULE: Final = "must be an ISO 8601 timestamp, such as 2026-01-31T12:00:00Z"


def read_object(raw: bytes | None) -> dict[str, Any]:
    """The members of a body.

    Raises:
        Refusal: 400, it is no JSON object.
    """
    try:
        value = loads(raw or b"", exactly=True)
    except (ValueError, RecursionError):
        raise fields_refused({"body": ["The body is not valid JSON"]}) from None
    if not isinstance(value, dict):
        raise fields_refused({"body": ["The body must be a JSON object"]})
    return value


def is_reference(text: str) -> bool:
    """Whether a text may be a caller's own reference."""
    return 1 <= len(text) <= _LONGEST and text.isprintable()


class Fields:
    """Reads one body; `finish` refuses it if anything was wrong.

    Args:
        body: Its members.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body
        self._problems: dict[str, list[str]] = {}

    def finish(self) -> None:
        """End the reading.

        Raises:
            Refusal: 400, something was wrong.
        """
        if self._problems:
            raise fields_refused(self._problems)

    def text(self, name: str) -> str:
        """A required text."""
        value = self._body.get(name)
        if isinstance(value, str) and value:
            return value
        return self._complain(name, REQUIRED if value is None or value == "" else "must be a string")

    def action(self) -> str:
        """The required action."""
        value = self.text("action")
        if value and not (len(value) <= _LONGEST and all("!" <= char <= "~" for char in value)):
            return self._complain("action", _ACTION_RULE)
        return value

    def choice(self, name: str, words: tuple[str, ...]) -> str:
        """A required word of a few."""
        value = self._body.get(name)
        if isinstance(value, str) and value in words:
            return value
        return self._complain(name, REQUIRED if value is None else f"must be one of {', '.join(words)}")

    def reference(self, name: str) -> str | None:
        """An optional reference of the caller's."""
        value = self._body.get(name)
        if value is None or (isinstance(value, str) and is_reference(value)):
            return value
        self._complain(name, REFERENCE_RULE)
        return None

    def description(self, name: str) -> str | None:
        """An optional free text, without the blanks around it."""
        value = self._body.get(name)
        if value is None:
            return None
        if (
            isinstance(value, str)
            and len(value.strip()) <= LONGEST_REASON
            and all(map(is_shown, value.strip()))
        ):
            return value.strip() or None
        self._complain(name, f"must be at most {LONGEST_REASON} printable characters")
        return None

    def flag(self, name: str) -> bool:
        """An optional boolean."""
        value = self._body.get(name)
        if value is not None and not isinstance(value, bool):
            self._complain(name, "must be true or false")
        return value is True

    def address(self, name: str) -> None:
        """An optional IP address."""
        value = self._body.get(name)
        if value is not None and not _is_address(value):
            self._complain(name, "must be an IP address")

    def moment(self, name: str) -> None:
        """An optional moment."""
        value = self._body.get(name)
        if value is not None and not _is_moment(value):
            self._complain(name, _MOMENT_RULE)

    def context(self) -> dict[str, Any] | None:
        """The optional context."""
        value = self._body.get("context")
        if value is None:
            return None
        if not isinstance(value, dict):
            self._complain("context", "must be an object")
        elif _deeper_than(_DEEPEST, value):
            self._complain("context", f"must not be nested deeper than {_DEEPEST} levels")
        elif len(exact(value).encode()) > _LARGEST:
            self._complain("context", f"must not be larger than {_LARGEST} bytes")
        else:
            return value
        return None

    def _complain(self, name: str, message: str) -> str:
        self._problems.setdefault(name, []).append(message)
        return ""


def _is_address(value: object) -> bool:
    try:
        return isinstance(value, str) and "%" not in value and bool(ip_address(value))
    except ValueError:
        return False


def _is_moment(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value).astimezone(UTC))
    except (ValueError, OverflowError):
        return False


def _deeper_than(levels: int, value: Any) -> bool:
    containers: list[Any] = [value]
    for _ in range(levels):
        containers = [
            item
            for container in containers
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
    return bool(containers)
