"""OpenAPI documents: reading a document, its operations, and the addresses of its servers."""

from __future__ import annotations

import importlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from toolgate import ConfigurationError
from toolgate._capture.jsontext import loads
from toolgate_integrations.openapi.defaults import Defaults

__all__ = ["Document", "Operation", "credentials", "load", "operations"]

#: Origin of a server: scheme, host (in ASCII and lower case) and port.
Origin: TypeAlias = tuple[str, str, int]
_PORTS: Final = {"http": 80, "https": 443}
_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")
# Maximum number of server addresses of an operation. Server variables in a document can have many combinations of
# values, each of which is an address in memory.
_MOST: Final = 1000


def addresses(named: Any, given: Sequence[str] | None, where: str) -> tuple[str, ...]:
    """Return the server addresses of an operation.

    Args:
        named: The list `servers` of the document that applies to the operation; None if there is none.
        given: Addresses that replace those in the document; None to use the document's.
        where: The operation's place in the document, for error messages.

    Raises:
        ConfigurationError: There is no address, there are too many, or an address has no host.
    """
    chosen = _expanded(named, where) if given is None else given
    found = list(itertools.islice(chosen, _MOST + 1))
    if not found or len(found) > _MOST:
        raise ConfigurationError(
            f"{where} has {len(found) or 'no'} servers; pass the addresses that you use, such as "
            "servers=['https://api.example.com']"
        )
    for address in found:
        split(address)
    return tuple(found)


def split(address: object) -> tuple[Origin, str]:
    """Split a server's address into its origin and the path prefix that its operations share.

    Args:
        address: An address such as `https://api.example.com/v1`.

    Raises:
        ConfigurationError: `address` is not an HTTP address with a host.
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
        f"the server {address!r} is not an address with a host; pass servers=['https://api.example.com/v1']"
    )


def origin_of(url: Any) -> Origin | None:
    """Return the origin (scheme, host and port) of a URL, or None if it is not an HTTP address.

    Args:
        url: A URL object of the HTTP library.
    """
    if url.scheme not in _PORTS:
        return None
    return url.scheme, url.raw_host.decode("ascii").lower(), url.port or _PORTS[url.scheme]


def _expanded(named: Any, where: str) -> Iterator[str]:
    for server in named if isinstance(named, Sequence) else ():
        url = server.get("url") if isinstance(server, Mapping) else None
        if not isinstance(url, str):
            raise ConfigurationError(f"a server of {where} has no url; add the url, or pass servers=[…]")
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


#: The parsed OpenAPI document, the path of its file, or its text.
Document: TypeAlias = "Mapping[str, Any] | str | PathLike[str]"
_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of an OpenAPI document.

    Attributes:
        name: The `operationId`, or a name such as `GET:/v1/refunds/{id}` if there is none.
        method: HTTP method, in capitals.
        path: Path template.
        servers: Addresses of the servers.
        defaults: Values that the API uses for arguments that a request leaves out.
    """

    name: str
    method: str
    path: str
    servers: tuple[str, ...]
    defaults: Defaults = field(compare=False, repr=False)


def load(source: Document) -> Mapping[str, Any]:
    """Read an OpenAPI document.

    Args:
        source: The parsed document, the path of its file, or its text. A string that begins with `{` or has several
            lines is treated as text.

    Raises:
        ConfigurationError: The document cannot be read, or is not an OpenAPI 3 document.
    """
    if isinstance(source, Mapping):
        found: Any = source
    elif isinstance(source, str) and (source.lstrip().startswith("{") or "\n" in source):
        found = _parsed(source, "the text of the OpenAPI document")
    elif isinstance(source, (str, PathLike)):
        found = _parsed(_text(Path(source)), f"the OpenAPI document {str(source)!r}")
    else:
        raise ConfigurationError(
            f"the OpenAPI document is a {type(source).__name__!r}; pass a mapping, a path or its text"
        )
    version = found.get("openapi") if isinstance(found, Mapping) else None
    if not str(version).startswith("3."):
        raise ConfigurationError(
            f"the document's OpenAPI version is {version!r}, but only OpenAPI 3 is supported; convert a Swagger 2.0 "
            "document to OpenAPI 3 first"
        )
    document: Mapping[str, Any] = found
    return document


def operations(document: Mapping[str, Any], servers: Sequence[str] | None) -> Iterator[Operation]:
    """Yield every operation of an OpenAPI document.

    Args:
        document: The document that `load` returned.
        servers: Addresses that replace those in the document; None to use the document's.

    Raises:
        ConfigurationError: The document is invalid, or an operation has no server address.
    """
    paths = document.get("paths") or {}
    for path, written in _mapping(paths, "paths").items():
        if not str(path).startswith("/"):
            # Keys of `paths` that are not paths are OpenAPI extensions.
            continue
        where = f"paths[{path!r}]"
        item = _resolved(document, _mapping(written, where), where)
        for method in _METHODS:
            if item.get(method) is None:
                continue
            place = f"{where}.{method}"
            one = _mapping(item[method], place)
            named = next((each["servers"] for each in (one, item, document) if each.get("servers")), None)
            operation_id = one.get("operationId")
            if operation_id is not None and (not isinstance(operation_id, str) or not operation_id):
                raise ConfigurationError(f"{place}.operationId is {operation_id!r}; use a name")
            name = operation_id or f"{method.upper()}:{path}"
            defaults = Defaults(document, one, method.upper(), item.get("parameters"))
            yield Operation(name, method.upper(), str(path), addresses(named, servers, place), defaults)


def credentials(document: Mapping[str, Any], within: str) -> frozenset[str]:
    """Return the names of the parameters that contain an API key in one part of a request.

    Args:
        document: The document that `load` returned.
        within: Part of the request: `query`, `header` or `cookie`.

    Raises:
        ConfigurationError: The document is invalid.
    """
    components = _mapping(document.get("components") or {}, "components")
    where = "components.securitySchemes"
    schemes = _mapping(components.get("securitySchemes") or {}, where)
    found = [_resolved(document, _mapping(each, where), where) for each in schemes.values()]
    return frozenset(
        str(each["name"])
        for each in found
        if each.get("type") == "apiKey" and each.get("in") == within and "name" in each
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigurationError(
            f"the OpenAPI document {str(path)!r} cannot be read: {said}; check the path, or pass the "
            "document as text or a mapping"
        ) from None


def _parsed(text: str, what: str) -> Any:
    if text.lstrip().startswith("{"):
        try:
            return loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"{what} is not JSON: {error}") from None
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise ConfigurationError(
            f"{what} is not JSON, and YAML needs a library; pip install pyyaml, or pass the document as JSON"
        ) from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise ConfigurationError(f"{what} is neither JSON nor YAML: {said}") from None


def _mapping(found: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise ConfigurationError(
            f"{where} is a {type(found).__name__!r} in the OpenAPI document, not an object"
        )
    return found


def _resolved(document: Mapping[str, Any], found: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Follow `$ref` inside the document, and return the object to which it refers."""
    seen: list[str] = []
    while "$ref" in found:
        reference = str(found["$ref"])
        if not reference.startswith("#/") or reference in seen:
            raise ConfigurationError(
                f"{where} refers to {reference!r}; put the document into one file, without circular references"
            )
        seen.append(reference)
        target: Any = document
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, Mapping) else None
        found = _mapping(target, reference)
    return found
