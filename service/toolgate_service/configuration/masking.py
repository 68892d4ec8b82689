"""Settings as they may be shown: no secret, and no password inside a URL."""

import re
from typing import Any, get_args

from pydantic import SecretStr

from toolgate_service.settings import Settings

HIDDEN = "…"

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
#: what a URL of a setting may begin with; of any other nobody knows what it is
_SCHEMES = frozenset({"sqlite", "postgresql", "postgres", "postgresql+asyncpg", "redis", "rediss", "smtp", "smtps", "http", "https"})  # fmt: skip
_USER = re.compile(r"[^:/?#@\[\]]*")
_PARAMETER = re.compile(r"[^&;]+")
#: where parameters begin, in what stands before an @
_PARAMETERS_BEGIN = re.compile(r"\?[^?=]+=")
#: parameters of a URL that say nothing about who is let in
_HARMLESS = frozenset({"sslmode", "ssl", "tls", "mode"})


def shown(name: str, text: str) -> str:
    """Return a setting's text without what must not be seen.

    Args:
        name: the setting's, as `Settings` calls it.
        text: as the operator wrote it.
    """
    if name.endswith("_url"):
        return masked_url(text)
    if is_secret(name):
        return HIDDEN
    return masked_url(text) if "://" in text else text


def masked_url(text: str) -> str:
    """Return a URL with its password hidden, and every parameter's value; of what is no URL nothing is shown."""
    found = _URL.fullmatch(text.strip())
    if found is None or found["scheme"].lower() not in _SCHEMES:
        return HIDDEN
    if _is_file(found):
        return text
    user, password, place = _parts(found["rest"])
    if password is not None and _PARAMETERS_BEGIN.search(password):
        # The @ may be in a parameter's value, and what looks like a host the rest of it.
        return f"{found['scheme']}://{HIDDEN}"
    place, number_sign, _ = place.partition("#")
    address, question, query = place.partition("?")
    query = _PARAMETER.sub(_without_value, query)
    hidden = "" if password is None else f":{HIDDEN}"
    at = "" if user is None else "@"
    end = number_sign and f"#{HIDDEN}"
    return f"{found['scheme']}://{user or ''}{hidden}{at}{address}{question}{query}{end}"


def password_in(text: str) -> str | None:
    """Return the password that stands in a URL, as it is written there; None where there is none."""
    found = _URL.fullmatch(text.strip())
    return None if found is None or _is_file(found) else _parts(found["rest"])[1]


def _is_file(found: re.Match[str]) -> bool:
    return found["scheme"] == "sqlite" and (not found["rest"] or found["rest"].startswith("/"))


def _parts(rest: str) -> tuple[str | None, str | None, str]:
    """Return the user, the password, and what is behind them."""
    # The last one: a password may hold what should have been escaped.
    before, at, place = rest.rpartition("@")
    if not at:
        return None, None, place
    user = _USER.match(before)
    known = user[0] if user else ""
    return known, before[len(known) :].removeprefix(":") or None, place


def is_secret(name: str) -> bool:
    """Say whether a setting is one that nobody may see."""
    return _holds_secret(Settings.model_fields[name].annotation)


def _holds_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(_holds_secret(part) for part in get_args(annotation))


def _without_value(found: re.Match[str]) -> str:
    name, equals, _ = found[0].partition("=")
    if equals and name.lower() in _HARMLESS:
        return found[0]
    # Without a name it may be the rest of a value that should have been escaped.
    return f"{name}={HIDDEN}" if equals else HIDDEN
