"""The addresses of an API: those of a document's `servers`, their variables filled in."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from toolgate import ConfigurationError

__all__ = ["Origin", "addresses", "origin_of", "split"]

#: scheme, host in ASCII and lower case, port
Origin: TypeAlias = tuple[str, str, int]

_PORTS: Final = {"http": 80, "https": 443}
_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")
# Far more than any API has; beyond it a document asks for a computer's memory.
_MOST: Final = 1000


def addresses(named: Any, given: Sequence[str] | None, where: str) -> tuple[str, ...]:
    """Where an operation is.

    Args:
        named: `servers` of the document that counts for it; None if there is none.
        given: Addresses in place of them.
        where: The operation, for errors.

    Raises:
        ConfigurationError: There is none, or one that names no host.
    """
    chosen = _expanded(named, where) if given is None else given
    found = list(itertools.islice(chosen, _MOST + 1))
    if not found or len(found) > _MOST:
        raise ConfigurationError(
            f"{where} has {len(found) or 'no'} servers; pass those you use, such as servers=['https://api.example.com']"
        )
    for address in found:
        split(address)
    return tuple(found)


def split(address: object) -> tuple[Origin, str]:
    """A server's address as its origin and the path that all of its operations begin with.

    Args:
        address: Such as `https://api.example.com/v1`.

    Raises:
        ConfigurationError: It is none.
    """
    try:
        parts = urlsplit(address) if isinstance(address, str) else None
        if (
            parts is not None
            and parts.scheme in _PORTS
            and parts.hostname
            and not parts.query + parts.fragment
        ):
            host = parts.hostname.encode("ascii" if parts.hostname.isascii() else "idna").decode("ascii")
            return (parts.scheme, host.lower(), parts.port or _PORTS[parts.scheme]), parts.path.rstrip("/")
    except ValueError:
        pass
    raise ConfigurationError(
        f"the server {address!r} is no address with a host; pass servers=['https://api.example.com/v1']"
    )


def origin_of(url: Any) -> Origin | None:
    """Where a request goes; None if to no server of HTTP.

    Args:
        url: A URL of the HTTP library.
    """
    if url.scheme not in _PORTS:
        return None
    return url.scheme, url.raw_host.decode("ascii").lower(), url.port or _PORTS[url.scheme]


def _expanded(named: Any, where: str) -> Iterator[str]:
    for server in named if isinstance(named, Sequence) else ():
        url = server.get("url") if isinstance(server, Mapping) else None
        if not isinstance(url, str):
            raise ConfigurationError(f"the servers of {where} have none with a url; pass servers=[…]")
        variables = server.get("variables") or {}
        names = list(dict.fromkeys(_VARIABLE.findall(url)))
        for values in itertools.product(*(_values(variables, name, url) for name in names)):
            filled = url
            for name, value in zip(names, values, strict=True):
                filled = filled.replace(f"{{{name}}}", value)
            yield filled


def _values(variables: Any, name: str, url: str) -> list[str]:
    variable = variables.get(name) if isinstance(variables, Mapping) else None
    if not isinstance(variable, Mapping) or "default" not in variable:
        raise ConfigurationError(f"the server {url!r} has no default for {name!r}; pass servers=[…]")
    return [str(each) for each in variable.get("enum") or [variable["default"]]]
