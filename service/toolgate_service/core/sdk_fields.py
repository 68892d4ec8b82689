"""Validation of the request bodies of `/sdk/*`, which reports all invalid fields in one error.

Pydantic is not used: the module `strict_json` has already parsed the body without rounding numbers, and a second pass
over the values would delay the agent, which waits for the response.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from ipaddress import ip_address

from toolgate_service.core.errors import REQUIRED, FieldErrors
from toolgate_service.core.schemas import (
    ACTION_RULE,
    DESCRIPTION_RULE,
    MOMENT_RULE,
    REFERENCE_RULE,
    is_action,
    is_description,
    is_reference,
    moment_of,
)
from toolgate_service.core.strict_json import Json, canonical, deeper_than

MAX_CONTEXT_BYTES = 64 * 1024
MAX_CONTEXT_DEPTH = 32

#: size in bytes of a request body that is so small that the canonical JSON text of its context cannot exceed
#: `MAX_CONTEXT_BYTES`. Canonical numbers have no exponents, and exponents are at most 400: at worst, the 5 bytes of
#: `1e400` become 401 digits, about 80 times as many.
SURELY_SMALL = 800


class SdkFields:
    """Reader for the fields of one request body. It collects the errors, and `finish` raises them together.

    Args:
        body: Parsed request body.
        raw: Unparsed request body. If it has at most `SURELY_SMALL` bytes, the context cannot be too large, and its
            canonical text is not created.
    """

    def __init__(self, body: Mapping[str, Json], raw: bytes | None = None) -> None:
        self._body = body
        self._small = raw is not None and len(raw) <= SURELY_SMALL
        self._errors: dict[str, list[str]] = {}
        #: canonical text of the context that was read last; it stays `{}` if the request body has at most
        #: `SURELY_SMALL` bytes
        self.canonical = "{}"

    @property
    def canonical_text(self) -> str | None:
        """Canonical JSON text of the context; None if it was not created because the request body is small."""
        return None if self._small else self.canonical

    def finish(self) -> None:
        """Raise one error with the messages of all invalid fields, if there are any.

        Raises:
            FieldErrors: At least one field is invalid or missing.
        """
        if self._errors:
            raise FieldErrors(self._errors)

    def text(self, name: str) -> str:
        """Return a required field that must be a non-empty string."""
        value = self._body.get(name)
        if isinstance(value, str) and value:
            return value
        return self._complain(name, REQUIRED if value is None or value == "" else "must be a string")

    def action(self, name: str) -> str:
        """Return a required field that must be an action, such as ``service.operation``."""
        value = self.text(name)
        if value and not is_action(value):
            return self._complain(name, ACTION_RULE)
        return value

    def choice(self, name: str, values: tuple[str, ...]) -> str:
        """Return a required field that must be one of `values`."""
        value = self._body.get(name)
        if isinstance(value, str) and value in values:
            return value
        missing = name not in self._body or value is None
        return self._complain(name, REQUIRED if missing else f"must be one of {', '.join(values)}")

    def reference(self, name: str) -> str | None:
        """Return an optional reference that the client chose, such as a call id."""
        value = self._body.get(name)
        if value is None or (isinstance(value, str) and is_reference(value)):
            return value
        self._complain(name, REFERENCE_RULE)
        return None

    def description(self, name: str) -> str | None:
        """Return an optional free text without surrounding white space. An empty text becomes None."""
        value = self._body.get(name)
        if value is None:
            return None
        if isinstance(value, str) and is_description(value.strip()):
            return value.strip() or None
        self._complain(name, DESCRIPTION_RULE)
        return None

    def flag(self, name: str) -> bool:
        """Return an optional boolean field. The default is False."""
        value = self._body.get(name)
        if value is not None and not isinstance(value, bool):
            self._complain(name, "must be true or false")
        return value is True

    def moment(self, name: str) -> datetime | None:
        """Return an optional ISO 8601 timestamp. A timestamp without an offset is interpreted as UTC."""
        value = self._body.get(name)
        if value is None:
            return None
        if isinstance(value, str):
            with suppress(ValueError):
                return moment_of(value)
        self._complain(name, MOMENT_RULE)
        return None

    def address(self, name: str) -> str | None:
        """Validate an IP address and return its text as in the request; None if the request contains no address."""
        value = self._body.get(name)
        if value is None:
            return None
        # Reject a zone index, such as `eth0` in "fe80::1%eth0", because it may be any text and is valid on one machine
        # only.
        if isinstance(value, str) and "%" not in value:
            with suppress(ValueError):
                ip_address(value)
                return value
        return self._complain(name, "must be an IP address")

    def context(self, name: str) -> dict[str, Json] | None:
        """Return the optional context: a JSON object with the arguments of a tool call.

        The method also creates the canonical text of the context and checks its size, unless the whole request body has
        at most `SURELY_SMALL` bytes: the context of such a body cannot be too large.
        """
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
    """Validate the value of the optional header ``Idempotency-Key``, and return it.

    Raises:
        FieldErrors: The value does not consist of 1-255 printable characters.
    """
    if given is not None and not is_reference(given):
        raise FieldErrors({"Idempotency-Key": [REFERENCE_RULE]})
    return given
