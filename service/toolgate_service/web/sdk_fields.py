"""Reading the fields of `/sdk/*` bodies, all complaints together (spec §7, decisions §2).

Written by hand rather than with pydantic: the values are exact already, and the answer must name every field at once.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from ipaddress import ip_address

from toolgate_service.canonical import canonical
from toolgate_service.errors import REQUIRED, FieldErrors
from toolgate_service.exact_json import Json, deeper_than
from toolgate_service.web.fields import (
    ACTION_RULE,
    DESCRIPTION_RULE,
    MOMENT_RULE,
    REFERENCE_RULE,
    is_action,
    is_description,
    is_reference,
    moment_of,
)

MAX_CONTEXT_BYTES = 64 * 1024
MAX_CONTEXT_DEPTH = 32

#: bytes of a body whose context cannot be too large: nothing becomes longer, written out, than `1e400`, eighty times
SURELY_SMALL = 800


class SdkFields:
    """Reads one body; `finish` raises whatever was wrong.

    Args:
        body: its members.
        raw: its text; with it, the canonical text of a context that cannot be too large is not written.
    """

    def __init__(self, body: Mapping[str, Json], raw: bytes | None = None) -> None:
        self._body = body
        self._small = raw is not None and len(raw) <= SURELY_SMALL
        self._errors: dict[str, list[str]] = {}
        #: the canonical text of the context that was read last, unless it was small
        self.canonical = "{}"

    @property
    def canonical_text(self) -> str | None:
        """The canonical text of the context; None if it was not written."""
        return None if self._small else self.canonical

    def finish(self) -> None:
        """End the reading.

        Raises:
            FieldErrors: something was wrong.
        """
        if self._errors:
            raise FieldErrors(self._errors)

    def text(self, name: str) -> str:
        """Read a required text."""
        value = self._body.get(name)
        if isinstance(value, str) and value:
            return value
        return self._complain(name, REQUIRED if value is None or value == "" else "must be a string")

    def action(self, name: str) -> str:
        """Read the required action identifier."""
        value = self.text(name)
        if value and not is_action(value):
            return self._complain(name, ACTION_RULE)
        return value

    def choice(self, name: str, values: tuple[str, ...]) -> str:
        """Read a required word of a few."""
        value = self._body.get(name)
        if isinstance(value, str) and value in values:
            return value
        missing = name not in self._body or value is None
        return self._complain(name, REQUIRED if missing else f"must be one of {', '.join(values)}")

    def reference(self, name: str) -> str | None:
        """Read an optional reference of the caller's."""
        value = self._body.get(name)
        if value is None or (isinstance(value, str) and is_reference(value)):
            return value
        self._complain(name, REFERENCE_RULE)
        return None

    def description(self, name: str) -> str | None:
        """Read optional free text without the spaces around it; None when it is empty."""
        value = self._body.get(name)
        if value is None:
            return None
        if isinstance(value, str) and is_description(value.strip()):
            return value.strip() or None
        self._complain(name, DESCRIPTION_RULE)
        return None

    def flag(self, name: str) -> bool:
        """Read an optional boolean, false when absent."""
        value = self._body.get(name)
        if value is not None and not isinstance(value, bool):
            self._complain(name, "must be true or false")
        return value is True

    def moment(self, name: str) -> datetime | None:
        """Read an optional ISO 8601 moment; without an offset it is UTC."""
        value = self._body.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            with suppress(ValueError):
                return moment_of(value)
        self._complain(name, MOMENT_RULE)
        return None

    def address(self, name: str) -> str | None:
        """Read an optional IP address, kept as the caller writes it."""
        value = self._body.get(name)
        if value is None:
            return None
        # A zone ("fe80::1%eth0") may be any text, and means nothing on another machine.
        if isinstance(value, str) and "%" not in value:
            with suppress(ValueError):
                ip_address(value)
                return value
        return self._complain(name, "must be an IP address")

    def context(self, name: str) -> dict[str, Json] | None:
        """Read the optional context and keep its canonical text, unless the body's text says that it is small."""
        value = self._body.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._complain(name, "must be an object")
            return None
        if deeper_than(MAX_CONTEXT_DEPTH, value):
            self._complain(name, f"must not be nested deeper than {MAX_CONTEXT_DEPTH} levels")
            return None
        if self._small:
            return value
        self.canonical = canonical(value)
        if len(self.canonical.encode()) > MAX_CONTEXT_BYTES:
            self._complain(name, f"must not be larger than {MAX_CONTEXT_BYTES} bytes")
        return value

    def _complain(self, name: str, message: str) -> str:
        self._errors.setdefault(name, []).append(message)
        return ""


def idempotency_key(given: str | None) -> str | None:
    """Read the optional ``Idempotency-Key`` header.

    Raises:
        FieldErrors: it is not 1-255 printable characters.
    """
    if given is not None and not is_reference(given):
        raise FieldErrors({"Idempotency-Key": [REFERENCE_RULE]})
    return given
