"""By which names browsers may reach the console.

A page of another site may have its own name point to this machine (DNS rebinding): then the browser takes the gateway
for that site. So a name must be known here. An address cannot be pointed elsewhere and always is.
"""

import re
from collections.abc import Collection
from contextlib import suppress
from ipaddress import ip_address

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?")
_LOCAL = "localhost"


def read_hosts(text: str) -> tuple[str, ...]:
    """Read a comma-separated list of host names.

    Raises:
        ValueError: an entry is none.
    """
    hosts = tuple(entry.strip().lower() for entry in text.split(",") if entry.strip())
    for host in hosts:
        if not _NAME.fullmatch(host):
            raise ValueError(
                f"{host!r} is no host name; write it without scheme and port, for instance toolgate.example.com"
            )
    return hosts


def host_name(header: str) -> str | None:
    """Return the name in a Host header, in lower case and without the port; None where it is none."""
    found = _HOST.fullmatch(header)
    return found["name"].lower().rstrip(".") if found else None


def is_known(name: str, names: Collection[str]) -> bool:
    """Say whether a request may come by a name: one of those given, this machine's own, or an address."""
    if name in names or name == _LOCAL or name.endswith(f".{_LOCAL}"):
        return True
    with suppress(ValueError):
        ip_address(name.strip("[]"))
        return True
    return False


def is_loopback(host: str) -> bool:
    """Say whether a host is this machine itself, so that nobody reads on the way to it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == _LOCAL
