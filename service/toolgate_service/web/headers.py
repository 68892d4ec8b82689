"""Headers that every answer carries: its request, the API's version, and what a browser must not do with it."""

from collections.abc import Iterable, Mapping
from typing import Self, TypeAlias

from toolgate_service import exact_json
from toolgate_service.errors import ApiError
from toolgate_service.settings import Settings

API_VERSION = "2026-11-20"

RawHeader: TypeAlias = tuple[bytes, bytes]
_VERSION: RawHeader = (b"x-api-version", API_VERSION.encode())

#: for whatever answer did not set its own: it is nobody's page, in nobody's frame, in nobody's cache
_DEFAULTS: tuple[RawHeader, ...] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
#: two years, as browsers ask of whom they preload
_HTTPS_ONLY: RawHeader = (b"strict-transport-security", b"max-age=63072000")


class AnswerHeaders:
    """Completes the headers of answers.

    Args:
        https: whether people reach the gateway by https, so that browsers may be told never to try without.
    """

    def __init__(self, *, https: bool) -> None:
        self._defaults = (*_DEFAULTS, _HTTPS_ONLY) if https else _DEFAULTS
        self._default_names = frozenset(name for name, _ in self._defaults)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Read from the settings what there is to say."""
        return cls(https=(settings.public_url or "").startswith("https:"))

    def complete(
        self, given: Iterable[RawHeader], request_id: str, added: Mapping[bytes, bytes] | None = None
    ) -> list[RawHeader]:
        """Return an answer's headers: the given ones, the added ones in their place, and those of every answer.

        Args:
            given: the answer's own.
            request_id: its request's.
            added: others, by their names in lower case.
        """
        headers = list(given)
        names = {name for name, _ in headers}
        if added:
            if not names.isdisjoint(added):
                headers = [pair for pair in headers if pair[0] not in added]
            headers += added.items()
            names.update(added)
        if names.isdisjoint(self._default_names):
            headers += self._defaults
        else:
            headers += [pair for pair in self._defaults if pair[0] not in names]
        headers += ((b"x-request-id", request_id.encode()), _VERSION)
        return headers

    def lines(self, *given: RawHeader) -> bytes:
        """Write headers and those of every answer, but for the request's id.

        Args:
            given: the answer's own.
        """
        return b"".join([b"%b: %b\r\n" % pair for pair in (*given, *self._defaults, _VERSION)])

    def answer(self, error: ApiError, request_id: str) -> bytes:
        """Write a whole last answer, for a connection on which no application can speak."""
        body = exact_json.dumps({"detail": error.reply_detail}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        added = {name.lower().encode(): value.encode() for name, value in (error.headers or {}).items()}
        lines = [b"%b: %b\r\n" % pair for pair in self.complete(headers, request_id, added)]
        return b"HTTP/1.1 %d \r\n%b\r\n%b" % (error.status_code, b"".join(lines), body)
