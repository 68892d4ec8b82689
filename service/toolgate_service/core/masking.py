"""Hide passwords in URLs, for error messages and lists of settings."""

import re

HIDDEN = "…"

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
#: schemes of the URLs in settings; a URL with an unknown scheme is hidden completely
_SCHEMES = frozenset({"sqlite", "postgresql", "postgres", "postgresql+asyncpg", "redis", "rediss", "smtp", "smtps", "http", "https"})  # fmt: skip
_USER = re.compile(r"[^:/?#@\[\]]*")
_PARAMETER = re.compile(r"[^&;]+")
#: start of a query string within the text before the last `@` of a URL
_PARAMETERS_BEGIN = re.compile(r"\?[^?=]+=")
#: query parameters whose values are not secret and are shown
_HARMLESS = frozenset({"sslmode", "ssl", "tls", "mode"})


def masked_url(text: str) -> str:
    """Return a URL with its password, parameter values and fragment hidden; hide any other text completely.

    Values of harmless parameters, such as ``sslmode``, are shown. The URL of an SQLite file is returned unchanged.
    """
    found = _URL.fullmatch(text.strip())
    if found is None or found["scheme"].lower() not in _SCHEMES:
        return HIDDEN
    if _is_file(found):
        return text
    user, password, place = _parts(found["rest"])
    if password is not None and _PARAMETERS_BEGIN.search(password):
        # The `@` may be part of a parameter's value. The text after it would then be a part of the value, not a host.
        return f"{found['scheme']}://{HIDDEN}"
    place, number_sign, _ = place.partition("#")
    address, question, query = place.partition("?")
    query = _PARAMETER.sub(_without_value, query)
    hidden = "" if password is None else f":{HIDDEN}"
    at = "" if user is None else "@"
    end = number_sign and f"#{HIDDEN}"
    return f"{found['scheme']}://{user or ''}{hidden}{at}{address}{question}{query}{end}"


def password_in(text: str) -> str | None:
    """Return the password in a URL in its percent-encoded form; None if the URL contains no password."""
    found = _URL.fullmatch(text.strip())
    return None if found is None or _is_file(found) else _parts(found["rest"])[1]


def _is_file(found: re.Match[str]) -> bool:
    return found["scheme"] == "sqlite" and (not found["rest"] or found["rest"].startswith("/"))


def _parts(rest: str) -> tuple[str | None, str | None, str]:
    """Split the part of a URL after ``://`` into the user, the password, and the text after the last `@`."""
    # Split at the last `@`: a password may contain an `@` that the operator did not percent-encode.
    before, at, place = rest.rpartition("@")
    if not at:
        return None, None, place
    user = _USER.match(before)
    known = user[0] if user else ""
    return known, before[len(known) :].removeprefix(":") or None, place


def _without_value(found: re.Match[str]) -> str:
    name, equals, _ = found[0].partition("=")
    if equals and name.lower() in _HARMLESS:
        return found[0]
    # A parameter without `=` may be the rest of a value whose `&` was not percent-encoded, so hide it.
    return f"{name}={HIDDEN}" if equals else HIDDEN
