"""Whether gateway and agent are the same user of the operating system: then it is a guardrail and no boundary."""

import os
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from toolgate_cli.doctor.findings import Finding
from toolgate_cli.doctor.surroundings import Surroundings

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"
_CURE = (
    "run the gateway as another user or on another machine; until then whoever takes over an agent can read the "
    "gateway's secret and its database"
)


def check_users(around: Surroundings) -> Iterator[Finding]:
    """Yield whether whoever is this user could be the gateway."""
    if around.url is None:
        return
    parts = urlsplit(around.url)
    if not _is_this_machine(parts.hostname or ""):
        yield Finding("users", "ok", "the gateway's address is another machine's")
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    listeners = listening_users(port)
    if listeners is None:
        yield Finding("users", "unknown", "whose process the gateway is cannot be seen on this system")
    elif not listeners:
        yield Finding(
            "users", "unknown", "whose process the gateway is cannot be seen: nobody here listens there"
        )
    elif os.geteuid() in {0, *listeners}:
        says = "gateway and agent are the same operating-system user: a guardrail, no boundary"
        yield Finding("users", "warning", says, _CURE)
    else:
        yield Finding("users", "ok", "the gateway is another operating-system user's")


def listening_users(port: int) -> set[int] | None:
    """Return the ids of the users who listen on a port of this machine, or None where that cannot be seen."""
    try:
        lines = [line for table in _TABLES if table.exists() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return None
    if not any(table.exists() for table in _TABLES):
        return None
    rows = [line.split() for line in lines]
    return {int(row[7]) for row in rows if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port}


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
