"""Settings of a guard, and of the outbox that stores its log entries.

A setting for which no argument is passed has the value of its environment variable, or else its default. The variables
are read when a guard is created, not when the module is imported.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from toolgate._http.network import DEFAULT_NETWORK, ClientCert, Network, load_network
from toolgate._identity import valid_id
from toolgate._telemetry import logger
from toolgate.errors import ConfigurationError

if TYPE_CHECKING:
    import ssl

__all__ = [
    "DEFAULT_TIMEOUT",
    "MEMORY",
    "Place",
    "Settings",
    "checked_timeout",
    "checked_url",
    "load_place",
    "load_settings",
    "masked",
    "proxies_allowed",
    "renamed_variables",
    "travels_readable",
]

DEFAULT_TIMEOUT: Final = 5.0
_HTTP_LIBRARIES: Final = ("httpx", "httpx2")
# A key is shown as its prefix and its last four characters. A key with fewer than 16 characters after the prefix is
# hidden completely, because four characters of such a short key would reveal too much.
_SHORTEST_MASKED: Final = 16
# Minimum and maximum of a timeout, in seconds.
_SHORTEST_TIMEOUT: Final = 0.01
_LONGEST_TIMEOUT: Final = 86_400
# Maximum length of an address, in characters.
_LONGEST_URL: Final = 2_000
# Maximum length of a host name (RFC 1035, section 2.3.4) and pattern of its parts. Underscores are permitted too,
# because the names of containers may contain them.
_LONGEST_HOST: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")


@dataclass(frozen=True, slots=True)
class Settings:
    """Address of the gateway, credentials, and connection settings.

    Attributes:
        url: Address of the gateway without a trailing slash.
        api_key: API key of the organization or the agent.
        agent_id: The agent, unless a call or block sets another agent.
        timeout: Total deadline of one request with all its retries, in seconds.
        http: The HTTP library, `httpx` or `httpx2`.
        network: TLS and proxy settings.
    """

    url: str
    api_key: str
    agent_id: str | None
    timeout: float
    http: str
    network: Network = DEFAULT_NETWORK

    def __repr__(self) -> str:
        return f"Settings(url={self.url!r}, api_key={masked(self.api_key)!r}, agent_id={self.agent_id!r})"


def load_settings(
    url: str | None = None,
    api_key: str | None = None,
    agent_id: str | None = None,
    timeout: float | None = None,
    *,
    allow_insecure: bool = False,
    ca: str | os.PathLike[str] | ssl.SSLContext | None = None,
    client_cert: ClientCert | None = None,
    proxy: str | None = None,
    transport: object | None = None,
) -> Settings:
    """Return validated settings. For each argument that is None, the `TOOLGATE_*` variable or the default is used.

    Raises:
        ConfigurationError: An argument or variable is missing or wrong; the message names it and the fix.
    """
    address = _url(_required(url, "url", "TOOLGATE_URL"), allow_insecure=allow_insecure)
    return Settings(
        url=address,
        api_key=_api_key(_required(api_key, "api_key", "TOOLGATE_API_KEY")),
        agent_id=_optional(agent_id, "agent_id", "TOOLGATE_AGENT_ID", valid_id),
        timeout=checked_timeout(timeout),
        http=_http_library(),
        network=load_network(address, ca, client_cert, proxy, transport=transport),
    )


def masked(api_key: str) -> str:
    """Return the prefix and the last four characters of a key, for display; return `…` for a short or unusual key."""
    prefix, separator, rest = api_key.partition("_")
    if not separator or len(rest) < _SHORTEST_MASKED or prefix not in ("ak", "test"):
        return "…"
    return f"{prefix}_…{api_key[-4:]}"


def checked_url(url: str) -> str:
    """Validate the address of a gateway and return it without a trailing slash; plain http is permitted.

    Raises:
        ConfigurationError: The address is not valid; the message contains the fix.
    """
    return _url(url, allow_insecure=True)


def travels_readable(url: str) -> bool:
    """Return True if `url` is plain http to another machine, so that the network could expose the API key."""
    parts = urlsplit(url)
    return parts.scheme != "https" and not _is_loopback(parts.hostname or "")


def proxies_allowed(url: str) -> bool:
    """Return True if the proxies in environment variables may be used for `url`.

    They may be used only for https to another machine. The proxy then forwards an encrypted connection, and can neither
    read the API key nor forge a response.
    """
    parts = urlsplit(url)
    return parts.scheme == "https" and not _is_loopback(parts.hostname or "")


def _required(value: str | None, name: str, variable: str) -> str:
    found = value if value is not None else os.environ.get(variable)
    if found is None or found == "":
        raise ConfigurationError(f"{name} is not set; set {variable} or pass Guard({name}=…)")
    return found


def _optional(value: str | None, name: str, variable: str, check: Callable[[object, str], str]) -> str | None:
    if value is not None:
        return check(value, name)
    found = os.environ.get(variable)
    return check(found, variable) if found else None


def _api_key(key: object) -> str:
    # White space around the key is removed, because a key that was copied or read from a file often contains it.
    stripped = key.strip() if isinstance(key, str) else ""
    if not stripped or not all("!" <= char <= "~" for char in stripped):
        raise ConfigurationError(
            "api_key is empty, or contains white space or other invalid characters; copy TOOLGATE_API_KEY again"
        )
    return stripped


def _url(url: object, *, allow_insecure: bool) -> str:
    if not isinstance(url, str) or not all("!" <= char <= "~" and char != "\\" for char in url):
        raise ConfigurationError("url contains white space or invalid characters; correct TOOLGATE_URL")
    if len(url) > _LONGEST_URL:
        raise ConfigurationError(
            f"url has {len(url):,} characters, more than {_LONGEST_URL:,}; correct TOOLGATE_URL"
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ConfigurationError(
            "url is not a valid URL; use a form like 'https://gateway.example.com'"
        ) from None
    if "@" in parts.netloc:
        # The message does not contain the url, because the text before the @ usually contains a password.
        raise ConfigurationError("url contains a user or password; put the credential into TOOLGATE_API_KEY")
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError(
            f"url {url!r} is not a web address; use a form like 'https://gateway.example.com'"
        )
    if "?" in url or "#" in url:
        raise ConfigurationError(
            f"url of {host!r} has a query or fragment; remove the part that begins with '?' or '#'"
        )
    if not _is_host(host):
        raise ConfigurationError(
            f"url contains the invalid host name {host!r}; use a form like 'https://gateway.example.com'"
        )
    _refuse_plain_text(parts, host, allow_insecure=allow_insecure)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _refuse_plain_text(parts: SplitResult, host: str, *, allow_insecure: bool) -> None:
    if allow_insecure or not travels_readable(parts.geturl()):
        return
    raise ConfigurationError(
        f"url of {host!r} is plain http, so that the API key could be read on the network; "
        "use https, or pass Guard(allow_insecure=True) inside a network you trust"
    )


def _is_host(host: str) -> bool:
    if ":" in host:
        try:
            ip_address(host)
        except ValueError:
            return False
        return True
    name = host.removesuffix(".")
    return len(name) <= _LONGEST_HOST and all(_LABEL.fullmatch(label) for label in name.split("."))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def checked_timeout(value: float | None = None) -> float:
    """Return the deadline of a request in seconds: `value`, or else `TOOLGATE_TIMEOUT`, or else the default.

    Raises:
        ConfigurationError: The deadline is not valid; the message contains it and the fix.
    """
    text: object = value if value is not None else os.environ.get("TOOLGATE_TIMEOUT") or DEFAULT_TIMEOUT
    try:
        seconds = math.nan if isinstance(text, bool) else float(text)  # type: ignore[arg-type]  # TypeError is caught
    except (TypeError, ValueError):
        seconds = math.nan
    if not _SHORTEST_TIMEOUT <= seconds <= _LONGEST_TIMEOUT:
        raise ConfigurationError(
            f"timeout is {text!r}; pass Guard(timeout=…) or set TOOLGATE_TIMEOUT to seconds "
            f"from {_SHORTEST_TIMEOUT} to {_LONGEST_TIMEOUT}, like 5"
        )
    return seconds


def _http_library() -> str:
    name = os.environ.get("TOOLGATE_HTTP") or "httpx"
    if name not in _HTTP_LIBRARIES:
        raise ConfigurationError(f"TOOLGATE_HTTP is {name!r}; use one of {', '.join(_HTTP_LIBRARIES)}")
    if find_spec(name) is None:
        raise ConfigurationError(
            f"TOOLGATE_HTTP is {name!r}, which is not installed; pip install {name}, or unset TOOLGATE_HTTP"
        )
    return name


#: value of `TOOLGATE_OUTBOX` that keeps log entries in memory only
MEMORY: Final = "memory"
#: SQLite's name for a database in memory; as value of `TOOLGATE_OUTBOX` it has the same effect as `memory`
_SQLITE_MEMORY: Final = ":memory:"
#: suffix of the outbox file in version 0.1. The outbox is now a folder, so this suffix is removed from the path in
#: `TOOLGATE_OUTBOX`
_FILE_SUFFIX: Final = ".db"

_ROWS: Final = 100_000
_BYTES: Final = 256 * 1024 * 1024
_FLUSH_TIMEOUT: Final = 3.0
_LONGEST_FLUSH_TIMEOUT: Final = 3_600

# Former names of environment variables, which are accepted until version 0.2.
_RENAMED: Final = {"TOOLGATE_OUTBOX_EXIT": "TOOLGATE_OUTBOX_FLUSH_TIMEOUT"}
# Former names that this process has warned about.
_warned: Final[set[str]] = set()


@dataclass(frozen=True, slots=True)
class Place:
    """Settings of an outbox: its folder and limits.

    Attributes:
        path: The folder, or None if entries are kept in memory only.
        own_folder: Whether `path` is the default folder. In this case only Toolgate uses the parent folder of `path`.
        full_sync: Whether a call waits until its entry is on the disk, so that the entry survives a power loss.
        rows: Maximum number of entries in the folder.
        size: Maximum number of bytes in the folder.
        flush_timeout: Maximum seconds that the process waits at its end for entries to be sent.
    """

    path: Path | None
    own_folder: bool = False
    full_sync: bool = False
    rows: int = _ROWS
    size: int = _BYTES
    flush_timeout: float = _FLUSH_TIMEOUT


def load_place(outbox: str | os.PathLike[str] | None = None) -> Place:
    """Return the outbox settings from the environment. If `outbox` is given, it replaces `TOOLGATE_OUTBOX`.

    Raises:
        ConfigurationError: A setting is invalid; the message contains its name and the fix.
    """
    given = outbox if outbox is not None else os.environ.get("TOOLGATE_OUTBOX")
    if given is not None and not isinstance(given, (str, os.PathLike)):
        raise ConfigurationError(
            f"outbox is {given!r}; pass the path of a folder, or {MEMORY!r} to keep log entries only in memory"
        )
    own_folder = not given
    path = (
        None if given in {MEMORY, _SQLITE_MEMORY} else (_default() if not given else Path(given).expanduser())
    )
    if path is not None and path.suffix == _FILE_SUFFIX:
        path = path.with_suffix("")
    return Place(
        path=None if path is None else path.absolute(),
        own_folder=own_folder,
        full_sync=_full_sync(),
        rows=_whole("TOOLGATE_OUTBOX_ROWS", _ROWS),
        size=_whole("TOOLGATE_OUTBOX_BYTES", _BYTES),
        flush_timeout=_seconds(_named("TOOLGATE_OUTBOX_FLUSH_TIMEOUT"), _FLUSH_TIMEOUT),
    )


def renamed_variables() -> dict[str, str]:
    """Return the former names of settings that are set as environment variables, and their present names."""
    return {former: name for former, name in _RENAMED.items() if os.environ.get(former)}


def _named(name: str) -> str:
    """Return the environment variable to read for a setting: its former name if only that is set, else `name`.

    The first use of a former name in a process is logged as a warning.
    """
    used = name
    for former in (old for old, new in renamed_variables().items() if new == name):
        if not os.environ.get(name):
            used = former
        if former not in _warned:
            _warned.add(former)
            if used == former:
                logger.warning(
                    "%s is deprecated and accepted until version 0.2; set %s instead", former, name
                )
            else:
                logger.warning(
                    "%s is deprecated and ignored, because %s is set; remove %s", former, name, former
                )
    return used


def _default() -> Path:
    return _state_folder() / "toolgate" / "outbox"


def _state_folder() -> Path:
    named = os.environ.get("XDG_STATE_HOME", "")
    # The XDG standard requires that relative paths are ignored.
    if named and Path(named).is_absolute():
        return Path(named)
    try:
        home = Path.home()
    except RuntimeError:
        raise ConfigurationError(
            "the outbox needs a folder, and this user has no home folder; set TOOLGATE_OUTBOX to the path "
            "of a folder"
        ) from None
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    return home / ".local" / "state"


def _full_sync() -> bool:
    given = os.environ.get("TOOLGATE_OUTBOX_SYNC") or "normal"
    if given not in {"normal", "full"}:
        raise ConfigurationError(
            f"TOOLGATE_OUTBOX_SYNC is {given!r}; use 'normal', or 'full' to survive power loss"
        )
    return given == "full"


def _whole(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(sys.maxsize)) else 0
    if not 0 < number < sys.maxsize:
        raise ConfigurationError(f"{name} is {text!r}; set it to a whole number above 0, like {default}")
    return number


def _seconds(name: str, default: float) -> float:
    text = os.environ.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _LONGEST_FLUSH_TIMEOUT:
        raise ConfigurationError(
            f"{name} is {text!r}; set it to seconds from 0 to {_LONGEST_FLUSH_TIMEOUT}, like {default}"
        )
    return seconds
