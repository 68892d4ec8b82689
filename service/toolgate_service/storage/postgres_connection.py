"""Connections to PostgreSQL: which host, which settings, and what a write transaction sets for itself.

Settings are sent after the connection is made and not in its startup packet, which PgBouncer refuses. Whatever decides
about durability or about locks is set inside each transaction: a session setting may outlive its client in a pool.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import parse_qs, urlsplit

import asyncpg
from asyncpg.connect_utils import SessionAttribute

if TYPE_CHECKING:
    #: asyncpg's classes are generic to type checkers alone
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

#: Errors of a server that cannot be used, or of the network. A connection that the server has ended, and that is not closed
#: yet, raises `InternalClientError`: "cannot switch to state 12".
DRIVER_FAULTS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

#: Application name of every connection, and those of transactions that may be idle for long: exports, and commands and
#: migrations, which may compute for seconds.
APPLICATION = "toolgate"
EXPORT = "toolgate export"
PATIENT_APPLICATION = "toolgate patient"

#: Settings of every connection. Nothing waits forever (milliseconds), timestamps come back in UTC, and no statement is
#: long enough for the compiler to pay.
SESSION_SETTINGS: Mapping[str, str] = {
    "application_name": APPLICATION,
    "lock_timeout": "10000",
    "statement_timeout": "30000",
    "idle_in_transaction_session_timeout": "90000",
    # A machine that lost its network or its power frees its connection after half a minute, not after two hours.
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    # Whatever the operator's default: a transaction that waited for a lock must see what was committed meanwhile.
    "default_transaction_isolation": "read committed",
    "timezone": "UTC",
    # The bounds of the log's partitions come as text.
    "datestyle": "ISO",
    "jit": "off",
}

#: Milliseconds after which the server ends a write transaction whose gateway sends no further statement. The transaction
#: holds its organization's lock, for which every other replica waits.
IDLE_IN_WRITE = 1_500
#: Milliseconds after which the server ends a connection whose peer takes no bytes of an answer.
UNSENT_IN_WRITE = 2_000

#: A commit acknowledged from memory alone is not durable. A stricter value of the operator, for instance `remote_apply`,
#: is kept.
_DURABLE = (
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
    "ELSE current_setting('synchronous_commit') END, true)"
)

#: SQL expression that applies the settings of a write transaction to the current transaction only.
WRITE_SETTINGS = (
    f"set_config('idle_in_transaction_session_timeout', '{IDLE_IN_WRITE}', true) || "
    f"set_config('tcp_user_timeout', '{UNSENT_IN_WRITE}', true) || {_DURABLE}"
)

#: SQL condition, always true, that lets the current transaction commit without waiting for the disk. Only for counts of
#: the current minute, which need not survive the server.
COMMIT_FROM_MEMORY = "set_config('synchronous_commit', 'off', true) = 'off'"


class Host(NamedTuple):
    """One host of a database URL.

    Attributes:
        name: host name, address, or folder of a Unix socket.
        port: TCP port.
    """

    name: str
    port: int


class Connector:
    """Opens connections to the server that a URL names, or to the writable one of several.

    Args:
        dsn: database URL as libpq writes it; several hosts are separated by commas.
    """

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._hosts = hosts_of(dsn)
        #: the host that answered last; tried first
        self._preferred = 0

    async def connect(
        self,
        *,
        timeout: float,  # noqa: ASYNC109 - shared between the hosts
        command_timeout: float | None,
        settings: Mapping[str, str] | None = None,
        statement_cache_size: int = 100,
    ) -> "Connection":
        """Return a new connection with the gateway's session settings.

        Args:
            timeout: seconds until connecting fails; several hosts share them equally, since one that is switched off
                does not refuse a connection.
            command_timeout: seconds until a statement is given up; None waits forever.
            settings: further session settings.
            statement_cache_size: prepared statements kept by the driver; 0 prepares none.

        Raises:
            OSError: no host can be reached.
            asyncpg.PostgresError: the server refuses the connection, or no host is writable.
        """
        connection = await self._open(timeout, command_timeout, statement_cache_size)
        try:
            await connection.execute(_session({**SESSION_SETTINGS, **(settings or {})}), timeout=timeout)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _open(
        self,
        timeout: float,  # noqa: ASYNC109 - as above
        command_timeout: float | None,
        statement_cache_size: int,
    ) -> "Connection":
        if len(self._hosts) < 2:  # noqa: PLR2004 - one host needs no choice
            return await asyncpg.connect(
                self.dsn,
                timeout=timeout,
                command_timeout=command_timeout,
                statement_cache_size=statement_cache_size,
            )
        failed: Exception | None = None
        for step in range(len(self._hosts)):
            place = (self._preferred + step) % len(self._hosts)
            host = self._hosts[place]
            try:
                connection: Connection = await asyncpg.connect(
                    self.dsn,
                    host=host.name,
                    port=host.port,
                    timeout=timeout / len(self._hosts),
                    command_timeout=command_timeout,
                    statement_cache_size=statement_cache_size,
                    # A standby accepts connections and no changes.
                    target_session_attrs=SessionAttribute.read_write,
                )
            except asyncpg.TargetServerAttributeNotMatched:
                failed = failed or ConnectionError("no host of the database URL accepts changes")
            except DRIVER_FAULTS as error:
                failed = error
            else:
                self._preferred = place
                return connection
        raise failed or ConnectionError("the database URL names no host")


def hosts_of(dsn: str) -> Sequence[Host]:
    """Return the hosts of a database URL; none where libpq's defaults apply.

    Raises:
        ValueError: a port is not a number.
    """
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    default = os.environ.get("PGPORT", "5432")
    names: list[str] = []
    ports: list[str] = []
    netloc = parts.netloc.rpartition("@")[2]
    for each in netloc.split(",") if netloc else ():
        name, separator, port = each.rpartition(":")
        # An IPv6 address has colons of its own, in brackets.
        if not separator or port.endswith("]"):
            name, port = each, ""
        names.append(name.strip("[]"))
        ports.append(port)
    if "host" in query:
        names = query["host"][-1].split(",")
        ports = [""] * len(names)
    if "port" in query:
        given = query["port"][-1].split(",")
        ports = given * len(names) if len(given) == 1 else given
    if len(ports) != len(names):
        raise ValueError("the database URL names a different number of hosts and ports")
    numbers = [port or default for port in ports]
    if not all(port.isdecimal() for port in numbers):
        # Not quoted: what stands in a port's place may be the rest of a password.
        raise ValueError("a port of the database URL is not a number")
    return [Host(name, int(port)) for name, port in zip(names, numbers, strict=True)]


def _session(settings: Mapping[str, str]) -> str:
    # One round trip, without values: names and values are the gateway's own constants.
    return "; ".join(f"SET {name} = '{value}'" for name, value in settings.items())
